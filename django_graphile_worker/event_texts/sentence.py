"""A sentence about an event: a translated text, and the values in it, of which some are names of things with a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.translation import ngettext

from django_graphile_worker.sql.inspection.events import LoggedEvent

# A larger number, also an infinite one, is not a number of jobs or of seconds.
MOST = 10**18


class Name(NamedTuple):
    """A name in a sentence, and the thing that has it: "worker", "queue", "task", "flag", "item", "job" or "limit"."""

    kind: str
    text: str
    # What identifies the thing, if that is not its name.
    id: str = ""


class Sentence(NamedTuple):
    """A text with placeholders, and their values."""

    text: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        plain = {name: value.text if isinstance(value, Name) else value for name, value in self.values.items()}
        return self.text % plain


class Style(NamedTuple):
    """How a reader gets durations and times."""

    duration: Callable[[float], str]
    moment: Callable[[datetime], str]
    number: Callable[[int], str] = "{:,}".format


class Facts:
    """The details of an event. Any program can write the row, so every value is checked."""

    def __init__(self, event: LoggedEvent, style: Style) -> None:
        self.event = event
        self.style = style
        self._details = event.details

    def text(self, key: str) -> str:
        value = self._details.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        value = self._details.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return round(value) if abs(value) < MOST else None

    def texts(self, key: str) -> list[str]:
        value = self._details.get(key)
        return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

    def numbers(self, key: str) -> list[int]:
        value = self._details.get(key)
        return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []

    def moment(self, key: str) -> str:
        try:
            return self.style.moment(datetime.fromisoformat(self.text(key)))
        except (ValueError, OverflowError):
            return ""

    @property
    def worker(self) -> Name:
        """The worker that the event is about, with its process, because a host can have several workers."""
        name, pid = self.event.subject or self.event.worker_id or "", self.number("pid")
        is_one = self.event.number == 1 and pid is not None
        return Name("worker", f"{name} {pid}" if is_one else name, self.event.worker_id or "")

    @property
    def by(self) -> Name | None:
        """The worker or the user that made the change."""
        by, host = self.text("by"), self.text("by_host")
        if not by:
            return None
        return self.other_worker(by, host) if host else Name("user", by)

    def other_worker(self, worker_id: str, host: str) -> Name:
        """Return the name of another worker than that of the event: its host, or its id if both are on one host."""
        return Name("worker", worker_id if host == self.event.subject and worker_id else host, worker_id)

    @property
    def name(self) -> str:
        return self.text("name") or self.event.subject

    def jobs(self, number: int) -> str:
        return ngettext("%(number)s job", "%(number)s jobs", number) % {"number": self.style.number(number)}

    def queues(self, number: int) -> str:
        return ngettext("%(number)s queue", "%(number)s queues", number) % {"number": self.style.number(number)}
