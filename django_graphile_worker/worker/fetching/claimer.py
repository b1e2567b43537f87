"""Claims jobs with the claim statement. A claim that has not read the whole backlog is continued by the next claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from django_graphile_worker.sql import claims
from django_graphile_worker.worker.database.blocking_cursor import BlockingCursor
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.blocked_jobs import Walk
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.job_clock import JobClock

# Seconds. Under a long backlog, a claim resumes where the last claim ended. After this time a claim reads the backlog
# from its start: a job that sorts before the last claimed jobs, or whose queue has just become free, waits this long at
# most.
WHOLE_LOOK_INTERVAL = 0.1


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
        self._last: claims.Claim | None = None
        self._walk = Walk()
        self._looked_at_all_at = 0.0

    def claim(self, **limits: int) -> claims.Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``; continue a claim that has not read everything."""
        if self._held.is_search_due:
            self._held.return_lost()
        if self._directory.is_review_due:
            self._directory.review()
        resume_after = self._resume_after()
        began = time.monotonic()
        # A resumed claim takes the next jobs of a long backlog and does not walk; a claim from the start follows soon.
        max_steps = self._walk.steps(began) if resume_after is None else 0
        claimed = self._held.hold(lambda: self._claim(resume_after=resume_after, max_steps=max_steps, **limits))
        if claimed is None:
            return claims.Claimed(claims=[], seconds_until_next=None, has_more=True)
        self._on_answer(claimed)
        self._last = _last_unqueued(claimed.claims) if claimed.has_more else None
        if resume_after is not None:
            # There may be a job before the resumed place, which only the next claim from the start finds.
            return replace(claimed, has_more=True)
        self._looked_at_all_at = ended = time.monotonic()
        if max_steps:
            self._walk.note(claimed, began=began, ended=ended)
        return replace(claimed, seconds_until_next=self._walk.until_next(claimed, ended))

    def close(self) -> None:
        self._database.close()

    def _resume_after(self) -> claims.Claim | None:
        is_due = time.monotonic() - self._looked_at_all_at > WHOLE_LOOK_INTERVAL
        return None if is_due else self._last

    def _claim(self, *, resume_after: claims.Claim | None, max_steps: int, **limits: int) -> claims.Claimed:
        with self._cursor.usable() as cursor:
            return claims.claim_jobs(
                cursor,
                schema=self._database.schema,
                token=self._held.next_token(),
                task_ids=self._directory.ids,
                forbidden_flags=self._forbidden_flags(),
                now=self._now(),
                resume_after=resume_after,
                max_steps=max_steps,
                walk=self._walk.place,
                **limits,
            )


def _last_unqueued(claimed: Sequence[claims.Claim]) -> claims.Claim | None:
    """Return the job after which the next claim resumes.

    A job of a queue may be claimed before its turn, so its place in the backlog does not count.
    """
    return next((claim for claim in reversed(claimed) if claim.queue_id is None), None)
