"""The fast path: the single job that an idle worker was notified of starts on the thread that claimed it.

It is there for latency: without it an idle worker takes 1.4 times as long from ``add_job`` to the task's first line.
``sql.claims.FAST_CLAIM`` has one look-up and one update in place of the claim statement, which chooses between queues
and backlogs; ``database.prepared`` runs them without the driver's cursor; and the thread that claimed runs the job,
while another thread of the pool fetches, because it takes long to wake a thread.

The fetcher calls ``start_due_jobs()``, the claimer ``learn_from()``, and nothing else belongs to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import FAST_PLANNER, Claim, Claimed, FastClaimed, claim_few, fast_claim_statement
from django_graphile_worker.worker.database.prepared import PreparedStatement
from django_graphile_worker.worker.pool.line import WorkUnit

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds. A fast claim that takes longer reads index entries of deleted rows that cannot be vacuumed yet; the claim
# statement avoids them.
LONGEST_FAST_CLAIM = 0.02
# As slow as that are so many fast claims in a row that take longer than this.
SLOW_FAST_CLAIM = 0.005
SLOW_IN_A_ROW = 4
# After such a slow fast claim, the worker tries no other for this many times its duration.
REST = 100


class FastPath:
    """Claims all due jobs if they are few, and starts them; a single job does not wait for another thread."""

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        database = worker.claim_database
        # The name under which the session keeps the statement.
        self._statement = PreparedStatement(
            database, "gw_fast_claim", fast_claim_statement(database.schema), settings=FAST_PLANNER
        )
        self._clock = clock
        # All workers of a fleet are notified of a job, and one worker gets it; each of the others would claim twice in
        # vain. So only a worker whose last fast claim found a job tries the next.
        self._is_promising = True
        self._rests_until = clock()
        self._slow_in_a_row = 0

    def start_due_jobs(self) -> float | None:
        """Start all jobs that are due; return the seconds until the next job is due, infinity if no job is known.

        Return None if nothing was started: then only the claim statement can find a due job.
        """
        worker = self._worker
        vacant = worker.pool.vacant
        if vacant < 1 or self._is_claim_needed():
            return None
        worker.events.claim_started()
        started = time.perf_counter()
        claimed = worker.held.hold(lambda: self._claim(vacant))
        if claimed is None or not claimed.claims:
            worker.events.nothing_claimed(time.perf_counter() - started)
            return None
        worker.events.jobs_claimed(claimed.claims, time.perf_counter() - started)
        self._start(claimed.claims)
        seconds = claimed.seconds_until_next
        return math.inf if seconds is None else seconds

    @property
    def is_worth_trying(self) -> bool:
        """Whether a fast claim would probably find a job, quickly."""
        return self._is_promising and self._statement.is_possible and self._clock() >= self._rests_until

    def learn_from(self, claimed: Claimed) -> None:
        """Note from the answer to a claim whether a fast claim would have been enough."""
        if claimed.claims and not claimed.has_more:
            self._is_promising = all(claim.queue_id is None for claim in claimed.claims)

    def _is_claim_needed(self) -> bool:
        """Must the claimer claim, because it has a search or a review to do, or a fast claim is not worth trying?

        A fast claim reads the backlog from its start.
        """
        worker = self._worker
        return (
            worker.held.is_search_due
            or worker.directory.is_review_due
            or not self.is_worth_trying
            or not worker.claimer.scan.is_quick
        )

    def _claim(self, vacant: int) -> FastClaimed:
        """Claim every job that is due, or nothing: see ``sql.claims.claim_few``."""
        worker = self._worker
        forbidden_flags = worker.forbidden_flags()
        began = self._clock()
        found = claim_few(
            self._statement,
            token=worker.held.next_token(),
            task_ids=worker.directory.ids_text,
            max_jobs=vacant,
            forbidden_flags=forbidden_flags,
            now=worker.now(),
        )
        self._is_promising = bool(found.claims)
        self._note_duration(began, self._clock())
        return found

    def _note_duration(self, began: float, ended: float) -> None:
        seconds = ended - began
        self._slow_in_a_row = self._slow_in_a_row + 1 if seconds > SLOW_FAST_CLAIM else 0
        if seconds > LONGEST_FAST_CLAIM or self._slow_in_a_row >= SLOW_IN_A_ROW:
            self._rests_until = ended + REST * seconds
            self._slow_in_a_row = 0

    def _start(self, claims: list[Claim]) -> None:
        pool = self._worker.pool
        # All due jobs run: a slot that becomes free need not call for jobs.
        pool.wants_jobs = True
        for claim in claims[1:]:
            pool.submit([claim], callers=1)
        if not pool.keep(WorkUnit([claims[0]], None, time.monotonic())):
            pool.submit(claims[:1], callers=1)
