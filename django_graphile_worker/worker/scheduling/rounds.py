"""One round: reads what is due, decides in Python, and fires. Nothing is locked while this process computes.

Nothing is remembered either, apart from schedules that failed: whichever process dies or pauses, the next round of any
worker finds the true state in the database. A schedule that another session has locked is still due, or was fired, when
the next round reads it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from django.conf import settings

from django_graphile_worker import signals
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.firing import (
    FIRST_WAIT,
    SHORT_WAIT,
    Due,
    DueSchedule,
    Fired,
    Move,
    fire,
    read_due,
)
from django_graphile_worker.sql.schedules.listing import named_tasks
from django_graphile_worker.sql.session import forget_plans
from django_graphile_worker.worker.maintenance.cron import CursorSource, halves
from django_graphile_worker.worker.scheduling.known_tasks import KnownTasks
from django_graphile_worker.worker.scheduling.moves import move_of
from django_graphile_worker.worker.scheduling.parts import parts_of
from django_graphile_worker.worker.scheduling.refusals import RETRY_AFTER, Refusals
from django_graphile_worker.worker.scheduling.turns import Turns
from django_graphile_worker.worker.service import Trouble, jittered

# Seconds after which a round ends and the next reads what is due now.
LONGEST_ROUND = 2.0
# Seconds until schedules that another session has locked are looked for again. They double.
LOCKED_WAIT = 0.4
LONGEST_LOCKED_WAIT = 2.0
# Seconds until a worker looks again whether the schedules of its tasks exist: another may have deleted them while this
# one was suspended.
WRITE_INTERVAL = 60.0
# Errors that are not about one schedule: the server is gone or read-only, the role has no rights, the schema is not
# that of this version.
OF_ALL = (
    psycopg.OperationalError,
    psycopg.InternalError,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
)


class Outcome(NamedTuple):
    """What a round has tried, how many of it no other session had locked or changed, and whether it tried all."""

    moves: list[Move]
    won: int
    is_whole: bool


class Rounds:
    """Fires the schedules of one worker schema."""

    def __init__(
        self,
        *,
        database: CursorSource,
        schema: str,
        tasks: KnownTasks,
        now: Callable[[], datetime | None],
        notify: bool,
        send: Callable[..., None],
        every: Mapping[str, timedelta] | None = None,
        on_trouble: Trouble | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._schema = schema
        self._tasks = tasks
        # The intervals of tasks in the code.
        self._every = every or {}
        self._now = now
        self._notify = notify
        self._send = send
        self._on_trouble = on_trouble
        self._clock = clock
        self._turns = Turns(clock)
        self._refusals = Refusals(clock)
        self._locked_wait = LOCKED_WAIT
        self._has_begun = False
        self._has_written = False
        self._write_at = -math.inf
        # When the next schedule is due, as the last round has found it.
        self.next_at: datetime | None = None

    def run(self) -> float:
        """Fire what is due; return the seconds until the next round."""
        if self._every and self._clock() >= self._write_at:
            self._write_code_schedules()
        if not self._has_begun:
            self._report_unknown_tasks()
        if self._turns.wait > 0:
            # Something else has called for this round.
            return self._turns.wait
        began = self._clock()
        due = self._read()
        if self._turns.is_of_others(due):
            return self._turns.wait
        outcome = self._fire_all(due, began)
        has_lost = outcome.won < len(outcome.moves) / 2
        is_next_at_once = self._turns.note(due, has_lost=has_lost) or not outcome.is_whole
        if self._turns.wait > 0:
            return self._turns.wait
        if is_next_at_once or (not has_lost and any(_is_still_due(move, due.now) for move in outcome.moves)):
            return 0.0
        return self._until_next(due, outcome, began)

    def close(self) -> None:
        self._database.close()

    def _write_code_schedules(self) -> None:
        """Write the schedules of tasks with an interval. An interval that differs is that of newer or older code.

        The code that starts last wins, as a deploy expects.
        """
        try:
            with self._database.cursor() as cursor:
                taken = from_code.write_every(
                    cursor, self._every, schema=self._schema, with_changes=not self._has_written, now=self._now()
                )
        except psycopg.errors.LockNotAvailable:
            # The next round tries again: the other schedules must not wait for whoever is changing one of these.
            return
        if taken and not self._has_written:
            self._send(signals.schedule_names_taken, names=tuple(taken))
        self._has_written = True
        self._write_at = self._clock() + WRITE_INTERVAL

    def _report_unknown_tasks(self) -> None:
        with self._database.cursor() as cursor:
            named = named_tasks(cursor, schema=self._schema)
        unknown = tuple(each.task for each in named if self._tasks.get(each.task) is None)
        if unknown:
            self._send(signals.schedule_tasks_not_found, tasks=unknown)
        self._has_begun = True

    def _read(self) -> Due:
        with self._database.cursor() as cursor:
            return read_due(
                cursor,
                schema=self._schema,
                most=self._turns.most,
                unknown_tasks=self._tasks.unknown(),
                failing=self._refusals.left_out(),
                now=self._now(),
                text=self._turns.text,
            )

    def _until_next(self, due: Due, outcome: Outcome, began: float) -> float:
        """Return the seconds until something is due, after a round that has read all that was due."""
        upcoming = [due.next_at, *(move.next_at for move in outcome.moves)]
        self.next_at = next_at = min((moment for moment in upcoming if moment is not None), default=None)
        rest = math.inf if next_at is None else (next_at - due.now).total_seconds() - (self._clock() - began)
        return min(max(rest, 0.0), self._refusals.until_retry(), self._until_unlocked(outcome))

    def _until_unlocked(self, outcome: Outcome) -> float:
        """Return when to look again for schedules that other sessions had locked: they were fired, or are still due."""
        if outcome.won == len(outcome.moves):
            self._locked_wait = LOCKED_WAIT
            return math.inf
        wait = self._locked_wait
        self._locked_wait = min(wait * 2, LONGEST_LOCKED_WAIT)
        return jittered(wait)

    def _move_of(self, due: DueSchedule, now: datetime) -> Move | None:
        is_ours = not due.is_from_code or due.name in self._every
        try:
            move = move_of(due, self._tasks.get(due.task) if is_ours else None, now)
        except Exception as error:
            self._note_failure(due, error)
            return None
        if move is not None and move.task_is_unknown and due.is_from_code:
            # No worker has it in its code any more.
            with self._database.cursor() as cursor:
                from_code.delete_every(cursor, due, schema=self._schema)
            return None
        return move

    def _fire_all(self, due: Due, began: float) -> Outcome:
        """Fire schedules part by part.

        A worker that finds that others have fired most of a part computes no other: what is left is read again.
        """
        moves: list[Move] = []
        won = 0
        decided = (move for each in due.schedules if (move := self._move_of(each, due.now)) is not None)
        for part in parts_of(decided, self._refusals):
            fired = self._fire_some(part, began)
            moves += part
            won += fired
            if fired < len(part) / 2:
                # Others are at it.
                return Outcome(moves, won, is_whole=True)
            if self._clock() - began > LONGEST_ROUND:
                return Outcome(moves, won, is_whole=False)
        return Outcome(moves, won, is_whole=True)

    def _fire_some(self, moves: Sequence[Move], began: float, wait: int = FIRST_WAIT) -> int:
        """Fire schedules in ever smaller parts: one that is refused, or whose job key is locked, delays no other."""
        try:
            with self._database.cursor() as cursor:
                # Plans that were made while there were no runs and no jobs would read all of them for each schedule.
                forget_plans(cursor)
                fired = fire(cursor, moves, schema=self._schema, notify=self._notify, now=self._now(), wait=wait)
        except psycopg.Error as error:
            is_locked = isinstance(error, psycopg.errors.LockNotAvailable)
            if isinstance(error, OF_ALL) and not is_locked:
                raise
            # Each statement that finds a lock has waited for it.
            is_too_late = is_locked and self._clock() - began > LONGEST_ROUND
            if len(moves) > 1 and not is_too_late:
                return sum(self._fire_some(part, began, SHORT_WAIT) for part in halves(moves))
            for move in moves:
                self._note_refusal(move.schedule, error)
            return len(moves)
        self._report(moves, fired)
        return len(fired)

    def _report(self, moves: Iterable[Move], fired: dict[int, Fired]) -> None:
        for move in moves:
            done = fired.get(move.schedule.id)
            if done is not None:
                self._refusals.forget(move.schedule)
                self._report_one(move, done)

    def _report_one(self, move: Move, done: Fired) -> None:
        due = move.schedule
        about = {"schedule_id": due.id, "name": due.name, "task": due.task}
        ticks = tuple(_for_receivers(job.at) for job in move.jobs)
        if done.job_ids:
            self._send(signals.schedule_fired, **about, ticks=ticks[: len(done.job_ids)], job_ids=tuple(done.job_ids))
        if done.skipped:
            self._send(signals.schedule_skipped, **about, ticks=ticks[len(done.job_ids) :], reason="overlap")
        if move.missed is not None and not move.task_is_unknown:
            first, last = _for_receivers(move.missed.first), _for_receivers(move.missed.last)
            number = move.missed.number
            self._send(signals.schedule_missed, **about, number=number, first_tick=first, last_tick=last)

    def _note_refusal(self, due: DueSchedule, error: psycopg.Error) -> None:
        if isinstance(error, psycopg.errors.LockNotAvailable):
            self._refusals.note_lock(due)
        else:
            self._note_failure(due, error)

    def _note_failure(self, due: DueSchedule, error: Exception) -> None:
        if self._refusals.note_failure(due) and self._on_trouble is not None:
            self._on_trouble(f"schedule {due.name}", error, RETRY_AFTER)


def _is_still_due(move: Move, now: datetime) -> bool:
    return move.next_at is not None and move.next_at <= now


def _for_receivers(tick: datetime) -> Any:
    """Return a time as the receivers of the project expect it: aware only with USE_TZ."""
    return tick if settings.USE_TZ else naive(tick)
