"""How the claimer shares the free slots between limited and ordinary jobs."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.limits.claiming import LimitedClaimed
from django_graphile_worker.worker.limited.claimer import SharedClaimer

NO_ORDINARY_JOBS = Claimed(claims=[], seconds_until_next=None, has_more=False)


class Ordinary:
    """The ordinary jobs of a queue that has none."""

    def claim(self, **limits: Any) -> Claimed:
        return NO_ORDINARY_JOBS


class Limited:
    """A backlog of limited jobs: every free slot gets one."""

    def claim(self, max_jobs: int) -> LimitedClaimed:
        return LimitedClaimed(claims=[object()] * max_jobs, has_more=True, seconds_until_next=None)  # type: ignore[list-item]


def test_ordinary_backlog__is_not_assumed_when_limited_jobs_take_all_slots() -> None:
    # The keeper would rest long after each sorting, and the first job of a key would wait for it.
    claimer = SharedClaimer(Ordinary(), Limited(), sort=lambda: False)  # type: ignore[arg-type]
    for _ in range(4):
        claimed = claimer.claim(max_jobs=10, max_queues=10, max_per_queue=1, free_slots=3, max_bytes=1)
        assert claimed.claims
        assert not claimer.has_ordinary_backlog
