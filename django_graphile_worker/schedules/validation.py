"""Checks the values of a schedule by the same rules as the lines of a crontab, and returns every error by field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.patterns import FIELDS, read_pattern
from django_graphile_worker.crontab.times import LONGEST_PERIOD
from django_graphile_worker.crontab.validation import plain_payload
from django_graphile_worker.job_options import (
    storable_text,
    valid_identifier,
    valid_job_key,
    valid_max_attempts,
    valid_priority,
    valid_queue_name,
    valid_time,
)
from django_graphile_worker.schedules.times import MOMENT, Definition, next_time, zone_of
from django_graphile_worker.schedules.words import EXPECTED_INTERVAL, SHORTEST_INTERVAL, parse_interval
from django_graphile_worker.text import did_you_mean, quoted

# The key of errors that concern several fields; it is Django's, NON_FIELD_ERRORS.
SEVERAL_FIELDS = "__all__"
LONGEST_NAME = 200
MISSED = ("skip", "once", "all")
OVERLAP = ("allow", "skip", "queue")
WHEN = ("cron", "interval", "run_at")

Errors = dict[str, list[str]]


def errors_in(
    values: Mapping[str, Any], *, tasks: Collection[str] | None = None, now: datetime | None = None
) -> Errors:
    """Return the errors of each field, in sentences; an empty dict if there are none.

    ``values`` has the fields of a ``Schedule``. Fields that it lacks are not checked, except that it must say when the
    schedule fires. ``interval`` and ``missed_within`` may be phrases, such as ``every 10 s``. With ``tasks``, the task
    must be one of them. With ``now``, a single time must be later.
    """
    errors: Errors = {}
    for name, check in _CHECKS.items():
        if values.get(name) is not None or (name in values and name in _REQUIRED):
            _note(errors, name, check, values[name])
    _check_task(errors, values, tasks)
    _check_when(errors, values)
    _check_missed(errors, values)
    _check_window(errors, values, now)
    return errors


def _note(errors: Errors, name: str, check: Callable[[Any], object], value: object) -> None:
    try:
        check(value)
    except (ValueError, TypeError) as error:
        errors.setdefault(name, []).append(str(error).removeprefix(f"{name}: "))


def _cron(value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"expected a cron line like '0 9 * * 1-5', got {quoted(value)}.")
    words = value.split()
    if words and words[0].lower() in {"every", "@every"}:
        raise ValueError(f"{quoted(value)} is an interval, not a cron line: give it as interval.")
    collector = MistakeCollector("cron line")
    read_pattern(value, collector, Position(column=1))
    if collector.mistakes:
        hint = " Cron lines have no seconds: use an interval." if len(words) == len(FIELDS) + 1 else ""
        raise ValueError("; ".join(str(error) for error in collector.mistakes) + f".{hint}")


def _interval(value: object) -> timedelta:
    if isinstance(value, str):
        return parse_interval(value)
    if not isinstance(value, timedelta):
        raise ValueError(f"expected a timedelta, or {EXPECTED_INTERVAL}, got {quoted(value)}.")
    if not SHORTEST_INTERVAL <= value <= LONGEST_PERIOD:
        raise ValueError(f"expected an interval from 1 second to 100 years, got {value}.")
    return value


def _aware(value: object) -> None:
    """Accept any aware time: a pause without an end lasts until the year 9999."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(f"expected a time with a time zone, got {quoted(value)}.")


def _time(value: object) -> None:
    _aware(value)
    try:
        valid_time("", value)
    except ValueError as error:
        raise ValueError(str(error).removeprefix(": ")) from None


def _time_zone(value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the name of an IANA time zone, like 'Europe/Paris', got {quoted(value)}.")
    try:
        zone_of(value)
    except ValueError as error:
        raise ValueError(f"expected {error}, got {quoted(value)}.") from None


def _payload(value: object) -> None:
    try:
        plain_payload(value)
    except ValueError as error:
        raise ValueError(f"expected {error}, got {quoted(value)}.") from None


def _choice(choices: tuple[str, ...]) -> Callable[[object], None]:
    def check(value: object) -> None:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}, got {quoted(value)}.")

    return check


def _description(value: object) -> None:
    if value != "":
        storable_text("description", value, None)


def _name(value: object) -> None:
    storable_text("name", value, LONGEST_NAME)


_CHECKS: dict[str, Callable[[Any], object]] = {
    "name": _name,
    "task": valid_identifier,
    "payload": _payload,
    "cron": _cron,
    "interval": _interval,
    "run_at": _time,
    "time_zone": _time_zone,
    "starts_at": _time,
    "ends_at": _time,
    "queue_name": valid_queue_name,
    "priority": valid_priority,
    "max_attempts": valid_max_attempts,
    "job_key": valid_job_key,
    "missed": _choice(MISSED),
    "missed_within": _interval,
    "overlap": _choice(OVERLAP),
    "paused_until": _aware,
    "description": _description,
}
_REQUIRED = frozenset({"name", "task", "payload", "time_zone", "missed", "overlap", "description"})


def _check_task(errors: Errors, values: Mapping[str, Any], tasks: Collection[str] | None) -> None:
    task = values.get("task")
    if tasks is None or task is None or task in tasks or "task" in errors:
        return
    suggestion = did_you_mean(task, tasks) or "Define it with @task in a module that the project loads."
    errors["task"] = [f"this project has no task {quoted(task)}. {suggestion}"]


def _check_when(errors: Errors, values: Mapping[str, Any]) -> None:
    given = [name for name in WHEN if values.get(name) is not None]
    if not given:
        text = "give one of cron, interval and run_at: it says when the schedule fires."
        errors.setdefault(SEVERAL_FIELDS, []).append(text)
    elif len(given) > 1:
        text = f"give only one of {' and '.join(given)}, and leave the others empty."
        errors.setdefault(SEVERAL_FIELDS, []).append(text)


def _check_missed(errors: Errors, values: Mapping[str, Any]) -> None:
    missed, within = values.get("missed"), values.get("missed_within")
    if missed == "all" and within is None:
        errors["missed_within"] = ["say how far back missed times are fired, like '2 days'."]
    elif missed != "all" and within is not None and "missed_within" not in errors:
        text = f"{quoted(within)} counts only if all missed times are fired: set missed to 'all', or leave it empty."
        errors["missed_within"] = [text]


def _check_window(errors: Errors, values: Mapping[str, Any], now: datetime | None) -> None:
    """Check the times against each other, once each is a time."""
    if errors.keys() & {*WHEN, "starts_at", "ends_at", "time_zone", SEVERAL_FIELDS}:
        return
    run_at, starts_at, ends_at = (values.get(name) for name in ("run_at", "starts_at", "ends_at"))
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        errors["ends_at"] = [f"{ends_at} is not later than starts_at ({starts_at})."]
    elif run_at is not None and now is not None and run_at <= now:
        errors["run_at"] = [f"{run_at} is past. To run the task now, add a job."]
    elif next_time(_definition(values), max(starts_at or _LONG_AGO, now or _LONG_AGO) - MOMENT) is None:
        _note_never(errors, run_at, ends_at)


def _note_never(errors: Errors, run_at: datetime | None, ends_at: datetime | None) -> None:
    if run_at is not None:
        text = f"{run_at} is before starts_at or not before ends_at: it would never fire."
        errors["run_at"] = [text]
    else:
        text = f"{ends_at} is not later than the first time of the schedule: it would never fire."
        errors["ends_at"] = [text]


def _definition(values: Mapping[str, Any]) -> Definition:
    interval = values.get("interval")
    return Definition(
        cron=values.get("cron"),
        interval=None if interval is None else _interval(interval),
        run_at=values.get("run_at"),
        time_zone=values.get("time_zone") or "UTC",
        starts_at=values.get("starts_at"),
        ends_at=values.get("ends_at"),
    )


_LONG_AGO = datetime.fromisoformat("0002-01-01T00:00:00+00:00")
