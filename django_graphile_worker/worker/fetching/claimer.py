"""Claims jobs with the claim statement."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import psycopg

from django_graphile_worker.sql import claims
from django_graphile_worker.worker.database.blocking_cursor import BlockingCursor
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.scan import Scan
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.job_clock import JobClock

MAX_FREED_QUEUES = 1000


class Claimer:
    """Claims jobs of the tasks that this worker runs."""

    def __init__(
        self,
        database: Database,
        *,
        directory: TaskDirectory,
        held: HeldClaims,
        forbidden_flags: ForbiddenFlags,
        now: JobClock,
        on_answer: Callable[[claims.Claimed], None] = lambda claimed: None,
    ) -> None:
        self._database = database
        self._cursor = BlockingCursor(database)
        self._directory = directory
        self._held = held
        self._forbidden_flags = forbidden_flags
        self._now = now
        # Called with every answer of the claim statement.
        self._on_answer = on_answer
        self.scan = Scan()
        # Queues that this worker has released, for the next claim that does not begin at the start: their jobs stand
        # before its place. Other threads add to it. What does not fit in is found by a claim from the start.
        self._freed_queues: deque[int] = deque(maxlen=MAX_FREED_QUEUES)
        # The ids of the limited tasks of the worker.
        self.limited_tasks: Callable[[], Collection[int]] = tuple

    def claim(
        self, *, max_jobs: int, max_per_queue: int, max_bytes: int = claims.UNLIMITED_BYTES, free_slots: int = 0
    ) -> claims.Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``; go on where the last claim stopped, or begin anew.

        How many slots are free matters to claims of limited jobs only.
        """
        if self._held.is_search_due:
            self._held.return_lost()
        if self._directory.is_review_due:
            self._directory.review()
        began = time.monotonic()
        flags = self._forbidden_flags()
        behind = self.scan.behind(began, (tuple(self._directory.ids), frozenset(flags)))
        freed = self._freed_for(behind)
        limits = {"max_jobs": max_jobs, "max_per_queue": max_per_queue, "max_bytes": max_bytes}
        try:
            claimed = self._held.hold(lambda: self._claim(behind, freed, flags, **limits))
        except psycopg.errors.QueryCanceled:
            self.scan.note_cancelled(began=began, ended=time.monotonic())
            raise
        except BaseException:
            self.scan.begin_again()
            raise
        if claimed is None:
            self.scan.begin_again()
            return claims.Claimed(claims=[], seconds_until_next=None, has_more=True)
        if not claimed.claims and self._directory.find_new_tasks():
            return replace(claimed, has_more=True)
        ended = time.monotonic()
        self._on_answer(claimed)
        self.scan.note(behind, claimed, ended=ended)
        if self._freed_queues and not claimed.has_more:
            # They were released during a pass of several claims, behind which the last one has looked.
            claimed = replace(claimed, has_more=True)
        elif freed and claimed.has_more:
            self.note_freed_queues({*freed} - {claim.queue_id for claim in claimed.claims})
        until_pass = self.scan.until_next_pass(ended)
        if until_pass is None:
            return claimed
        until_next = claimed.seconds_until_next
        return replace(
            claimed,
            seconds_until_next=until_pass if until_next is None else min(until_pass, until_next),
            has_more=claimed.has_more or not until_pass,
        )

    def note_freed_queues(self, queue_ids: Iterable[int]) -> None:
        """Have the next claim look for jobs of these queues."""
        self._freed_queues.extend(queue_ids)

    def _freed_for(self, behind: claims.Place) -> list[int]:
        if not behind.levels:
            # A claim from the start sees the jobs of all queues.
            self._freed_queues.clear()
        if behind.queue is not None:
            return []
        return [self._freed_queues.popleft() for _ in range(len(self._freed_queues))]

    def _claim(
        self, behind: claims.Place, freed_queues: Collection[int], forbidden_flags: Sequence[str], **limits: int
    ) -> claims.Claimed:
        with self._cursor.usable() as cursor:
            return claims.claim_jobs(
                cursor,
                schema=self._database.schema,
                token=self._held.next_token(),
                task_ids=self._directory.ids,
                forbidden_flags=forbidden_flags,
                limited_tasks=self.limited_tasks(),
                now=self._now(),
                behind=behind,
                freed_queues=freed_queues,
                **limits,
            )

    def close(self) -> None:
        self._database.close()
