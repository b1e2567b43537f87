"""Writes entries about the actions of users to the admin's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest

from django_graphile_worker.admin import formatting
from django_graphile_worker.redaction import redact_text

# Up to this many objects get an entry each, which their history shows. More objects share one entry that names them.
MOST_ENTRIES = 100
LONGEST_MESSAGE = 10_000

__all__ = ["ADDITION", "CHANGE", "DELETION", "BulkEntry", "change_message", "log"]


def log(
    request: HttpRequest, model: type[Model], object_id: str, name: str, message: str, flag: int = CHANGE
) -> LogEntry:
    """Write an entry about an object."""
    return LogEntry.objects.create(**_fields(request, model, object_id, name, message, flag))


def change_message(entry: LogEntry, message: str) -> None:
    """Replace the message of an entry about something that has ended since."""
    LogEntry.objects.filter(pk=entry.pk).update(change_message=redact_text(message)[:LONGEST_MESSAGE])


class BulkEntry:
    """The log of an action on several objects: an entry for each of a few objects, else one entry that is updated."""

    def __init__(self, request: HttpRequest, model: type[Model], message: str, flag: int = CHANGE) -> None:
        self._about = (request, model)
        self._message, self._flag = message, flag
        self._summary: LogEntry | None = None

    def write(self, ids: Sequence[int], number: int, *, is_last: bool) -> None:
        """Log that `number` jobs have been changed so far; `ids` are the first of them."""
        if is_last and self._summary is None and number <= MOST_ENTRIES and len(ids) == number:
            self._write_each(ids)
            return
        names = ", ".join(map(str, ids)) + (", …" if number > len(ids) else "")
        fields = _fields(*self._about, "", formatting.job_count(number), f"{self._message} {names}", self._flag)
        if self._summary is None:
            self._summary = LogEntry.objects.create(**fields)
        else:
            LogEntry.objects.filter(pk=self._summary.pk).update(**fields)

    def _write_each(self, ids: Sequence[int]) -> None:
        entries = [_fields(*self._about, str(each), f"#{each}", self._message, self._flag) for each in ids]
        LogEntry.objects.bulk_create([LogEntry(**entry) for entry in entries])


def _fields(
    request: HttpRequest, model: type[Model], object_id: str, name: str, message: str, flag: int
) -> dict[str, Any]:
    return {
        "user_id": request.user.pk,
        "content_type_id": ContentType.objects.get_for_model(model, for_concrete_model=False).pk,
        "object_id": object_id,
        "object_repr": redact_text(name)[:200],
        "action_flag": flag,
        "change_message": redact_text(message)[:LONGEST_MESSAGE],
    }
