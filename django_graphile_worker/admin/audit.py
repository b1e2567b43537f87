"""Writes entries about the actions of users to the admin's log, and reads their messages.

A message is stored as a sentence with placeholders and as the values for them, so that each reader sees it in the
reader's language, number format and time zone. The JSON also has what Django's own ``get_change_message`` shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext, gettext_noop

from django_graphile_worker.admin import formatting
from django_graphile_worker.redaction import redact_text

# Up to this many objects get an entry each, which their history shows. More objects share one entry that names them.
MAX_ENTRIES = 100
MAX_LENGTH = 10_000
# A sentence names so many of the objects that it is about.
MAX_NAMED = 5
# The key of the JSON that has the sentence of this package.
OWN = "graphile_worker"

__all__ = ["ADDITION", "CHANGE", "DELETION", "BulkEntry", "Message", "change_message", "log", "message_of", "some_of"]


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence in English, as ``gettext_noop`` marks it, with the values of its placeholders.

    A value is a text, a number, a time, another message, or a list of messages. Ids are texts: they have no separators.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    # What was changed, for Django's own sentence: "Changed run at and priority."
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the sentence in the language of the user."""
        return _shown(_stored(self))


def log(
    request: HttpRequest, model: type[Model], object_id: str, name: str, message: str | Message, flag: int = CHANGE
) -> LogEntry:
    """Write an entry about an object."""
    return LogEntry.objects.create(**_fields(request, model, object_id, name, message, flag))


def change_message(entry: LogEntry, message: Message) -> None:
    """Replace the message of an entry about something that has ended since."""
    (parts,) = json.loads(entry.change_message)
    text = json.dumps([{**parts, OWN: _stored(message)}])
    LogEntry.objects.filter(pk=entry.pk).update(change_message=text)


def message_of(entry: LogEntry) -> str:
    """Return the message of an entry for the user; entries of Django are shown as they are."""
    try:
        (parts,) = json.loads(entry.change_message)
        return _shown(parts[OWN])
    except (KeyError, TypeError, ValueError):
        return str(entry.get_change_message())


def some_of(names: Sequence[str], number: int) -> str | Message:
    """Return the first of these names, and how many more of a number of objects there are."""
    shown = ", ".join(names[:MAX_NAMED])
    if number <= len(names[:MAX_NAMED]):
        return shown
    values = {"names": shown, "number": number - len(names[:MAX_NAMED])}
    return Message(gettext_noop("%(names)s and %(number)s more"), values)


class BulkEntry:
    """The log of an action on several objects: an entry for each of a few objects, else one entry that is updated."""

    def __init__(self, request: HttpRequest, model: type[Model], message: str | Message, flag: int = CHANGE) -> None:
        self._about = (request, model)
        self._message, self._flag = message, flag
        self._summary: LogEntry | None = None

    def write(self, ids: Sequence[int], number: int, *, is_last: bool) -> None:
        """Log that `number` jobs have been changed so far; `ids` are the first of them."""
        if is_last and self._summary is None and number <= MAX_ENTRIES and len(ids) == number:
            self._write_each(ids)
            return
        names = some_of([f"#{each}" for each in ids], number)
        message = Message(gettext_noop("%(message)s Jobs: %(ids)s."), {"message": self._message, "ids": names})
        fields = _fields(*self._about, "", formatting.job_count(number), message, self._flag)
        if self._summary is None:
            self._summary = LogEntry.objects.create(**fields)
        else:
            LogEntry.objects.filter(pk=self._summary.pk).update(**fields)

    def _write_each(self, ids: Sequence[int]) -> None:
        entries = [_fields(*self._about, str(each), f"#{each}", self._message, self._flag) for each in ids]
        LogEntry.objects.bulk_create([LogEntry(**entry) for entry in entries])


def _fields(
    request: HttpRequest, model: type[Model], object_id: str, name: str, message: str | Message, flag: int
) -> dict[str, Any]:
    shown_name = redact_text(name)[:200]
    text = (
        json.dumps([{**_for_django(message, model, shown_name, flag), OWN: _stored(message)}])
        if isinstance(message, Message)
        else redact_text(message)[:MAX_LENGTH]
    )
    return {
        "user_id": request.user.pk,
        "content_type_id": ContentType.objects.get_for_model(model, for_concrete_model=False).pk,
        "object_id": object_id,
        "object_repr": shown_name,
        "action_flag": flag,
        "change_message": text,
    }


def _for_django(message: Message, model: type[Model], name: str, flag: int) -> dict[str, Any]:
    """Return what Django's ``get_change_message`` makes a sentence of."""
    about = {"name": str(model._meta.verbose_name_raw), "object": name}
    if flag == ADDITION:
        return {"added": {}}
    if flag == DELETION:
        return {"deleted": about}
    return {"changed": {"fields": list(message.fields)} if message.fields else {**about, "fields": [about["name"]]}}


def _stored(value: Any) -> Any:
    """Return a value as JSON can store it. Texts are redacted: every user who sees the object reads its log."""
    if isinstance(value, Message):
        return {"text": value.text, "values": {name: _stored(each) for name, each in value.values.items()}}
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    if isinstance(value, list | tuple):
        return [_stored(each) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return redact_text(str(value))[:MAX_LENGTH]


def _shown(value: Any) -> str:
    """Return a stored value in the language, the number format and the time zone of the user."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, int | float):
        return formatting.number(value)
    if not isinstance(value, dict):
        return str(value)
    if "time" in value:
        return formatting.exact_time(parse_datetime(value["time"]))
    shown = {name: _shown(each) for name, each in value.get("values", {}).items()}
    return gettext(value["text"]) % shown
