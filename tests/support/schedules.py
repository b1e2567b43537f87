"""Hypothesis strategies for schedules, and a slow implementation of their ticks that tries every minute or second."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from django_graphile_worker.schedules.times import Definition
from tests.support import crontabs

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
