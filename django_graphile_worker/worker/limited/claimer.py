"""Shares the free slots between limited and ordinary jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.limits import LimitedClaimed, claim_limited
from django_graphile_worker.worker.fetching.claimer import Claimer
from django_graphile_worker.worker.limited.keeper import Keeper, LimitedTasks

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

NOTHING = LimitedClaimed(claims=[], has_more=False, seconds_until_next=None)


class LimitedClaims:
    """The claim statement of limited jobs, bound to the worker's connection."""

    def __init__(self, worker: DatabaseWorker, tasks: LimitedTasks) -> None:
        self._worker = worker
        self._database = worker.claim_database
        self._tasks = tasks

    def claim(self, max_jobs: int) -> LimitedClaimed:
        """Claim limited jobs for free slots: they start at once."""
        if not self._tasks.ids:
            return NOTHING
        claimed = self._worker.held.hold(lambda: self._claim(max_jobs))
        if claimed is None:
            return replace(NOTHING, has_more=True)
        if claimed.expired_at is not None:
            # These jobs are not counted. The slots must come to the same result, whatever they know of that clock.
            self._worker.heartbeat.note_time_passed(claimed.expired_at)
        return claimed

    def _claim(self, max_jobs: int) -> LimitedClaimed:
        worker = self._worker
        with self._database.cursor() as cursor:
            return claim_limited(
                cursor,
                schema=self._database.schema,
                token=worker.held.next_token(),
                expiries=self._tasks.expiries,
                other_tasks=self._tasks.others,
                numbers=self._tasks.numbers,
                max_jobs=max_jobs,
                forbidden_flags=worker.forbidden_flags(),
                now=worker.now(),
                clock=worker.limit_time(),
            )


class SharedClaimer:
    """Claims limited jobs into free slots, and ordinary jobs into the rest. While both wait, each gets half."""

    def __init__(self, ordinary: Claimer, limited: LimitedClaims, keeper: Keeper) -> None:
        self._ordinary = ordinary
        self._limited = limited
        self._keeper = keeper
        # When the next claim of limited jobs may find one: set by other threads, too.
        self._look_at = -math.inf
        # Whether the last claim has left jobs that could run. Other threads read it.
        self.is_limited_waiting = False
        self.has_ordinary_backlog = False
        # The same, or True when the last claim had no room for ordinary jobs, and did not look for any.
        self._may_ordinary_wait = False
        # Who gets the odd slot.
        self._is_turn_of_limited = True

    def look_at_once(self) -> None:
        """Have the next claim look for limited jobs: a lane has become ready."""
        self._look_at = -math.inf

    def claim(self, *, max_jobs: int, max_per_queue: int, max_bytes: int, free_slots: int) -> Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``. Limited jobs are claimed for free slots only."""
        has_unsorted = self._keeper.call()
        if free_slots < 1 and self._may_ordinary_wait and monotonic() >= self._look_at:
            # Until a claim has looked, jobs that are claimed ahead must not take every slot that becomes free.
            self.is_limited_waiting = True
        are_both_waiting = self.is_limited_waiting and self._may_ordinary_wait
        if are_both_waiting and free_slots < 1:
            # No jobs ahead: they would take the slots of limited jobs. A slot that takes a waiting job calls again.
            return Claimed(claims=[], seconds_until_next=None, has_more=True, waits_for_slot=True)
        share = self._share_of_limited(free_slots) if are_both_waiting else free_slots
        limited = self._claim_limited(share)
        room = (free_slots if are_both_waiting else max_jobs) - len(limited.claims)
        if room < 1:
            self._may_ordinary_wait = True
            return Claimed(claims=limited.claims, seconds_until_next=None, has_more=True)
        try:
            ordinary = self._ordinary.claim(
                max_jobs=room,
                max_per_queue=max_per_queue,
                max_bytes=max_bytes,
                free_slots=max(free_slots - len(limited.claims), 0),
            )
        except Exception:
            if not limited.claims:
                raise
            # The limited jobs are claimed, and must run. The next claim meets the error again, or it has passed.
            self._may_ordinary_wait = True
            return Claimed(claims=limited.claims, seconds_until_next=None, has_more=True)
        self._may_ordinary_wait = self.has_ordinary_backlog = ordinary.has_more
        together = self._together(limited, ordinary)
        return replace(together, has_more=True) if has_unsorted else together

    def _share_of_limited(self, free_slots: int) -> int:
        half, odd = divmod(free_slots, 2)
        if odd:
            self._is_turn_of_limited = not self._is_turn_of_limited
        return half + (odd if self._is_turn_of_limited else 0)

    def _claim_limited(self, share: int) -> LimitedClaimed:
        if share < 1 or (not self.is_limited_waiting and monotonic() < self._look_at):
            return replace(NOTHING, has_more=self.is_limited_waiting)
        # Before the statement: what becomes ready meanwhile is for the next claim.
        self._look_at = math.inf
        limited = self._limited.claim(share)
        self.is_limited_waiting = limited.has_more
        if limited.seconds_until_next is not None:
            self._look_at = min(self._look_at, monotonic() + limited.seconds_until_next)
        return limited

    def _together(self, limited: LimitedClaimed, ordinary: Claimed) -> Claimed:
        until_look = max(self._look_at - monotonic(), 0.0)
        times = [ordinary.seconds_until_next, None if math.isinf(until_look) else until_look]
        return replace(
            ordinary,
            claims=[*limited.claims, *ordinary.claims],
            seconds_until_next=min((seconds for seconds in times if seconds is not None), default=None),
            has_more=ordinary.has_more or limited.has_more,
        )
