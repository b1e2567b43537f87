"""Hypothesis strategies for schedules, a slow implementation of their ticks, and rows of schedules and runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection
from hypothesis import strategies as st

from django_graphile_worker import add_job, conf
from django_graphile_worker.models import Schedule
from django_graphile_worker.run_flags import schedule_flag
from django_graphile_worker.schedules.definition import Definition
from django_graphile_worker.sql.schedules import runs
from tests.support import crontabs
from tests.support.factories import minutes_ago

KEEP = timedelta(days=1)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
# Both hemispheres, half an hour of difference, a skipped date, changes at midnight, and none at all.
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "America/Santiago",
    "Africa/Casablanca", "Pacific/Apia", "Asia/Kathmandu", "UTC",
)  # fmt: skip
# Days with time changes in these zones, and usual days.
DAYS = (
    "2026-03-08", "2026-03-29", "2026-04-04", "2026-04-05", "2026-06-01", "2026-09-05", "2026-09-26", "2026-10-03",
    "2026-10-04", "2026-10-25", "2026-11-01", "2011-12-29",
)  # fmt: skip


def near_changes() -> st.SearchStrategy[datetime]:
    """Generate times within a day of a time change."""
    offsets = st.integers(-86_400, 86_400).map(lambda seconds: timedelta(seconds=seconds))
    days = st.sampled_from(DAYS).map(lambda day: datetime.fromisoformat(day).replace(tzinfo=UTC))
    return st.tuples(days, offsets).map(lambda chosen: chosen[0] + chosen[1])


@st.composite
def cron_definitions(draw: st.DrawFn, after: datetime) -> Definition:
    cron = draw(crontabs.patterns())
    if draw(st.booleans()):
        # Any day, so that ticks near the time changes are frequent.
        cron = " ".join([*parse_fields(cron)[:2], "*", "*", "*"])
    starts_at, ends_at = draw(_window(after))
    return Definition(cron=cron, time_zone=draw(st.sampled_from(ZONES)), starts_at=starts_at, ends_at=ends_at)


@st.composite
def interval_definitions(draw: st.DrawFn, after: datetime) -> Definition:
    starts_at, ends_at = draw(_window(after))
    seconds = draw(st.integers(1, 90) | st.integers(91, 100_000))
    anchor = starts_at or after + timedelta(seconds=draw(st.integers(-200_000, 4_000)))
    return Definition(
        interval=timedelta(seconds=seconds),
        time_zone=draw(st.sampled_from(ZONES)),
        starts_at=starts_at,
        ends_at=ends_at,
        anchor_at=anchor,
    )


@st.composite
def _window(draw: st.DrawFn, after: datetime) -> tuple[datetime | None, datetime | None]:
    offsets = st.none() | st.integers(-100_000, 100_000).map(lambda seconds: after + timedelta(seconds=seconds))
    starts_at, ends_at = draw(offsets), draw(offsets)
    if starts_at and ends_at and ends_at <= starts_at:
        return ends_at, starts_at + SECOND
    return starts_at, ends_at


def parse_fields(cron: str) -> list[str]:
    return (["0", "0", "*", "*", "*"] if cron.startswith("@") else cron.split())[:5]


def slow_ticks(definition: Definition, after: datetime, until: datetime) -> list[datetime]:
    """Return the ticks in (after, until] by trying every minute, or every second for intervals."""
    found = _cron_ticks(definition, after, until) if definition.cron else _interval_ticks(definition, after, until)
    return [tick for tick in found if _is_in_window(definition, tick)]


def _is_in_window(definition: Definition, tick: datetime) -> bool:
    is_started = definition.starts_at is None or tick >= definition.starts_at
    return is_started and (definition.ends_at is None or tick < definition.ends_at)


def _interval_ticks(definition: Definition, after: datetime, until: datetime) -> Iterator[datetime]:
    assert definition.interval is not None
    assert definition.anchor_at is not None
    instant = after + SECOND
    while instant <= until:
        elapsed = int((instant - definition.anchor_at).total_seconds())
        is_first = elapsed == 0 and definition.starts_at is not None
        if is_first or (elapsed > 0 and elapsed % int(definition.interval.total_seconds()) == 0):
            yield instant
        instant += SECOND


def _cron_ticks(definition: Definition, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the minutes by a clock on the wall that is looked at every minute.

    A local minute fires when the clock first shows it. Minutes that the clock jumps over fire when it has jumped.
    """
    assert definition.cron is not None
    zone = ZoneInfo(definition.time_zone)
    instant = after.replace(second=0, microsecond=0) + MINUTE
    # The latest local time that the clock has shown so far; it was set back by no more than a day.
    shown = max((instant - MINUTE * back).astimezone(zone).replace(tzinfo=None) for back in range(1, 26 * 60))
    while instant <= until:
        local = instant.astimezone(zone).replace(tzinfo=None)
        fresh = []
        while shown < local:
            shown += MINUTE
            fresh.append(shown)
        if any(crontabs.oracle(definition.cron, minute) for minute in fresh):
            yield instant
        instant += MINUTE


def make_schedule(name: str = "report", task: str = "report", **values: Any) -> Schedule:
    """Insert a schedule, which is due every hour unless the values say more."""
    if not values.keys() & {"cron", "interval", "run_at"}:
        values["cron"] = "0 * * * *"
    made = Schedule(name=name, task=task, **values)
    made.save_base(force_insert=True)
    made.refresh_from_db()
    return made


def make_run(schedule_id: int, *, job_id: int | None = None, kind: str = "on_time", **columns: Any) -> int:
    """Insert the row of a run as the statement that fires does."""
    row = {"tick": minutes_ago(0), "schedule_id": schedule_id, "job_id": job_id, "kind": kind, **columns}
    return _insert_run(row)


def make_crontab_run(identifier: str, *, job_id: int | None = None, kind: str = "on_time", **columns: Any) -> int:
    """Insert the row of a run of an item of the crontab."""
    row = {"tick": minutes_ago(0), "crontab_identifier": identifier, "job_id": job_id, "kind": kind, **columns}
    return _insert_run(row)


def _insert_run(row: dict[str, Any]) -> int:
    names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    with connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{conf.current().schema}"._private_schedule_runs ({names}) values ({values}) returning id',
            row,
        )
        return int(cursor.fetchone()[0])


def fire(schedule: Schedule, payload: Any = None, *, keep: timedelta = KEEP, **options: Any) -> int:
    """Add the job of a run, and the row of the run; return the id of the job."""
    flags = [*options.pop("flags", ()), schedule_flag(schedule.id, keep)]
    job = add_job(schedule.task, payload or {}, flags=flags, **options)
    make_run(schedule.id, job_id=job.id)
    return job.id


def runs_of(schedule: Schedule, number: int = 20) -> list[runs.Run]:
    """Return the last runs of a schedule, the latest first."""
    with connection.cursor() as cursor:
        return runs.runs_of_schedules(cursor, [schedule.id], schema=conf.current().schema, number=number)[schedule.id]
