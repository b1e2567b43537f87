"""``CronItem``: a recurring task, that is the times at which it is due and the job that it adds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.patterns import parse_pattern
from django_graphile_worker.crontab.times import (
    load_zone,
    matcher_times,
    parse_time_phrase,
    pattern_times,
)
from django_graphile_worker.job_flags import LONGEST_KEEP, RUNS_KEPT, crontab_flag
from django_graphile_worker.job_options import JobKeyModeOption, flags_of_recurring

Match = str | Callable[[datetime], bool]
# The search for the next time of a callable calls it for each minute, so it ends after this period.
LOOK_AHEAD = timedelta(days=35)
# To find the next times of a callable, it would have to be called for each minute.
KEEP_OF_CALLABLES = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class CronItem:
    """A recurring task.

    ``match`` is a pattern (``"0 4 * * *"``, ``"@daily"``) or a callable that takes
    the minute as an aware datetime, in the item's time zone, and returns whether
    the item is due. ``identifier`` is the permanent name of the item (default:
    the task's identifier). ``backfill_period`` is how far back missed times are
    backfilled (a timedelta, seconds, or a phrase like ``"2d"``).

    The constructor checks nothing: ``parse_cron_items`` checks items, and raises one
    error with every mistake in them.
    """

    task: str
    match: Match
    payload: Mapping[str, Any] | None = field(default=None, hash=False)
    identifier: str | None = None
    backfill_period: timedelta | float | str = timedelta(0)
    max_attempts: int | None = None
    queue_name: str | None = None
    priority: int | None = None
    job_key: str | None = None
    job_key_mode: JobKeyModeOption | None = None
    flags: Iterable[str] | None = None
    time_zone: str | ZoneInfo | None = None

    def __str__(self) -> str:
        """Return the name and the pattern, for lists and logs."""
        if isinstance(self.match, str):
            return f"{self.name} ({self.match})"
        return f"{self.name} ({getattr(self.match, '__qualname__', type(self.match).__qualname__)})"

    @property
    def name(self) -> str:
        """The identifier; by default the task's."""
        return self.task if self.identifier is None else self.identifier

    @property
    def period(self) -> timedelta:
        """``backfill_period`` as a timedelta."""
        if isinstance(self.backfill_period, str):
            return parse_time_phrase(self.backfill_period)
        if isinstance(self.backfill_period, timedelta):
            return self.backfill_period
        return timedelta(seconds=self.backfill_period)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone that ``match`` is written in; None is UTC."""
        return load_zone(self.time_zone) if isinstance(self.time_zone, str) else self.time_zone


def occurrences(item: CronItem, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the UTC minutes in (after, until] at which an item is due, in order."""
    if not isinstance(item.match, str):
        return matcher_times(item.match, item.zone, after, until)
    times = pattern_times(parse_pattern(item.match), item.zone, after)
    return itertools.takewhile(lambda instant: instant <= until, times)


def upcoming(
    item: CronItem, after: datetime, count: int = 1, *, look_ahead: timedelta = LOOK_AHEAD
) -> tuple[datetime, ...]:
    """Return the next times (UTC) of an item; fewer than ``count`` if a callable is not due within ``look_ahead``."""
    if isinstance(item.match, str):
        times = pattern_times(parse_pattern(item.match), item.zone, after)
    else:
        times = matcher_times(item.match, item.zone, after, after + look_ahead)
    return tuple(itertools.islice(times, count))


def flags_of_run(item: CronItem, tick: datetime) -> list[str]:
    """Return the flags of the job of a tick: those of the item, and the flag that has its outcome recorded."""
    flags = [*(item.flags or ()), *flags_of_recurring(item, tick)]
    if not isinstance(item.match, str):
        return [*flags, crontab_flag(KEEP_OF_CALLABLES)]
    month = tick.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return [*flags, crontab_flag(_keep(item.match, item.zone, month))]


@lru_cache(maxsize=5_000)
def _keep(pattern: str, zone: ZoneInfo | None, month: datetime) -> timedelta:
    # From the beginning of the month on, so that a worker computes it once a month: a tick must not wait for this.
    times = occurrences(CronItem(task="", match=pattern, time_zone=zone), month, month + LONGEST_KEEP)
    found = list(itertools.islice(times, RUNS_KEPT))
    return found[-1] - month if len(found) == RUNS_KEPT else LONGEST_KEEP
