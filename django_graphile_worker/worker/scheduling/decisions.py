"""Decides what becomes of a schedule, or an item of the crontab, that is due: its jobs, and when it is due next."""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.times import MINUTE, Matcher, floor_minute, matcher_times
from django_graphile_worker.recurring import job_of, job_of_item
from django_graphile_worker.registry import Registry, Task
from django_graphile_worker.schedules.times import (
    MAX_TICKS,
    MOMENT,
    Definition,
    GivenUp,
    Tick,
    TickDecision,
    decide_ticks,
    first_time,
    next_time,
)
from django_graphile_worker.sql.schedules.changes import FOREVER
from django_graphile_worker.sql.schedules.firing import LEFT_TO_OTHERS, Decision, DueItem, DueSchedule
from django_graphile_worker.worker.scheduling.yielding import Refusals
from django_graphile_worker.worker.task_selection import FindTask

logger = logging.getLogger("django_graphile_worker.worker")

# Earlier than any tick.
LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
# The largest total size of the payloads of a decision: a large payload makes up for fewer ticks at once.
MAX_BYTES = 4_000_000
# The time for which a function of the project is called at once, minute by minute, to make up for missed ticks.
FUNCTION_SPAN = timedelta(days=1)
# How many schedules and jobs one statement fires, about: it takes a tenth of a second, for which they are locked.
MAX_AT_ONCE = 400
# Of items of the crontab, whose rows are smaller.
MAX_ITEMS_AT_ONCE = 2_000
# The ticks of an item whose row another session has locked are fired if they are no older than this.
HELD_FOR = timedelta(hours=1)
# Seconds until a task that was not found is looked for again: its module may have failed to load.
TASK_RETRY_AFTER = 30.0


class KnownTasks:
    """The tasks of the project by identifier, whether or not this worker runs them."""

    def __init__(
        self, registry: Registry, find_django_task: FindTask | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._find_django_task = find_django_task
        self._clock = clock
        # When a name that is no task may be looked for again.
        self._retry_at: dict[str, float] = {}

    def get(self, identifier: str) -> Task[Any, Any] | None:
        """Return a task, or None if this project has no such task, or cannot load it."""
        task = self._registry.get(identifier) or self._find(identifier)
        if task is None:
            self._retry_at[identifier] = self._clock() + TASK_RETRY_AFTER
        return task

    def unknown(self) -> list[str]:
        """Return the names that are no tasks of this project, as far as they were looked for."""
        now = self._clock()
        self._retry_at = {name: retry_at for name, retry_at in self._retry_at.items() if retry_at > now}
        return list(self._retry_at)

    def _find(self, identifier: str) -> Task[Any, Any] | None:
        if self._find_django_task is None or identifier in self._retry_at:
            return None
        try:
            return self._find_django_task(identifier)
        except (Exception, SystemExit) as error:
            # The module of a task may raise anything. Workers report it when they look for the tasks of jobs.
            logger.debug("The task %s of a schedule could not be imported: %s", identifier, error)
            return None


def decide_schedule(due: DueSchedule, task: Task[Any, Any] | None, now: datetime) -> Decision | None:
    """Return what becomes of a schedule; None if it is left to workers that know its task.

    Raise what the definition or the task raises: it may have been written without any check.
    """
    if due.paused_until is not None and due.paused_until > now:
        # What was due before the pause waits for its end.
        return Decision(due=due, next_at=_end_of_pause(due), waits=True)
    first = _first_tick(due)
    if first is None or first > now:
        return Decision(due=due, next_at=first)
    if task is None:
        # From its first tick on, every worker sees for how long it has been due.
        return Decision(due=due, next_at=first) if due.next_at is None else _given_up(due, first, now)
    found = decide_ticks(
        due.definition,
        first=first,
        now=now,
        missed=due.missed,
        missed_within=due.missed_within,
        max_ticks=_max_ticks(due.payload),
    )
    jobs = tuple(
        job_of(due, due.definition, task, payload=due.payload, at=tick.at, is_late=tick.is_late) for tick in found.ticks
    )
    return Decision(due=due, jobs=jobs, next_at=found.next_at, missed=found.given_up)


def _end_of_pause(due: DueSchedule) -> datetime | None:
    """Return the first tick after the pause, or its end if earlier ticks wait for it; None if there is none."""
    if due.paused_until == FOREVER:
        return None
    if due.definition.former:
        return due.paused_until
    return first_time(due.definition, counts_from=due.counts_from, paused_until=due.paused_until)


def _first_tick(due: DueSchedule) -> datetime | None:
    """Return the first tick that was not handled."""
    if due.definition.former:
        return next_time(due.definition, due.last_tick or LONG_AGO)
    return due.next_at or first_time(due.definition, counts_from=due.counts_from, paused_until=due.paused_until)


def _given_up(due: DueSchedule, first: datetime, now: datetime) -> Decision | None:
    if first > now - LEFT_TO_OTHERS:
        return None
    found = decide_ticks(due.definition, first=first, now=now)
    missed = found.given_up
    if found.ticks:
        # The latest tick may be on time; a worker that knows the task would have fired those before it.
        last = found.ticks[-1].at
        missed = GivenUp(1, last, last) if missed is None else GivenUp(missed.number + 1, missed.first, last)
    return Decision(due=due, next_at=found.next_at, missed=missed, task_is_unknown=True)


def _max_ticks(payload: str) -> int:
    return max(1, min(MAX_TICKS, MAX_BYTES // len(payload)))


def parts_of(decisions: Iterable[Decision], refusals: Refusals) -> Iterator[list[Decision]]:
    """Divide decisions into parts, by the number of their jobs; each is fired by one statement.

    What could not be fired before is kept apart, and so are schedules whose jobs have keys, which others may have
    locked: one of them would be the failure of its whole part. The jobs of the crontab are added in its order.
    """
    parts: list[list[Decision]] = [[], [], []]
    sizes = [0, 0, 0]
    for decision in decisions:
        is_item = isinstance(decision.due, DueItem)
        has_key = not is_item and any(job.job_key is not None for job in decision.jobs)
        kind = 2 if decision.due.key in refusals else int(has_key)
        parts[kind].append(decision)
        sizes[kind] += max(len(decision.jobs), 1)
        if sizes[kind] >= (MAX_ITEMS_AT_ONCE if is_item else MAX_AT_ONCE):
            yield parts[kind]
            parts[kind], sizes[kind] = [], 0
    yield from (part for part in parts if part)


def last_done(known_since: datetime, last_execution: datetime | None) -> datetime:
    """Return the last minute whose ticks of an item were fired; for a new item, the minute before it became known.

    An item that was resumed after a pause counts as known since then: the ticks during the pause are not fired.
    """
    before_it_was_known = floor_minute(known_since - MOMENT)
    return before_it_was_known if last_execution is None else max(floor_minute(last_execution), before_it_was_known)


def following_tick(item: CronItem, after: datetime) -> datetime | None:
    """Return the next tick of an item. A function of the project is asked each minute, so its next tick is a minute."""
    if not isinstance(item.match, str):
        return floor_minute(after) + MINUTE
    return _following(item.match, _zone_of(item), after)


# Many items have the same times, and fire at the same minute.
@functools.lru_cache(maxsize=5_000)
def _following(pattern: str, time_zone: str, after: datetime) -> datetime | None:
    return next_time(Definition(cron=pattern, time_zone=time_zone), after)


def _zone_of(item: CronItem) -> str:
    zone = item.zone
    return zone.key if zone else "UTC"


def decide_item(due: DueItem, now: datetime, look_ahead: timedelta) -> Decision:
    """Return what becomes of an item of the crontab.

    A function of the project that decides when it is due is asked for ``look_ahead`` in advance. Raise what it raises.
    """
    item = due.item
    if due.is_paused:
        return Decision(due=due, next_at=following_tick(item, now))
    first: datetime | None = due.tick
    if due.tick < due.known_since or (due.last_execution is not None and due.tick <= due.last_execution):
        first = following_tick(item, last_done(due.known_since, due.last_execution))
    if first is None or first > now:
        return Decision(due=due, next_at=first)
    found = _decide_ticks_of_item(due, first, now, look_ahead)
    jobs = tuple(job_of_item(item, at=tick.at, is_late=tick.is_late) for tick in found.ticks)
    return Decision(due=due, jobs=jobs, next_at=found.next_at, missed=found.given_up)


def _decide_ticks_of_item(due: DueItem, first: datetime, now: datetime, look_ahead: timedelta) -> TickDecision:
    item = due.item
    if isinstance(item.match, str) and now - first < MINUTE:
        return TickDecision((Tick(first, is_late=False),), following_tick(item, first))
    # What was due while another session had locked the row is not lost.
    period = max(item.period, HELD_FOR) if due.is_held else item.period
    max_ticks = _max_ticks(repr(item.payload))
    if not isinstance(item.match, str):
        return _decide_ticks_by_function(item.match, item.zone, first, now, period, max_ticks, look_ahead)
    definition = Definition(cron=item.match, time_zone=_zone_of(item))
    missed = "all" if period else "skip"
    return decide_ticks(definition, first=first, now=now, missed=missed, missed_within=period, max_ticks=max_ticks)


def _decide_ticks_by_function(
    match: Matcher,
    zone: ZoneInfo | None,
    first: datetime,
    now: datetime,
    period: timedelta,
    max_ticks: int,
    look_ahead: timedelta,
) -> TickDecision:
    """Decide as ``decide_ticks()`` does, minute by minute; ticks that are given up are not counted."""
    minute = floor_minute(now)
    oldest = floor_minute(now - period - MOMENT) + MINUTE if period else minute
    after = max(first, oldest) - MINUTE
    until = min(minute, after + FUNCTION_SPAN)
    found = tuple(itertools.islice(matcher_times(match, zone, after, until), max_ticks))
    ticks = tuple(Tick(time, is_late=time < minute) for time in found)
    if len(found) == max_ticks:
        return TickDecision(ticks, found[-1] + MINUTE)
    if until < minute or look_ahead <= MINUTE:
        return TickDecision(ticks, until + MINUTE)
    later = matcher_times(match, zone, minute, minute + look_ahead)
    return TickDecision(ticks, next(later, minute + look_ahead))
