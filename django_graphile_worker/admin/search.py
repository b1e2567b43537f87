"""The search box: `task:send_email queue:eu "connection reset"` to criteria, and back."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from django_graphile_worker.admin import error_summary
from django_graphile_worker.crontab.time_phrases import parse_time_phrase
from django_graphile_worker.jobs import LARGEST_PRIORITY, SMALLEST_PRIORITY
from django_graphile_worker.redaction import is_secret, redact_text
from django_graphile_worker.sql.inspection.criteria import Criteria

LONGEST_QUERY = 2_000
MOST_CHIPS = 30
LARGEST_ID = 2**63 - 1

_TOKEN = re.compile(r'(?:(?P<name>[a-z_]+(?:\.[^\s:"]+)?):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))')
_PRIORITY = re.compile(r"(-?\d{1,5})(?:\.\.(-?\d{1,5}))?")


EVERYTHING = Criteria()


class SearchTerm(NamedTuple):
    """One condition of a query: `task:send_email`."""

    name: str
    value: str

    def __str__(self) -> str:
        is_plain = self.value and not re.search(r'[\s"\\]', self.value)
        value = self.value if is_plain else '"' + re.sub(r'(["\\])', r"\\\1", self.value) + '"'
        return f"{self.name}:{value}"


@dataclass(frozen=True, slots=True)
class Query:
    """A query that was read: its chips, what they ask for, and what was wrong with the others."""

    chips: tuple[SearchTerm, ...] = ()
    criteria: Criteria = EVERYTHING
    mistakes: tuple[str, ...] = ()
    # The words that nothing could be made of, as they were written.
    unread: tuple[str, ...] = ()

    def __str__(self) -> str:
        return join(self.chips)


def join(chips: Sequence[SearchTerm]) -> str:
    return " ".join(map(str, chips))


class Meaning(NamedTuple):
    """What a word without a name in front of it may stand for."""

    is_task: bool = False
    is_queue: bool = False
    is_key: bool = False


def read(
    text: str,
    *,
    sees_payloads: bool,
    known_tasks: Sequence[str] = (),
    meaning: Callable[[str], Meaning] = lambda word: Meaning(),
) -> Query:
    """Read a query. What cannot be understood is told, and the rest is used."""
    words = list(_TOKEN.finditer(text[:LONGEST_QUERY].replace("\x00", "")))
    excess = tuple(found[0] for found in words[MOST_CHIPS:])
    query = Query(mistakes=tuple(_excess(text, len(words))), unread=excess)
    for found in words[:MOST_CHIPS]:
        quoted = found["quoted"]
        value = found["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        chip = SearchTerm(found["name"], value) if found["name"] else _bare(value, meaning)
        try:
            criteria = _apply(chip, query.criteria, sees_payloads, known_tasks)
        except ValueError as error:
            mistakes, unread = (*query.mistakes, f"{chip}: {error}"), (*query.unread, found[0])
            query = replace(query, mistakes=mistakes, unread=unread)
        else:
            query = replace(query, chips=(*query.chips, chip), criteria=criteria)
    return query


def _excess(text: str, number: int) -> Iterator[str]:
    """What is left unread must be told: a query without it finds more than was asked for."""
    if len(text) > LONGEST_QUERY:
        yield _("expected at most %(most)s characters, got %(got)s") % {"most": LONGEST_QUERY, "got": len(text)}
    if number > MOST_CHIPS:
        yield _("expected at most %(most)s conditions, got %(got)s") % {"most": MOST_CHIPS, "got": number}


def _bare(word: str, meaning: Callable[[str], Meaning]) -> SearchTerm:
    if word.isascii() and word.isdigit():
        return SearchTerm("id", word)
    known = meaning(word)
    if known.is_task or "*" in word:
        return SearchTerm("task", word)
    return SearchTerm("queue" if known.is_queue else "key" if known.is_key else "error", word)


def _apply(chip: SearchTerm, criteria: Criteria, sees_payloads: bool, known_tasks: Sequence[str]) -> Criteria:
    name, value = chip
    if not value:
        raise ValueError(_("expected a value"))
    if name.startswith("payload."):
        return _payload(name, value, criteria, sees_payloads)
    if not sees_payloads and (name == "error" or (name == "exception" and redact_text(value) != value)):
        # Whoever can try texts until one is found can read what the page hides.
        raise ValueError(_("the text of errors is hidden from you; exception: finds their names"))
    reader = READERS.get(name)
    if reader is None:
        expected = ", ".join(f"{each}:" for each in [*READERS, "payload.path"])
        raise ValueError(_("expected one of %(names)s") % {"names": expected})
    if name == "task" and "*" in value:
        # Nothing that matches must find nothing, not everything.
        matching = tuple(task for task in known_tasks if fnmatch.fnmatchcase(task, value)) or (value,)
        return replace(criteria, tasks=criteria.tasks + matching)
    return reader(criteria, value)


def _texts(field: str) -> Callable[[Criteria, str], Criteria]:
    def read_text(criteria: Criteria, value: str) -> Criteria:
        changes: dict[str, Any] = {field: (*getattr(criteria, field), value)}
        return replace(criteria, **changes)

    return read_text


def _exception(criteria: Criteria, value: str) -> Criteria:
    return replace(criteria, error_names=criteria.error_names + error_summary.paths_of(value))


def _id(criteria: Criteria, value: str) -> Criteria:
    numbers = tuple(_whole(each) for each in value.split(","))
    return replace(criteria, ids=criteria.ids + numbers)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= LARGEST_ID):
        raise ValueError(_("expected a job's id"))
    return int(text)


def _priority(criteria: Criteria, value: str) -> Criteria:
    found = _PRIORITY.fullmatch(value)
    if not found:
        raise ValueError(_("expected a number, or two like 0..10"))
    low, high = int(found[1]), int(found[2] or found[1])
    if not (SMALLEST_PRIORITY <= low <= LARGEST_PRIORITY and SMALLEST_PRIORITY <= high <= LARGEST_PRIORITY):
        raise ValueError(_("expected numbers from -32768 to 32767"))
    return replace(criteria, priority=(low, high))


def _times(field: str, direction: int) -> Callable[[Criteria, str], Criteria]:
    def read_times(criteria: Criteria, value: str) -> Criteria:
        changes: dict[str, Any] = {field: _range(value, direction)}
        return replace(criteria, **changes)

    return read_times


def _range(value: str, direction: int) -> tuple[datetime | None, datetime | None]:
    """Either a stretch from now on (or back), or one or two times of the calendar."""
    try:
        period = parse_time_phrase(value) * direction
    except ValueError:
        first, separator, last = value.partition("..")
        return _time(first), _time(last if separator else first, is_end=True)
    now = timezone.now()
    return (now + period, now) if direction < 0 else (now, now + period)


def _time(text: str, *, is_end: bool = False) -> datetime | None:
    if not text:
        return None
    try:
        value, day = parse_datetime(text), parse_date(text)
    except ValueError:
        value = day = None
    if day is not None and "T" not in text:
        value = datetime.combine(day, time.max if is_end else time.min)
    if value is None or not 1 < value.year < 9999:
        raise ValueError(_("expected a time like 2h, 2026-01-31, 2026-01-31T08:00 or 2026-01-01..2026-01-31"))
    return value if timezone.is_aware(value) else timezone.make_aware(value)


def _payload(name: str, value: str, criteria: Criteria, sees_payloads: bool) -> Criteria:
    path = tuple(name.split(".")[1:])
    if not sees_payloads and any(is_secret(step) for step in path):
        # A search would tell what the page hides.
        raise ValueError(_("that part of payloads is hidden from you"))
    return replace(criteria, payload=(*criteria.payload, (path, value)), payload_branches=sees_payloads)


READERS: dict[str, Callable[[Criteria, str], Criteria]] = {
    "id": _id,
    "key": _texts("keys"),
    "task": _texts("tasks"),
    "queue": _texts("queues"),
    "flag": _texts("flags"),
    "priority": _priority,
    "exception": _exception,
    "error": _texts("errors"),
    "worker": _texts("workers"),
    "created": _times("created_at", -1),
    "due": _times("run_at", 1),
}
