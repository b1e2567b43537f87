"""Deletes what has expired: results, the rows of sessions that waited for them, old days of the history, unused limits,
and the entries of unique jobs that have ended.

It also makes the partitions of the history for the next days, and indexes the days that are over. Each statement is
short; after it, the service waits for longer than the statement took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from psycopg import errors

from django_graphile_worker.sql import limits, results
from django_graphile_worker.sql.adding import forget_unique_jobs
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds until the first look if there is no history: a worker that ends soon, and its start, are spared.
FIRST_LOOK = 20.0
LOOK_INTERVAL = 60.0
# Seconds between two looks of a worker that keeps nothing: others may, or this one did before it was deployed again.
LOOK_INTERVAL_UNUSED = 600.0
# Seconds between two looks for lanes and keys of limits that nothing needs, and for how long nothing needed them.
FORGET_INTERVAL = 600.0
UNUSED_FOR = 3600.0
# Seconds that one statement may take: the index of a day of many million rows.
STATEMENT_DEADLINE = 600.0
# The pause after a step, as a multiple of the time that it took.
PAUSE_PER_STEP = 2.0
SHORTEST_PAUSE = 0.01


class Retention(Service):
    """The service that looks every minute for what has expired, and deletes it in small steps.

    It reports no errors of the database but one: that the role of the worker may not make partitions. Then the rows of
    the history go into the default partition. The parts that run jobs report the other errors.
    """

    name = "retention"

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(on_trouble=worker.reports.other_trouble)
        self._worker = worker
        self._database = worker.database("retention", deadline=STATEMENT_DEADLINE)
        self._interval = LOOK_INTERVAL if worker.keeps_anything else LOOK_INTERVAL_UNUSED
        self._history = worker.settings.history
        self._is_refusal_reported = False
        self._clock = clock
        self._forget_at = clock() + jittered(FORGET_INTERVAL)
        self._steps: Iterator[None] | None = None
        self._has_waited = self._history is not None

    def step(self) -> float:
        """Do the next step of a look; return the seconds until the next step or the next look."""
        if not self._has_waited:
            self._has_waited = True
            return jittered(FIRST_LOOK)
        began = self._clock()
        if self._steps is None:
            self._steps = self._look()
        try:
            if next(self._steps, self) is self:
                self._end_look()
                return jittered(self._interval)
        except BaseException:
            self._end_look()
            raise
        return max((self._clock() - began) * PAUSE_PER_STEP, SHORTEST_PAUSE)

    def close(self) -> None:
        self._database.close()

    def _end_look(self) -> None:
        self._steps = None
        # A look every minute does not justify keeping a connection.
        self._database.close()

    def finish_look(self, seconds: float) -> None:
        """Do the steps of one look on this thread, for about this many seconds: a draining worker has no other time."""
        deadline, self._has_waited = self._clock() + seconds, True
        while self.attempt() < LOOK_INTERVAL / 2 and self.trouble is None and self._clock() < deadline:
            pass

    def _look(self) -> Iterator[None]:
        if self._history is not None:
            try:
                yield from self._tend_history(self._history)
            except errors.LockNotAvailable:
                # A session reads or changes the tables right now. The next look tries again.
                pass
            except errors.InsufficientPrivilege as error:
                self._report_refusal(error)
        yield from self._prune_results()
        limited = self._worker.limited
        if limited is not None and self._clock() >= self._forget_at:
            yield from self._forget_limits(limited.tasks.numbers)
            self._forget_at = self._clock() + jittered(FORGET_INTERVAL)
        while self._execute(forget_unique_jobs, schema=self._database.schema, now=self._worker.now()):
            yield

    def _report_refusal(self, error: BaseException) -> None:
        if not self._is_refusal_reported:
            self._is_refusal_reported = True
            self._worker.reports.database_trouble(self.name, error, self._interval)

    def _tend_history(self, seconds: float) -> Iterator[None]:
        about = {"schema": self._database.schema, "now": self._worker.now()}
        self._execute(results.make_history_partitions, **about)
        yield
        while self._execute(results.drop_old_history, **about, older_than=seconds):
            yield
        while self._execute(results.index_history_days, **about):
            yield

    def _prune_results(self) -> Iterator[None]:
        schema, reached = self._database.schema, None
        self._execute(results.prune_waiters, schema=schema)
        while True:
            pruned = self._execute(results.prune_results, schema=schema, go_on_at=reached, now=self._worker.now())
            reached = pruned.reached
            if reached is None:
                return
            yield

    def _forget_limits(self, numbers: Mapping[str, str]) -> Iterator[None]:
        # Behind a pooler each statement is a transaction of its own: the keys that it locks are soon free again.
        schema, after = self._database.schema, None
        while self._execute(limits.forget_lanes, schema=schema, seconds=UNUSED_FOR):
            yield
        while True:
            after = self._execute(limits.forget_keys, schema=schema, numbers=numbers, seconds=UNUSED_FOR, after=after)
            if after is None:
                return
            yield

    def _execute(self, act: Callable[..., Any], **arguments: Any) -> Any:
        with self._database.cursor() as cursor:
            return act(cursor, **arguments)
