"""Translates a periodic task of django-celery-beat into the values of a schedule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.importing.celery_beat.cron_lines import cron_line
from django_graphile_worker.importing.celery_beat.rows import BeatRow, as_time
from django_graphile_worker.importing.celery_beat.task_table import Target
from django_graphile_worker.importing.celery_beat.unsupported import Unsupported
from django_graphile_worker.schedules.times import Definition, next_time
from django_graphile_worker.schedules.words import SHORTEST_INTERVAL, interval_text

IsDjangoTask = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Translation:
    """The values of a schedule, the time from which its interval is counted, and what could not be translated."""

    values: dict[str, Any]
    anchor_at: datetime | None
    notes: tuple[str, ...]
    # A single time that was computed from a recurring schedule: it changes with each import.
    is_computed_time: bool = False


def translate(row: BeatRow, target: Target, *, now: datetime, is_django_task: IsDjangoTask) -> Translation:
    """Return the schedule of a row; raise Unsupported with the reason if there is none."""
    if row.expires is not None and row.expires <= now:
        raise Unsupported(f"it has expired ({_shown(row.expires)})")
    values = {
        "name": row.name,
        "task": target.task,
        "payload": _payload(row, target, is_django_task(target.task)),
        **_when(row),
        "starts_at": row.start_time,
        "ends_at": row.expires,
        # Beat fires a missed time once when it starts again.
        "missed": "once",
        "is_enabled": row.is_enabled,
        "description": row.description,
        **target.options,
    }
    is_computed = row.is_one_off and row.kind != "clocked"
    if row.is_one_off:
        _make_single(row, values, now)
    anchor = None if row.start_time else row.last_run_at or row.date_changed
    return Translation(values, anchor if values["interval"] else None, tuple(_notes(row, target)), is_computed)


def _when(row: BeatRow) -> dict[str, Any]:
    nothing: dict[str, Any] = {"cron": None, "interval": None, "run_at": None, "time_zone": "UTC"}
    if row.kind == "crontab":
        return nothing | {"cron": cron_line(row.schedule), "time_zone": str(row.schedule.get("timezone") or "UTC")}
    if row.kind == "interval":
        return nothing | {"interval": _interval(row)}
    if row.kind == "clocked":
        return nothing | {"run_at": as_time(row.schedule["clocked_time"])}
    if row.kind == "solar":
        place = f"{row.schedule['latitude']}, {row.schedule['longitude']}"
        raise Unsupported(f"solar schedules are not supported ({row.schedule['event']} at {place})")
    raise Unsupported("it has no schedule")


def _interval(row: BeatRow) -> timedelta:
    period, every = row.schedule["period"], row.schedule["every"]
    try:
        interval = timedelta(**{period: every})
    except (TypeError, OverflowError):
        raise Unsupported(f"its interval is {every} {period}") from None
    if interval < SHORTEST_INTERVAL:
        raise Unsupported(f"its interval is {every} {period}, and the shortest interval is 1 second")
    return interval


def _make_single(row: BeatRow, values: dict[str, Any], now: datetime) -> None:
    """Replace a schedule that fires once by the time at which it fires."""
    if row.total_run_count:
        raise Unsupported("it was to run once, and has run")
    if row.kind == "clocked":
        if values["run_at"] <= now:
            raise Unsupported(f"its time has passed ({_shown(values['run_at'])})")
        return
    names = ("cron", "interval", "time_zone", "starts_at", "ends_at")
    anchor = row.start_time or row.last_run_at or row.date_changed or now
    run_at = next_time(Definition(**{name: values[name] for name in names}, anchor_at=anchor), now)
    if run_at is None:
        raise Unsupported("it was to run once, and its time has passed")
    values.update(cron=None, interval=None, run_at=run_at)


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S %Z}"


def _payload(row: BeatRow, target: Target, is_django_task: bool) -> dict[str, Any]:
    args, kwargs = _arguments(row)
    if is_django_task:
        return {"args": args, "kwargs": kwargs | dict(target.payload)}
    if len(args) > len(target.arguments):
        raise Unsupported(
            f"it has positional arguments ({json.dumps(args)}) and a payload has names: give their names in a file "
            f'--tasks, {{{json.dumps(row.task)}: {{"task": {json.dumps(target.task)}, "arguments": [...]}}}}'
        )
    # Fewer arguments than names: the rest had defaults.
    return dict(target.payload) | dict(zip(target.arguments, args, strict=False)) | kwargs


def _arguments(row: BeatRow) -> tuple[list[Any], dict[str, Any]]:
    try:
        args, kwargs = row.positional, row.keywords
    except ValueError as error:
        raise Unsupported(f"its arguments are no JSON, so beat disables it ({error})") from None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Unsupported(f"its arguments are no list and no object: {row.args} and {row.kwargs}")
    return args, kwargs


def _notes(row: BeatRow, target: Target) -> list[str]:
    """Return what a schedule cannot express, in sentences."""
    notes = []
    if row.queue and "queue_name" not in target.options:
        notes.append(
            f"queue {row.queue!r} is left out: a queue of Celery is not a named queue, which runs one job at a time"
        )
    if row.priority is not None and "priority" not in target.options:
        notes.append(f"priority {row.priority} is left out: here small numbers come first, and the default is 0")
    if row.expire_seconds is not None:
        period = interval_text(timedelta(seconds=row.expire_seconds))
        notes.append(f"expire_seconds {row.expire_seconds} is left out: use @task(expires=...) ({period})")
    if row.exchange or row.routing_key:
        notes.append("exchange and routing_key are left out")
    if row.headers.strip() not in {"", "{}", "null"}:
        notes.append(f"headers are left out: {row.headers}")
    if row.is_one_off and row.kind != "clocked":
        notes.append("it runs once, at its next time")
    return notes
