"""Decides which of the ticks up to now get a job, by what the schedule says about missed times."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django_graphile_worker.schedules.definition import Definition
from django_graphile_worker.schedules.times import MOMENT, latest_time, next_time, times_after

# A tick that is later than this is missed.
ON_TIME = timedelta(seconds=60)
# How many ticks a decision fires at most. What remains is left to the next decision.
MOST_TICKS = 200
# Ticks that are given up are counted up to this number: a minutely schedule has half a million in a year.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that gets a job."""

    at: datetime
    is_late: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The ticks that get no job because it is too late for them; ``number`` is exact up to ``MOST_COUNTED``."""

    number: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the ticks up to now.

    ``next_at`` is the first tick that the decision leaves; it is not later than now if ``MOST_TICKS`` were not enough,
    and None if there is no other tick.
    """

    ticks: tuple[Tick, ...]
    next_at: datetime | None
    given_up: GivenUp | None = None


def decide(
    definition: Definition,
    *,
    first: datetime,
    now: datetime,
    missed: str = "skip",
    missed_within: timedelta | None = None,
) -> Decision:
    """Decide about the ticks from ``first`` to ``now``, both included.

    ``first`` is the time that was stored as the next tick. If the rules of its time zone have changed since, it is no
    tick any more, and the ticks by the new rules are decided about instead.
    """
    before = first.astimezone(UTC) - MOMENT
    now = now.astimezone(UTC)
    if missed == "all":
        return _all_within(definition, before, now, max(missed_within or ON_TIME, ON_TIME))
    return _latest(definition, before, now, is_any_age=missed == "once")


def _all_within(definition: Definition, before: datetime, now: datetime, period: timedelta) -> Decision:
    """Fire all ticks that are not older than a period, oldest first."""
    kept_after = max(before, now - period - MOMENT)
    found = tuple(itertools.islice(times_after(definition, kept_after), MOST_TICKS + 1))
    due = [tick for tick in found if tick <= now]
    fired = due[:MOST_TICKS]
    rest = found[len(fired) :]
    next_at = rest[0] if rest else None
    return Decision(_ticks(fired, now), next_at, _given_up(definition, before, kept_after))


def _latest(definition: Definition, before: datetime, now: datetime, *, is_any_age: bool) -> Decision:
    """Fire at most the latest tick."""
    latest = latest_time(definition, before, now)
    next_at = next_time(definition, now)
    if latest is None:
        return Decision((), next_at)
    if is_any_age or now - latest <= ON_TIME:
        return Decision(_ticks([latest], now), next_at, _given_up(definition, before, latest - MOMENT))
    return Decision((), next_at, _given_up(definition, before, latest))


def _ticks(times: list[datetime], now: datetime) -> tuple[Tick, ...]:
    return tuple(Tick(time, now - time > ON_TIME) for time in times)


def _given_up(definition: Definition, after: datetime, until: datetime) -> GivenUp | None:
    """Return what there is to say about the ticks that are later than ``after`` and not later than ``until``."""
    first = next_time(definition, after)
    if first is None or first > until:
        return None
    last = latest_time(definition, after, until) or first
    if definition.interval is not None and not definition.former:
        return GivenUp(min((last - first) // definition.interval + 1, MOST_COUNTED), first, last)
    counted = itertools.takewhile(lambda tick: tick <= until, times_after(definition, after))
    return GivenUp(sum(1 for _ in itertools.islice(counted, MOST_COUNTED)), first, last)
