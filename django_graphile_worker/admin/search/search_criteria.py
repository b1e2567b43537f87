"""Turns each search term, a name and a value, into criteria. An invalid value raises ValueError."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, time
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from django_graphile_worker.admin import error_summary
from django_graphile_worker.crontab.time_phrases import parse_time_phrase
from django_graphile_worker.job_options import LARGEST_PRIORITY, SMALLEST_PRIORITY
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.inspection.criteria import Criteria
from django_graphile_worker.task_labels import SEPARATOR, label_of

LARGEST_ID = 2**63 - 1

_PRIORITY = re.compile(r"(-?\d{1,5})(?:\.\.(-?\d{1,5}))?")


def add_term(criteria: Criteria, name: str, value: str, *, sees_payloads: bool, known_tasks: Sequence[str]) -> Criteria:
    """Return the criteria with another condition."""
    if not value:
        raise ValueError(_("expected a value"))
    if name.startswith("payload."):
        return _payload(name, value, criteria, sees_payloads)
    if not sees_payloads and (name == "error" or (name == "exception" and redact_text(value) != value)):
        # A user could find out a hidden text by trying texts until one matches.
        raise ValueError(_("the text of errors is hidden from you; use exception: to find errors by their names"))
    parser = PARSERS.get(name)
    if parser is None:
        raise unknown_name([*PARSERS, "payload.path"])
    if name == "task" and "*" in value:
        # A pattern without a match is used as a name, which no job has; without a condition, every job would match.
        matching = tuple(task for task in known_tasks if fnmatch.fnmatchcase(task, value)) or (value,)
        return replace(criteria, tasks=criteria.tasks + matching)
    return parser(criteria, value)


def unknown_name(names: Sequence[str]) -> ValueError:
    """Return the error about a term whose name is none of these."""
    expected = ", ".join(f"{each}:" for each in names)
    return ValueError(
        _("expected one of %(names)s; to find a job key with a colon, write key: before it") % {"names": expected}
    )


def _texts(field: str) -> Callable[[Criteria, str], Criteria]:
    def parse(criteria: Criteria, value: str) -> Criteria:
        changes: dict[str, Any] = {field: (*getattr(criteria, field), value)}
        return replace(criteria, **changes)

    return parse


def _label(criteria: Criteria, value: str) -> Criteria:
    """Leave the criteria as they are: ``limited_to_labels`` applies all labels to the tasks of the whole search."""
    return criteria


def limited_to_labels(criteria: Criteria, labels: Sequence[str], known_tasks: Sequence[str]) -> Criteria:
    """Return the criteria with only those tasks that have one of the labels."""
    if not labels:
        return criteria
    tasks = tuple(task for task in criteria.tasks or known_tasks if label_of(task) in labels)
    # If no task has such a label, a name that no job has: without a condition, every job would match.
    return replace(criteria, tasks=tasks or (f"{SEPARATOR}{labels[0]}",))


def _exception(criteria: Criteria, value: str) -> Criteria:
    return replace(criteria, error_names=criteria.error_names + error_summary.stored_names(value))


def _id(criteria: Criteria, value: str) -> Criteria:
    numbers = tuple(job_id(each) for each in value.split(","))
    return replace(criteria, ids=criteria.ids + numbers)


def job_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= LARGEST_ID):
        raise ValueError(_("expected the id of a job"))
    return int(text)


def _priority(criteria: Criteria, value: str) -> Criteria:
    found = _PRIORITY.fullmatch(value)
    if not found:
        raise ValueError(_("expected a number, or a range like 0..10"))
    low, high = int(found[1]), int(found[2] or found[1])
    if not (SMALLEST_PRIORITY <= low <= LARGEST_PRIORITY and SMALLEST_PRIORITY <= high <= LARGEST_PRIORITY):
        raise ValueError(_("expected numbers from -32768 to 32767"))
    return replace(criteria, priority=(low, high))


def _times(field: str, direction: int) -> Callable[[Criteria, str], Criteria]:
    def parse(criteria: Criteria, value: str) -> Criteria:
        changes: dict[str, Any] = {field: time_range(value, direction)}
        return replace(criteria, **changes)

    return parse


def time_range(value: str, direction: int) -> tuple[datetime | None, datetime | None]:
    """Return the range of a duration before or after now, of a date or time, or of two of them."""
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
    if not sees_payloads:
        # A search that finds the job would reveal the hidden value.
        raise ValueError(_("payloads are hidden from you"))
    return replace(criteria, payload=(*criteria.payload, (path, value)), payload_branches=sees_payloads)


PARSERS: dict[str, Callable[[Criteria, str], Criteria]] = {
    "id": _id,
    "key": _texts("keys"),
    "task": _texts("tasks"),
    "label": _label,
    "queue": _texts("queues"),
    "flag": _texts("flags"),
    "priority": _priority,
    "exception": _exception,
    "error": _texts("errors"),
    "worker": _texts("workers"),
    "created": _times("created_at", -1),
    "due": _times("run_at", 1),
}
