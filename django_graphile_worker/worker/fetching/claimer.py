"""Claims jobs with the claim statement."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.sql import claims
from django_graphile_worker.worker.database.prepared import BlockingCursor
from django_graphile_worker.worker.fetching.scan import MIN_REST, REST, Scan

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

MAX_FREED_QUEUES = 1000


class Claimer:
    """Claims jobs of the tasks that this worker runs."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._database = worker.claim_database
        self._cursor = BlockingCursor(worker.claim_database)
        self._held = worker.held
        self._directory = worker.directory
        self.scan = Scan()
        # Queues that this worker has released: unless the next claim begins at the start, their jobs stand before the
        # place where it goes on. Other threads add to it. What does not fit in is found by a claim from the start.
        self._freed_queues: deque[int] = deque(maxlen=MAX_FREED_QUEUES)
        # Those of which a claim took no job: others came first, or had locked them. And when they are tried again.
        self._left_queues: deque[int] = deque(maxlen=MAX_FREED_QUEUES)
        self._try_left_queues_at = 0.0

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
        flags = self._worker.forbidden_flags()
        behind = self.scan.behind(began, (tuple(self._directory.ids), frozenset(flags)))
        freed = self._take_freed_queues(began)
        limits = {"max_jobs": max_jobs, "max_per_queue": max_per_queue, "max_bytes": max_bytes}
        try:
            claimed = self._held.hold(
                lambda: self._claim(behind, () if behind == claims.START else freed, flags, **limits)
            )
        except psycopg.errors.QueryCanceled:
            self.scan.note_cancelled(began=began, ended=time.monotonic())
            self.note_freed_queues(freed)
            raise
        except BaseException:
            self.scan.begin_again()
            raise
        if claimed is None:
            self.scan.begin_again()
            return claims.Claimed(claims=[], seconds_until_next=None, has_more=True)
        if not claimed.claims and self._directory.find_new_tasks():
            self.note_freed_queues(freed)
            self.scan.begin_again()
            return replace(claimed, has_more=True)
        ended = time.monotonic()
        self._worker.fast_path.learn_from(claimed)
        self.scan.note(claimed, ended=ended)
        until_pass = self.scan.until_next_pass(ended)
        if claimed.freed_queues:
            self._left_queues.extend(claimed.freed_queues)
            self._try_left_queues_at = ended + max(MIN_REST, REST * claimed.seconds if claimed.has_more else 0.0)
        elif not claimed.has_more:
            # Nothing else comes first.
            self.note_freed_queues(self._left_queues)
            self._left_queues.clear()
        until_left = max(self._try_left_queues_at - ended, 0.0) if self._left_queues else None
        waits = [each for each in (claimed.seconds_until_next, until_pass, until_left) if each is not None]
        # Queues that were released during the claim call for the next.
        has_more = claimed.has_more or until_pass == 0 or bool(self._freed_queues)
        return replace(claimed, seconds_until_next=min(waits, default=None), has_more=has_more)

    def note_freed_queues(self, queue_ids: Iterable[int]) -> None:
        """Have the next claim look for jobs of these queues."""
        self._freed_queues.extend(queue_ids)

    def _take_freed_queues(self, now: float) -> list[int]:
        freed = [self._freed_queues.popleft() for _ in range(len(self._freed_queues))]
        if now >= self._try_left_queues_at:
            freed.extend(self._left_queues)
            self._left_queues.clear()
        return freed

    def _claim(
        self, behind: claims.Continuation, freed_queues: Collection[int], forbidden_flags: Sequence[str], **limits: int
    ) -> claims.Claimed:
        limited = self._worker.limited
        with self._cursor.usable() as cursor:
            return claims.claim_jobs(
                cursor,
                schema=self._database.schema,
                token=self._held.next_token(),
                task_ids=self._directory.ids,
                forbidden_flags=forbidden_flags,
                limited_tasks=() if limited is None else limited.tasks.ids,
                now=self._worker.now(),
                behind=behind,
                freed_queues=freed_queues,
                **limits,
            )

    def close(self) -> None:
        self._database.close()
