"""Releases jobs: completed, failed or returned. Until the database has stored an outcome, it exists only here.

Every outcome that arrives while a statement runs goes into the next statement. The first outcome after a rest is sent
at once. The statement after it follows after a pause: otherwise each of ten jobs that end one after the other would
need a statement and a commit of its own. If the process is killed, the jobs that run at that moment run again, and so
do the jobs that have ended during the pause. Results, named queues and returned jobs, which other sessions, jobs or
workers wait for, end the pause.

An outcome stays pending until the database has accepted it, or until its claim is known to be lost. Otherwise it is
tried again: in a smaller batch if the database does not accept so large a batch, and by itself if the database rejects
it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, cast

import psycopg

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import CompletedAtomically, Interrupted, Outcome, Recorded, Succeeded
from django_graphile_worker.worker.release.batches import (
    BATCH,
    CONNECTION_TROUBLE,
    PendingReleases,
    RejectedReleases,
    ReleaseBatcher,
)
from django_graphile_worker.worker.release.statements import ReleaseStatements
from django_graphile_worker.worker.service import Service

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds until a row that a transaction of the site is changing is tried again.
BUSY_ROW_DELAY = 0.05
# Seconds between two statements.
PAUSE = 0.05
# Seconds. There is no pause for jobs that are shorter: so many of them end while a statement runs that the next
# statement takes them together anyway.
SHORT_JOB = 0.001
_ONLY_SUCCEEDED = frozenset({Succeeded})
_ONLY_RECORDED = frozenset({Recorded})


class Releaser(Service):
    """The service that takes outcomes from the slots and ends their claims."""

    name = "releaser"

    def __init__(self, worker: DatabaseWorker) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._statements = ReleaseStatements(worker, worker.release_database)
        self._inbox: deque[Outcome | HeldQueue] = deque()
        self._pending = PendingReleases()
        self._rejected = RejectedReleases(monotonic)
        self._batcher = ReleaseBatcher(worker, self._statements, self._rejected)
        self._is_empty = threading.Event()
        self._is_empty.set()
        self._is_resting = True
        self._is_pausing = False
        # Whether something arrived that must not wait for the end of a pause.
        self._is_urgent = False
        self._is_hurried = False
        self._must_warm_up = False

    def warm_up(self) -> None:
        """Have the first step open the connection and plan the statements, before the first outcome arrives."""
        self._must_warm_up = True

    def put(self, outcome: Outcome | HeldQueue) -> None:
        """Take an outcome. It may wait for the end of a pause, unless a session may wait for it."""
        self._inbox.append(outcome)
        if type(outcome) is not Succeeded and _is_awaited(outcome):
            self.end_pause()
        if self._is_resting:
            self._is_resting = False
            self._is_empty.clear()
            self.wake()

    def put_urgently(self, outcome: Outcome) -> None:
        """Take an outcome that other jobs wait for."""
        self.put(outcome)
        self.end_pause()

    def release_queue(self, queue: HeldQueue) -> None:
        """Take a queue whose work unit is over."""
        self.put(queue)
        self.end_pause()

    def return_jobs(self, outcomes: Sequence[Interrupted], queues: Sequence[HeldQueue]) -> None:
        """Take jobs that never began, and the queues that were claimed with them."""
        for outcome in outcomes:
            self.put(outcome)
        for queue in queues:
            self.put(queue)
        self.end_pause()

    def end_pause(self) -> None:
        """Release now what has arrived, or after the current statement."""
        # As in _rest(): whichever runs second sees the flag of the other.
        self._is_urgent = True
        if self._is_pausing:
            self.wake()

    def step(self) -> float:
        """Release everything that has arrived."""
        if self._must_warm_up:
            self._must_warm_up = False
            self._warm_up()
        self._is_resting = self._is_pausing = self._is_urgent = False
        self._collect()
        pause = self._next_pause()
        if self._pending:
            self._release(self._pending)
        if self._rejected.all:
            self._release_rejected()
        if pause:
            self._is_pausing = True
            return 0.0 if self._is_urgent or self._is_hurried else pause
        if self._inbox:
            return 0.0
        return BUSY_ROW_DELAY if self._pending else self._rest()

    def hurry(self) -> None:
        """Send everything now, including rejected outcomes: the worker stops, and waits for them."""
        self._is_hurried = True
        self._rejected.hurry()
        super().hurry()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until no outcome is pending, at most ``timeout`` seconds; return True if none is."""
        # The event is checked again after the count, which is zero while _collect() moves outcomes.
        return self._is_empty.wait(timeout) and self.pending_count == 0 and self._is_empty.is_set()

    @property
    def pending_count(self) -> int:
        return len(self._inbox) + len(self._pending) + self._rejected.count

    @property
    def given_up_job_ids(self) -> list[int]:
        """The ids of jobs whose outcomes the database keeps rejecting; empty while any other outcome is pending."""
        if self._inbox or self._pending or not self._rejected.are_given_up:
            return []
        return self._rejected.job_ids()

    def close(self) -> None:
        self._statements.close()

    def _warm_up(self) -> None:
        if not self._inbox:
            try:
                self._statements.rehearse()
            except psycopg.Error:
                # It occurs again in the first release, and is reported then.
                if self._inbox:
                    raise

    def _next_pause(self) -> float:
        """Return how long to pause after the release of what has been collected; zero for no pause."""
        succeeded = self._pending.succeeded
        if not succeeded or self._is_hurried or len(self._inbox) >= BATCH:
            return 0.0
        return PAUSE if min(succeeded[0].duration, succeeded[-1].duration) >= SHORT_JOB else 0.0

    def _rest(self) -> float:
        # Set the flag before checking the inbox; put() does the reverse. Whichever runs second sees the other, so no
        # wake-up is lost.
        self._is_resting = True
        if self._inbox:
            return 0.0
        if self._rejected.count:
            return self._rejected.until_next()
        self._is_empty.set()
        return math.inf

    def _collect(self) -> None:
        if self._inbox:
            # The outcomes may have arrived during the last step, whose end found none.
            self._is_empty.clear()
        take = self._inbox.popleft
        arrived = [take() for _ in range(min(len(self._inbox), BATCH))]
        if _ONLY_SUCCEEDED.issuperset(map(type, arrived)):
            self._pending.succeeded += cast("list[Succeeded]", arrived)
            return
        if _ONLY_RECORDED.issuperset(map(type, arrived)):
            self._pending.recorded += cast("list[Recorded]", arrived)
            return
        for item in arrived:
            if isinstance(item, CompletedAtomically):
                self._worker.claims_settled([item])
                self._worker.jobs_released([item])
            else:
                self._pending.put(item)

    def _release_rejected(self) -> None:
        """Send rejected outcomes again, but only while no other outcome has arrived: each may take long."""
        for pending in self._rejected.due():
            if self._inbox:
                break
            if pending:
                self._release(pending)
        self._rejected.remove_released()

    def _release(self, pending: PendingReleases) -> None:
        try:
            self._batcher.release_jobs(pending)
            if pending.queues:
                # After the jobs, because a job that was just rejected keeps its queue.
                self._batcher.release_queues(pending, (self._pending, *self._rejected.all))
        except CONNECTION_TROUBLE:
            pending.is_in_doubt = True
            raise
        pending.is_in_doubt = False


def _is_awaited(outcome: Outcome | HeldQueue) -> bool:
    """Return whether a session may wait for an outcome, which is no plain success."""
    if type(outcome) is Recorded:
        return outcome.value_text is not None
    return type(outcome) is not CompletedAtomically
