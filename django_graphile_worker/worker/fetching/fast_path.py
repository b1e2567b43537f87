"""The fast path: the single job that an idle worker was notified of starts on the thread that claimed it.

Why: latency. From ``add_job`` to the task's first line an idle worker takes 1.27 ms in the median and 1.8 ms in the
99th percentile, the Node worker 2.15 ms and 3.7 ms (``make bench``, figures and machine in
docs/explanation/performance.md). More than half of that is ``add_job`` and its commit. The fast path makes the rest
short:

- ``sql.fast_claim``: one look-up and one update replace the claim statement, which chooses between queues and backlogs;
- ``database.prepared``: the statement goes straight to libpq, because a cursor would take a tenth of the whole time;
- ``pool.fetch_turns``: the thread that claimed runs the job, while another thread fetches, because waking a thread for
  the job would take longer than all of the worker's own work before.

The fetcher calls ``start_due_jobs()`` and nothing else. To have a worker claim every job with the claim statement, pass
``NoFastPath`` to the fetcher, and remove this module, ``fetching.fast_claim``, ``sql.fast_claim`` and
``database.prepared``, with the lines of the wiring and of ``preconnect`` that name them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.fast_claim import FastClaimed
from django_graphile_worker.worker.fetching.fast_claim import FastClaim
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.job_clock import JobClock
from django_graphile_worker.worker.pool.slot_pool import SlotPool
from django_graphile_worker.worker.work_units import WorkUnit


class FastPath:
    """Claims all due jobs if they are few, and starts them; a single job does not wait for another thread."""

    def __init__(
        self,
        fast_claim: FastClaim,
        *,
        pool: SlotPool,
        directory: TaskDirectory,
        held: HeldClaims,
        forbidden_flags: ForbiddenFlags,
        now: JobClock,
        on_claiming: Callable[[], None],
        on_nothing_claimed: Callable[[float], None],
        on_claimed: Callable[[list[Claim], float], None],
        is_scan_quick: Callable[[], bool] = lambda: True,
    ) -> None:
        self._fast_claim = fast_claim
        self._pool = pool
        self._directory = directory
        self._held = held
        self._forbidden_flags = forbidden_flags
        self._now = now
        self._on_claiming = on_claiming
        self._on_nothing_claimed = on_nothing_claimed
        self._on_claimed = on_claimed
        self._is_scan_quick = is_scan_quick

    def start_due_jobs(self) -> float | None:
        """Start all jobs that are due; return the seconds until the next job is due, infinity if no job is known.

        Return None if nothing was started: then only the claim statement can find a due job.
        """
        vacant = self._pool.vacant
        if vacant < 1 or self._is_claim_needed():
            return None
        self._on_claiming()
        started = time.perf_counter()
        claimed = self._held.hold(lambda: self._claim(vacant))
        if claimed is None or not claimed.claims:
            self._on_nothing_claimed(time.perf_counter() - started)
            return None
        self._on_claimed(claimed.claims, time.perf_counter() - started)
        self._start(claimed.claims)
        seconds = claimed.seconds_until_next
        return math.inf if seconds is None else seconds

    def _is_claim_needed(self) -> bool:
        """Must the claimer claim, because it has a search or a review to do, or a fast claim is not worth trying?

        A fast claim reads the backlog from its start.
        """
        return (
            self._held.is_search_due
            or self._directory.is_review_due
            or not self._fast_claim.is_worth_trying
            or not self._is_scan_quick()
        )

    def _claim(self, vacant: int) -> FastClaimed:
        return self._fast_claim(
            vacant,
            token=self._held.next_token(),
            task_ids=self._directory.ids_text,
            forbidden_flags=self._forbidden_flags(),
            now=self._now(),
        )

    def _start(self, claims: list[Claim]) -> None:
        pool = self._pool
        # All due jobs run: a slot that becomes free need not call for jobs.
        pool.wants_jobs = True
        for claim in claims[1:]:
            pool.submit([claim], callers=1)
        if not pool.keep(WorkUnit([claims[0]], None, time.monotonic())):
            pool.submit(claims[:1], callers=1)
