"""Claims jobs with the claim statement. A claim that has not read the whole backlog is continued by the next claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from django_graphile_worker.sql import claims
from django_graphile_worker.worker.database.blocking_cursor import BlockingCursor
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.blocked_jobs import Walk
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.looks import Look, Looks
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.job_clock import JobClock


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
        self._looks = Looks()
        self._walk = Walk()
        # The limited tasks of the worker, with the number of their limits.
        self.limited_shapes: Callable[[], Mapping[int, int]] = dict

    @property
    def reads_whole_backlog(self) -> bool:
        """Whether claims begin at the start of the backlog, which is cheap unless a snapshot is held for long."""
        return self._looks.are_whole

    def read_whole_backlog(self) -> None:
        """Have the next claim begin at the start of the backlog, whatever that costs."""
        self._looks.be_whole()

    def claim(self, **limits: int) -> claims.Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``; continue a claim that has not read everything."""
        if self._held.is_search_due:
            self._held.return_lost()
        if self._directory.is_review_due:
            self._directory.review()
        began = time.monotonic()
        look = self._looks.choose(began)
        max_steps = self._walk.steps(began) if look.may_walk else 0
        claimed = self._held.hold(lambda: self._claim(look, max_steps=max_steps, **limits))
        if claimed is None:
            return claims.Claimed(claims=[], seconds_until_next=None, has_more=True)
        if not claimed.claims and self._directory.find_new_tasks():
            return replace(claimed, has_more=True)
        ended = time.monotonic()
        self._on_answer(claimed)
        self._looks.note(look, claimed, began=began, ended=ended, max_jobs=limits["max_jobs"])
        if not look.may_walk:
            # There may be jobs that only the next claim reads.
            return replace(claimed, has_more=True)
        if max_steps:
            self._walk.note(claimed, began=began, ended=ended)
        return replace(claimed, seconds_until_next=self._until_next(claimed, ended))

    def close(self) -> None:
        self._database.close()

    def _until_next(self, claimed: claims.Claimed, now: float) -> float | None:
        """Return the seconds until the next claim is due: for the next job, a walk, or a look at a slice."""
        times = (self._walk.until_next(claimed, now), self._looks.until_next(now))
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _claim(self, look: Look, *, max_steps: int, **limits: int) -> claims.Claimed:
        if not look.has_queues:
            limits["max_queues"] = 0
        with self._cursor.usable() as cursor:
            return claims.claim_jobs(
                cursor,
                schema=self._database.schema,
                token=self._held.next_token(),
                task_ids=self._directory.ids,
                forbidden_flags=self._forbidden_flags(),
                now=self._now(),
                floors=look.floors,
                ends=look.ends,
                max_steps=max_steps,
                walk=self._walk.place,
                limited_shapes=self.limited_shapes(),
                **limits,
            )
