"""Decides what becomes of a schedule that is due: which of its ticks get jobs, and when it is due next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_graphile_worker.registry import Task
from django_graphile_worker.schedule_jobs import job_of
from django_graphile_worker.schedules.times import Decision, decide, first_time, next_time
from django_graphile_worker.sql.schedules.changes import FOREVER
from django_graphile_worker.sql.schedules.firing import LEFT_TO_OTHERS, DueSchedule, Missed, Move

# Earlier than any tick.
LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)


def move_of(due: DueSchedule, task: Task[Any, Any] | None, now: datetime) -> Move | None:
    """Return what becomes of a schedule; None if it is left to workers that know its task.

    Raise what the definition or the task raises: it may have been written without any check.
    """
    if due.paused_until is not None and due.paused_until > now:
        # What was due before the pause waits for its end.
        return Move(schedule=due, next_at=_end_of_pause(due), waits=True)
    first = _first_tick(due)
    if first is None or first > now:
        return Move(schedule=due, next_at=first)
    if task is None:
        # From its first tick on, every worker sees for how long it has been due.
        return Move(schedule=due, next_at=first) if due.next_at is None else _given_up(due, first, now)
    decision = decide(due.definition, first=first, now=now, missed=due.missed, missed_within=due.missed_within)
    jobs = tuple(
        job_of(due, due.definition, task, payload=due.payload, at=tick.at, is_late=tick.is_late)
        for tick in decision.ticks
    )
    return Move(schedule=due, jobs=jobs, next_at=decision.next_at, missed=_missed(decision))


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


def _given_up(due: DueSchedule, first: datetime, now: datetime) -> Move | None:
    if first > now - LEFT_TO_OTHERS:
        return None
    decision = decide(due.definition, first=first, now=now)
    missed = _missed(decision)
    if decision.ticks:
        # The latest tick may be on time; a worker that knows the task would have fired those before it.
        last = decision.ticks[-1].at
        missed = Missed(1, last, last) if missed is None else Missed(missed.number + 1, missed.first, last)
    return Move(schedule=due, next_at=decision.next_at, missed=missed, task_is_unknown=True)


def _missed(decision: Decision) -> Missed | None:
    given_up = decision.given_up
    return None if given_up is None else Missed(given_up.number, given_up.first, given_up.last)
