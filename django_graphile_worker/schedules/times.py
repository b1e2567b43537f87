"""Computes the ticks of a schedule: the times at which it is due, in UTC and in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django_graphile_worker.crontab.occurrences import pattern_times
from django_graphile_worker.crontab.patterns import parse_pattern
from django_graphile_worker.schedules.definition import Definition, Former

# The resolution of times, here and in PostgreSQL.
MOMENT = timedelta(microseconds=1)


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
