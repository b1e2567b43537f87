"""Turns the terms of a search into criteria. An invalid value raises ValueError."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, time

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from django_graphile_worker.admin import error_summary
from django_graphile_worker.admin.search.name_lookup import NameLookup
from django_graphile_worker.admin.search.search_query import NAMES
from django_graphile_worker.crontab.times import parse_time_phrase
from django_graphile_worker.job_options import LARGEST_MAX_ATTEMPTS, LARGEST_PRIORITY, SMALLEST_PRIORITY
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Bounds, Criteria, State, like_pattern
from django_graphile_worker.text import closest

LARGEST_ID = 2**63 - 1
# A pattern with many wildcards takes long to compare.
MOST_WILDCARDS = 5
# No job has this id.
NOTHING = Criteria(ids=(0,))
# Of several terms with one of these names, a job must match one: it has only one task.
ANY_OF = frozenset({"id", "key", "task", "label", "queue", "worker", "limit", "exception", "state"})

_RANGE = re.compile(r"(?P<first>-?[0-9]{1,5})?(?P<dots>\.\.)?(?P<last>-?[0-9]{1,5})?", re.ASCII)
_COMPARISON = re.compile(r"(?P<operator>[<>]=?)(?P<number>-?[0-9]{1,5})", re.ASCII)

Values = Sequence[str]


def criteria_of(name: str, values: Values, names: NameLookup) -> Criteria:
    """Return the criteria of the values of a condition: of one value, or of several of which a job must match one."""
    for value in values:
        _check(name, value, names)
    if name.startswith("payload."):
        path = tuple(name.split(".")[1:])
        return Criteria(payload=tuple((path, value) for value in values))
    parser = PARSERS.get(name)
    if parser is None:
        raise unknown_name([*NAMES, "payload.path"])
    return parser(values, names)


def _check(name: str, value: str, names: NameLookup) -> None:
    if not value:
        raise ValueError(_("expected a value"))
    if value.count("*") > MOST_WILDCARDS:
        raise ValueError(_("expected at most %(most)s wildcards") % {"most": MOST_WILDCARDS})
    if names.sees_payloads:
        return
    # A user could find out a hidden text by trying texts until one matches.
    if name == "error" or (name == "exception" and redact_text(value) != value):
        raise ValueError(_("the text of errors is hidden from you; use exception: to find errors by their names"))
    # The key of a limit contains values of the payload.
    if name in ("payload", "limit") or name.startswith("payload."):
        raise ValueError(_("payloads are hidden from you"))


def unknown_name(names: Sequence[str]) -> ValueError:
    """Return the error about a term whose name is none of these."""
    expected = ", ".join(f"{each}:" for each in names)
    return ValueError(
        _("expected one of %(names)s; to find a job key with a colon, write key: before it") % {"names": expected}
    )


def _ids(values: Values, names: NameLookup) -> Criteria:
    return Criteria(ids=tuple(job_id(each.removeprefix("#")) for value in values for each in value.split(",")))


def job_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= LARGEST_ID):
        raise ValueError(_("expected the id of a job"))
    return int(text)


def _tasks(values: Values, names: NameLookup) -> Criteria:
    return _named("task", values, names, lambda found: Criteria(tasks=found))


def _queues(values: Values, names: NameLookup) -> Criteria:
    return _named("queue", values, names, lambda found: Criteria(queues=found))


def _keys(values: Values, names: NameLookup) -> Criteria:
    return _named("key", values, names, lambda found: Criteria(keys=found))


def _named(name: str, values: Values, names: NameLookup, make: Callable[[tuple[str, ...]], Criteria]) -> Criteria:
    """Return the criteria of names. Wildcards become the names that match, so that a search can walk along an index."""
    exact = tuple(value for value in values if "*" not in value)
    patterns = [like_pattern(value) for value in values if "*" in value]
    if not patterns:
        return make(exact)
    look = names.match(name, patterns)
    if look.is_complete:
        found = tuple(dict.fromkeys((*exact, *look.names)))
        return make(found) if found else NOTHING
    return Criteria(patterns=((name, (*patterns, *map(like_pattern, exact))),))


def _labels(values: Values, names: NameLookup) -> Criteria:
    return Criteria(tasks=tasks) if (tasks := names.tasks_with_labels(values)) else NOTHING


def _flags(values: Values, names: NameLookup) -> Criteria:
    return Criteria(
        flags=tuple(value for value in values if "*" not in value),
        patterns=tuple(("flag", (like_pattern(value),)) for value in values if "*" in value),
    )


def _workers(values: Values, names: NameLookup) -> Criteria:
    """Return the criteria of the ids of workers, or of the hosts of registered workers."""
    ids = names.workers(values)
    if not any("*" in value for value in values):
        return Criteria(workers=(*values, *ids))
    return Criteria(patterns=(("worker", (*map(like_pattern, values), *map(like_pattern, ids))),))


def _exceptions(values: Values, names: NameLookup) -> Criteria:
    """Return the criteria of the names of errors: whole names, the last parts of dotted names, or wildcards."""
    stored = tuple(name for value in values for name in error_summary.stored_names(value))
    look = names.exceptions(values)
    if look.is_complete or not names.sees_payloads:
        found = tuple(dict.fromkeys((*stored, *look.names)))
        return Criteria(error_names=tuple(name for name in found if "*" not in name) or found)
    ends = [like_pattern(value if "*" in value else f"*.{value}") for value in values]
    return Criteria(patterns=(("exception", (*map(like_pattern, stored), *ends)),))


def _states(values: Values, names: NameLookup) -> Criteria:
    values = [each for value in values for each in value.split(",")]
    known = {state.value: (state,) for state in STATES} | {State.WAITING.value: (State.SCHEDULED, State.RETRYING)}
    for value in values:
        if value not in known:
            close = closest(value, known)
            hint = [_("Did you mean %(name)s?") % {"name": close}] if close else []
            raise ValueError(" ".join([_("expected one of %(names)s.") % {"names": ", ".join(known)}, *hint]))
    return Criteria(states=tuple(dict.fromkeys(state for value in values for state in known[value])))


def _priority(values: Values, names: NameLookup) -> Criteria:
    return Criteria(priority=number_range(values[0], SMALLEST_PRIORITY, LARGEST_PRIORITY))


def _attempts(values: Values, names: NameLookup) -> Criteria:
    return Criteria(attempts=number_range(values[0], 0, LARGEST_MAX_ATTEMPTS))


def number_range(value: str, smallest: int, largest: int) -> Bounds:
    """Return the bounds of a number, a comparison like ``>3``, or a range like ``2..5``."""
    if compared := _COMPARISON.fullmatch(value):
        number = _number(compared["number"], smallest, largest)
        return {
            ">": (number + 1, None), ">=": (number, None), "<": (None, number - 1), "<=": (None, number),
        }[compared["operator"]]  # fmt: skip
    found = _RANGE.fullmatch(value)
    if not found or not (found["first"] or found["last"]) or (found["last"] and not found["dots"]):
        raise ValueError(_("expected a number, a comparison like >3, or a range like 0..10"))
    low = _number(found["first"], smallest, largest) if found["first"] else None
    high = _number(found["last"], smallest, largest) if found["last"] else None
    return (low, high) if found["dots"] else (low, low)


def _number(text: str, smallest: int, largest: int) -> int:
    if not smallest <= int(text) <= largest:
        values = {"smallest": smallest, "largest": largest}
        raise ValueError(_("expected numbers from %(smallest)s to %(largest)s") % values)
    return int(text)


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


PARSERS: dict[str, Callable[[Values, NameLookup], Criteria]] = {
    "id": _ids,
    "key": _keys,
    "task": _tasks,
    "label": _labels,
    "queue": _queues,
    "flag": _flags,
    "state": _states,
    "priority": _priority,
    "attempts": _attempts,
    "exception": _exceptions,
    "error": lambda values, names: Criteria(errors=tuple(values)),
    "payload": lambda values, names: Criteria(payload_texts=tuple(values)),
    "worker": _workers,
    "limit": lambda values, names: Criteria(patterns=(("limit", tuple(map(like_pattern, values))),)),
    "created": lambda values, names: Criteria(created_at=time_range(values[0], -1)),
    "due": lambda values, names: Criteria(run_at=time_range(values[0], 1)),
}
