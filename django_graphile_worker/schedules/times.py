"""When a schedule is due (``Definition``), its ticks, and which of those up to now get a job (``decide_ticks``)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.patterns import parse_pattern
from django_graphile_worker.crontab.times import load_zone, pattern_times

# The resolution of times, here and in PostgreSQL.
MOMENT = timedelta(microseconds=1)
# A tick that is later than this is missed.
ON_TIME = timedelta(seconds=60)
# How many ticks a decision fires at most. What remains is left to the next decision.
MAX_TICKS = 200
# Ticks that are given up are counted up to this number: a minutely schedule has half a million in a year.
MAX_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Definition:
    """When a schedule is due: exactly one of ``cron``, ``interval`` and ``run_at`` is given, and all times are aware.

    ``anchor_at`` is the time from which an interval is counted. A schedule that is not saved yet has none: it is
    counted from ``starts_at``, or from the time after which its times are asked for.
    """

    cron: str | None = None
    interval: timedelta | None = None
    run_at: datetime | None = None
    time_zone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    anchor_at: datetime | None = None
    # The times before changes, oldest first, as far as their ticks were not handled; then, the time after which the
    # times of this definition count.
    former: tuple[Former, ...] = ()
    counts_from: datetime | None = None

    @classmethod
    def of(cls, row: object) -> Definition:
        """Return the definition of anything that has attributes of the same names, such as a ``Schedule``."""
        values: dict[str, Any] = {name: getattr(row, name) for name in _NAMES}
        return cls(**values)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of the cron line; None is UTC, whose times are computed in half the time."""
        return zone_of(self.time_zone)


@dataclass(frozen=True, slots=True)
class Former:
    """The times that a schedule had before a change: they count for ticks with ``after < tick <= until``."""

    definition: Definition
    after: datetime
    until: datetime


_NAMES = tuple(each.name for each in fields(Definition) if each.name not in {"former", "counts_from"})


# ZoneInfo itself keeps only eight zones, and reads the file of any other zone again.
@functools.lru_cache(maxsize=1_000)
def zone_of(key: str) -> ZoneInfo | None:
    """Return a time zone, or None for UTC; raise ValueError with what was expected."""
    return None if key == "UTC" else load_zone(key)


def next_time(definition: Definition, after: datetime) -> datetime | None:
    """Return the first tick later than ``after``, or None if there is none."""
    return next(times_after(definition, after), None)


def next_times(definition: Definition, after: datetime, number: int) -> tuple[datetime, ...]:
    """Return the first ticks later than ``after``; fewer than ``number`` if the schedule ends."""
    return tuple(itertools.islice(times_after(definition, after), number))


def first_time(
    definition: Definition, *, counts_from: datetime, paused_until: datetime | None = None
) -> datetime | None:
    """Return the first tick later than ``counts_from`` and not before the end of a pause, or None."""
    after = counts_from if paused_until is None else max(counts_from, paused_until - MOMENT)
    return next_time(definition, after)


def latest_time(definition: Definition, after: datetime, until: datetime) -> datetime | None:
    """Return the last tick that is later than ``after`` and not later than ``until``, or None."""
    latest, bound = next_time(definition, after), until
    if latest is None or latest > bound:
        return None
    # No tick is later than the bound. Each turn halves the time between the two.
    while (following := next_time(definition, latest)) is not None and following <= bound:
        middle = latest + (bound - latest) / 2
        candidate = next_time(definition, middle)
        if candidate is not None and candidate <= bound:
            latest = candidate
        else:
            latest, bound = following, middle
    return latest


def times_after(definition: Definition, after: datetime) -> Iterator[datetime]:
    """Return the ticks later than ``after``: those of former times, then those of the definition."""
    if not definition.former:
        return _own_times(definition, after)
    own = _own_times(definition, max(after, definition.counts_from or after))
    return itertools.chain(*(_former_times(former, after) for former in definition.former), own)


def _former_times(former: Former, after: datetime) -> Iterator[datetime]:
    try:
        times = _own_times(former.definition, max(after, former.after))
    except ValueError:
        # It was written without any check, and corrected.
        return iter(())
    return itertools.takewhile(lambda tick: tick <= former.until, times)


def _own_times(definition: Definition, after: datetime) -> Iterator[datetime]:
    """Yield the ticks later than ``after`` and within ``starts_at <= tick < ends_at``."""
    # Python compares times of the same zone by their wall clocks, which is wrong at time changes.
    after = after.astimezone(UTC)
    if definition.starts_at is not None:
        # A tick at starts_at is within the schedule.
        after = max(after, definition.starts_at.astimezone(UTC) - MOMENT)
    if definition.cron is not None:
        times = pattern_times(parse_pattern(definition.cron), definition.zone, after)
    elif definition.interval is not None:
        times = _interval_times(definition, definition.interval, after)
    else:
        times = _single_time(definition, after)
    if definition.ends_at is None:
        return times
    ends_at = definition.ends_at.astimezone(UTC)
    return itertools.takewhile(lambda tick: tick < ends_at, times)


def _interval_times(definition: Definition, interval: timedelta, after: datetime) -> Iterator[datetime]:
    """Yield ``anchor + number * interval`` in elapsed time: neither late ticks nor time changes move later ticks."""
    anchor = (definition.anchor_at or definition.starts_at or after).astimezone(UTC)
    # A schedule without a start is due for the first time one interval after it was made.
    first = 1 if definition.starts_at is None else 0
    number = max(first, (after - anchor) // interval + 1)
    try:
        tick = anchor + number * interval
        while True:
            yield tick
            tick += interval
    except OverflowError:
        return


def _single_time(definition: Definition, after: datetime) -> Iterator[datetime]:
    if definition.run_at is not None and definition.run_at.astimezone(UTC) > after:
        yield definition.run_at.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that gets a job."""

    at: datetime
    is_late: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The ticks that get no job because it is too late for them; ``number`` is exact up to ``MAX_COUNTED``."""

    number: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class TickDecision:
    """What to do with the ticks up to now.

    ``next_at`` is the first tick that the decision leaves; it is not later than now if ``MAX_TICKS`` were not enough,
    and None if there is no other tick.
    """

    ticks: tuple[Tick, ...]
    next_at: datetime | None
    given_up: GivenUp | None = None


def decide_ticks(
    definition: Definition,
    *,
    first: datetime,
    now: datetime,
    missed: str = "skip",
    missed_within: timedelta | None = None,
    max_ticks: int = MAX_TICKS,
) -> TickDecision:
    """Decide about the ticks from ``first`` to ``now``, both included; at most ``max_ticks`` of them get jobs.

    ``first`` is the time that was stored as the next tick. If the rules of its time zone have changed since, it is no
    tick any more, and the ticks by the new rules are decided about instead.
    """
    before = first.astimezone(UTC) - MOMENT
    now = now.astimezone(UTC)
    if missed == "all":
        return _all_within(definition, before, now, max(missed_within or ON_TIME, ON_TIME), max_ticks)
    return _latest(definition, before, now, is_any_age=missed == "once")


def _all_within(
    definition: Definition, before: datetime, now: datetime, period: timedelta, max_ticks: int
) -> TickDecision:
    """Fire all ticks that are not older than a period, oldest first."""
    kept_after = max(before, now - period - MOMENT)
    found = tuple(itertools.islice(times_after(definition, kept_after), max_ticks + 1))
    due = [tick for tick in found if tick <= now]
    fired = due[:max_ticks]
    rest = found[len(fired) :]
    next_at = rest[0] if rest else None
    return TickDecision(_ticks(fired, now), next_at, _given_up(definition, before, kept_after))


def _latest(definition: Definition, before: datetime, now: datetime, *, is_any_age: bool) -> TickDecision:
    """Fire at most the latest tick."""
    latest = latest_time(definition, before, now)
    next_at = next_time(definition, now)
    if latest is None:
        return TickDecision((), next_at)
    if is_any_age or now - latest <= ON_TIME:
        return TickDecision(_ticks([latest], now), next_at, _given_up(definition, before, latest - MOMENT))
    return TickDecision((), next_at, _given_up(definition, before, latest))


def _ticks(times: list[datetime], now: datetime) -> tuple[Tick, ...]:
    return tuple(Tick(time, now - time > ON_TIME) for time in times)


def _given_up(definition: Definition, after: datetime, until: datetime) -> GivenUp | None:
    """Return what there is to say about the ticks that are later than ``after`` and not later than ``until``."""
    first = next_time(definition, after)
    if first is None or first > until:
        return None
    last = latest_time(definition, after, until) or first
    if definition.interval is not None and not definition.former:
        return GivenUp(min((last - first) // definition.interval + 1, MAX_COUNTED), first, last)
    counted = itertools.takewhile(lambda tick: tick <= until, times_after(definition, after))
    return GivenUp(sum(1 for _ in itertools.islice(counted, MAX_COUNTED)), first, last)
