"""Translates the periodic tasks of django-celery-beat into the values of schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.patterns import (
    DATE,
    FIELDS,
    HOUR,
    MINUTE,
    MONTH,
    MONTH_NAMES,
    WEEKDAY,
    WEEKDAY_NAMES,
    Field,
    read_field,
    write_field,
)
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.schedules.times import Definition, next_time
from django_graphile_worker.schedules.words import SHORTEST_INTERVAL, interval_text
from django_graphile_worker.text import did_you_mean


class Unsupported(Exception):  # noqa: N818 - it names a result of the import, not an error
    """Raised with the reason why a periodic task cannot be imported."""


KINDS = ("crontab", "interval", "clocked", "solar")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatRow:
    """A row of ``PeriodicTask``. ``kind`` names its schedule, and ``schedule`` is the row of that."""

    name: str
    task: str
    kind: str = ""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    args: str = "[]"
    kwargs: str = "{}"
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    headers: str = "{}"
    priority: int | None = None
    expires: datetime | None = None
    expire_seconds: int | None = None
    is_one_off: bool = False
    start_time: datetime | None = None
    is_enabled: bool = True
    last_run_at: datetime | None = None
    total_run_count: int = 0
    date_changed: datetime | None = None
    description: str = ""

    @property
    def positional(self) -> Any:
        return json.loads(self.args or "[]")

    @property
    def keywords(self) -> Any:
        return json.loads(self.kwargs or "{}")


def beat_row(row: Mapping[str, Any], schedules: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> BeatRow:
    """Return the row of ``PeriodicTask`` with its schedule; older versions of the package lack some columns."""
    kind = next((kind for kind in KINDS if row.get(f"{kind}_id") is not None), "")
    return BeatRow(
        name=row["name"],
        task=row["task"],
        kind=kind,
        schedule=schedules[kind].get(row[f"{kind}_id"], {}) if kind else {},
        args=row.get("args") or "[]",
        kwargs=row.get("kwargs") or "{}",
        queue=row.get("queue") or None,
        exchange=row.get("exchange") or None,
        routing_key=row.get("routing_key") or None,
        headers=row.get("headers") or "{}",
        priority=row.get("priority"),
        expires=as_time(row.get("expires")),
        expire_seconds=row.get("expire_seconds"),
        is_one_off=bool(row.get("one_off")),
        start_time=as_time(row.get("start_time")),
        is_enabled=bool(row["enabled"]),
        last_run_at=as_time(row.get("last_run_at")),
        total_run_count=row.get("total_run_count") or 0,
        date_changed=as_time(row.get("date_changed")),
        description=row.get("description") or "",
    )


def as_time(value: Any) -> datetime | None:
    """Return a time of any database: Django stores UTC where the database knows no time zones."""
    if value is None:
        return None
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time if time.tzinfo else time.replace(tzinfo=UTC)


# What an entry may say beside its task; the values of these go into the schedule as they are.
SCHEDULE_OPTIONS = ("queue_name", "priority", "max_attempts", "job_key")
_ENTRY = ("task", "arguments", "payload", *SCHEDULE_OPTIONS)


@dataclass(frozen=True, slots=True)
class Target:
    """The task of this project, the names of its positional arguments, and what else the table says."""

    task: str
    arguments: tuple[str, ...] = ()
    payload: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


class TaskTable:
    """The entries that were given, and the names that need none. A task whose entry is null is left out."""

    def __init__(self, given: Mapping[str, Target | None], known: Collection[str], used: Collection[str]) -> None:
        """``known`` are the tasks of this project, and ``used`` are all tasks of the rows."""
        self._given = given
        self._known = known
        self._used = set(used)

    def target(self, name: str) -> Target:
        """Return the target of a task of Celery; raise Unsupported if there is none."""
        if name in self._given:
            found = self._given[name]
            if found is None:
                raise Unsupported("the table of tasks says to leave it out")
        else:
            found = Target(self._by_name(name))
        if found.task not in self._known:
            raise Unsupported(f"this project has no task {found.task!r}. {self._way_out(name, found.task)}")
        return found

    def _by_name(self, name: str) -> str:
        """Return the task of the same name, or of the same function name if no other row has that."""
        function = name.rpartition(".")[2]
        if name in self._known or function not in self._known:
            return name
        namesakes = {other for other in self._used if other.rpartition(".")[2] == function}
        return function if namesakes == {name} else name

    def _way_out(self, name: str, task: str) -> str:
        suggestion = did_you_mean(task, self._known) or did_you_mean(task.rpartition(".")[2], self._known)
        way_out = f"Name the task that replaces it: --tasks {name}=..."
        return f"{suggestion} {way_out}" if suggestion else way_out


def read_table(entries: Iterable[str]) -> dict[str, Target | None]:
    """Return the entries of ``--tasks``: each is ``NAME=NAME`` or a JSON file; raise ConfigurationError."""
    table: dict[str, Target | None] = {}
    for entry in entries:
        name, equals, task = entry.partition("=")
        if equals:
            table[name.strip()] = Target(task.strip())
        else:
            table.update(_read_file(Path(entry)))
    return table


def _read_file(path: Path) -> dict[str, Target | None]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f'--tasks: expected NAME=NAME, or a JSON file like {{"proj.tasks.send": "send"}}, '
            f"got {str(path)!r}: {error}."
        ) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"--tasks: expected a JSON object in {str(path)!r}, got {content!r}.")
    return {name: _target(name, entry) for name, entry in content.items()}


def _target(name: str, entry: object) -> Target | None:
    if entry is None or isinstance(entry, str):
        return None if entry is None else Target(entry)
    if not isinstance(entry, dict) or not isinstance(entry.get("task"), str):
        raise ConfigurationError(
            f"--tasks: expected the name of a task, null, or an object with the key 'task' for {name!r}, got {entry!r}."
        )
    for key in entry.keys() - set(_ENTRY):
        raise ConfigurationError(
            f"--tasks: expected keys out of {', '.join(_ENTRY)} for {name!r}, got {key!r}. {did_you_mean(key, _ENTRY)}"
        )
    options = {key: entry[key] for key in SCHEDULE_OPTIONS if key in entry}
    return Target(entry["task"], tuple(entry.get("arguments", ())), entry.get("payload", {}), options)


COLUMNS = {
    "minute": MINUTE,
    "hour": HOUR,
    "day_of_month": DATE,
    "month_of_year": MONTH,
    "day_of_week": WEEKDAY,
}
_PART = re.compile(r"(?:(?P<wildcard>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_NAMES = {name: number for number, name in enumerate(MONTH_NAMES, 1)} | {
    name: number for number, name in enumerate(WEEKDAY_NAMES)
}


def cron_line(row: Mapping[str, Any]) -> str:
    """Return the cron line of a row of ``CrontabSchedule``; raise Unsupported if there is none that means the same."""
    texts = {column: str(row[column]).replace(" ", "") for column in COLUMNS}
    values = {column: _values(column, texts[column], kind) for column, kind in COLUMNS.items()}
    if values["day_of_month"] != DATE.all_values and values["day_of_week"] != WEEKDAY.all_values:
        raise Unsupported(
            f"it fires on days that match both day_of_month {texts['day_of_month']!r} and day_of_week "
            f"{texts['day_of_week']!r}, and a cron line fires on days that match either: use a CronItem with a function"
        )
    fields = zip(COLUMNS, FIELDS, strict=True)
    return " ".join(_written(kind, texts[column], values[column]) for column, kind in fields)


def _written(kind: Field, text: str, values: tuple[int, ...]) -> str:
    """Return the text itself if it means the same in a cron line, else the values."""
    collector = MistakeCollector()
    same = read_field(kind, text, collector, Position()) == values and not len(collector)
    return text if same else write_field(kind, values)


def _values(column: str, text: str, kind: Field) -> tuple[int, ...]:
    """Return the values of a field by the grammar of Celery, which also has ranges that wrap, like ``fri-mon``."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or match["step"] == "0":
            raise Unsupported(f"Celery cannot read {column} {text!r}, so beat never fires it")
        found.update(_part_values(column, match, kind))
    return tuple(sorted(found))


def _part_values(column: str, match: re.Match[str], kind: Field) -> list[int]:
    values = list(kind.all_values)
    if not match["wildcard"]:
        first = _number(column, match["first"], kind)
        last = first if match["last"] is None else _number(column, match["last"], kind)
        wraps = last < first
        values = [value for value in values if (value >= first or value <= last if wraps else first <= value <= last)]
        # A range that wraps counts its steps from its start.
        values = sorted(values, key=lambda value: (value < first, value)) if wraps else values
    return values[:: int(match["step"] or 1)]


def _number(column: str, text: str, kind: Field) -> int:
    number = int(text) if text.isdigit() else _NAMES.get(text[:3].upper())
    if number is None or not kind.smallest <= number <= kind.largest:
        raise Unsupported(f"Celery knows no {column} {text!r}, so beat never fires it")
    return number


@dataclass(frozen=True, slots=True)
class Translation:
    """The values of a schedule, the time from which its interval is counted, and what could not be translated."""

    values: dict[str, Any]
    anchor_at: datetime | None
    notes: tuple[str, ...]
    # A single time that was computed from a recurring schedule: it changes with each import.
    is_computed_time: bool = False


def translate(row: BeatRow, target: Target, *, now: datetime, is_django_task: bool) -> Translation:
    """Return the schedule of a row; raise Unsupported with the reason if there is none."""
    if row.expires is not None and row.expires <= now:
        raise Unsupported(f"it has expired ({_shown(row.expires)})")
    values = {
        "name": row.name,
        "task": target.task,
        "payload": _payload(row, target, is_django_task),
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
