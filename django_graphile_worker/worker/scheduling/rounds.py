"""One round: reads what is due, decides in Python, and fires. Nothing is locked while this process computes.

Nothing is remembered either, apart from schedules that failed: whichever process dies or pauses, the next round of any
worker finds the true state in the database. A schedule that another session has locked is still due, or was fired, when
the next round reads it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import psycopg
from django.conf import settings

from django_graphile_worker import signals
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.schedules.due import DueSchedule, read_due
from django_graphile_worker.sql.schedules.firing import Fired, Move, fire
from django_graphile_worker.sql.schedules.summaries import named_tasks
from django_graphile_worker.worker.maintenance.cron import CursorSource, halves
from django_graphile_worker.worker.scheduling.known_tasks import KnownTasks
from django_graphile_worker.worker.scheduling.moves import move_of
from django_graphile_worker.worker.service import Trouble, jittered

# How many schedules a round reads, and how many one statement fires: it takes a tenth of a second, for which they are
# locked.
MOST_READ = 2_000
MOST_AT_ONCE = 400
# Seconds until schedules that another session has locked are looked for again.
YIELD_WAIT = 0.4
# Seconds until a schedule that failed is tried again, unless it is changed.
RETRY_AFTER = 30.0


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
        on_trouble: Trouble | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._schema = schema
        self._tasks = tasks
        self._now = now
        self._notify = notify
        self._send = send
        self._on_trouble = on_trouble
        self._clock = clock
        # By id: the revision of a schedule that failed, and when it is tried again.
        self._failing: dict[int, tuple[int, float]] = {}
        self._has_begun = False
        # When the next schedule is due, as the last round has found it.
        self.next_at: datetime | None = None

    def run(self) -> float:
        """Fire what is due; return the seconds until the next round."""
        if not self._has_begun:
            self._report_unknown_tasks()
        began = self._clock()
        with self._database.cursor() as cursor:
            due = read_due(
                cursor,
                schema=self._schema,
                most=MOST_READ,
                unknown_tasks=self._tasks.unknown(),
                failing=self._left_out(),
                now=self._now(),
            )
        moves = [move for each in due.schedules if (move := self._move_of(each, due.now)) is not None]
        won = self._fire_all(moves)
        if won and (len(due.schedules) == MOST_READ or any(_is_still_due(move, due.now) for move in moves)):
            return 0.0
        upcoming = [due.next_at, *(move.next_at for move in moves)]
        self.next_at = next_at = min((moment for moment in upcoming if moment is not None), default=None)
        rest = math.inf if next_at is None else (next_at - due.now).total_seconds() - (self._clock() - began)
        # Schedules that other sessions have locked were fired by them, or are still due.
        return min(max(rest, 0.0), self._until_retry(), jittered(YIELD_WAIT) if won < len(moves) else math.inf)

    def close(self) -> None:
        self._database.close()

    def _report_unknown_tasks(self) -> None:
        with self._database.cursor() as cursor:
            named = named_tasks(cursor, schema=self._schema)
        unknown = tuple(each.task for each in named if self._tasks.get(each.task) is None)
        if unknown:
            self._send(signals.schedule_tasks_not_found, tasks=unknown)
        self._has_begun = True

    def _move_of(self, due: DueSchedule, now: datetime) -> Move | None:
        try:
            return move_of(due, self._tasks.get(due.task), now)
        except Exception as error:
            self._note_failure(due, error)
            return None

    def _fire_all(self, moves: Sequence[Move]) -> int:
        """Fire schedules; return how many of them no other session has locked, fired or changed."""
        starts = list(range(0, len(moves), MOST_AT_ONCE))
        # Several workers that read the same schedules begin with different parts.
        random.shuffle(starts)
        return sum(self._fire_some(moves[at : at + MOST_AT_ONCE]) for at in starts)

    def _fire_some(self, moves: Sequence[Move]) -> int:
        """Fire schedules in ever smaller parts: one that is refused, or whose job key is locked, delays no other."""
        try:
            with self._database.cursor() as cursor:
                fired = fire(cursor, moves, schema=self._schema, notify=self._notify, now=self._now())
        except psycopg.Error as error:
            is_locked = isinstance(error, psycopg.errors.LockNotAvailable)
            if isinstance(error, psycopg.OperationalError) and not is_locked:
                raise
            if len(moves) > 1:
                return sum(self._fire_some(part) for part in halves(moves))
            if is_locked:
                return 0
            self._note_failure(moves[0].schedule, error)
            return 1
        self._report(moves, fired)
        return len(fired)

    def _report(self, moves: Iterable[Move], fired: dict[int, Fired]) -> None:
        for move in moves:
            done = fired.get(move.schedule.id)
            if done is not None:
                self._failing.pop(move.schedule.id, None)
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

    def _note_failure(self, due: DueSchedule, error: Exception) -> None:
        known = self._failing.get(due.id)
        self._failing[due.id] = (due.revision, self._clock() + RETRY_AFTER)
        is_news = known is None or known[0] != due.revision
        if is_news and self._on_trouble is not None:
            self._on_trouble(f"schedule {due.name}", error, RETRY_AFTER)

    def _left_out(self) -> dict[int, int]:
        now = self._clock()
        return {id_: revision for id_, (revision, retry_at) in self._failing.items() if retry_at > now}

    def _until_retry(self) -> float:
        now = self._clock()
        return min((retry_at - now for _, retry_at in self._failing.values() if retry_at > now), default=math.inf)


def _is_still_due(move: Move, now: datetime) -> bool:
    return move.next_at is not None and move.next_at <= now


def _for_receivers(tick: datetime) -> Any:
    """Return a time as the receivers of the project expect it: aware only with USE_TZ."""
    return tick if settings.USE_TZ else naive(tick)
