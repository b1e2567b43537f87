"""How the claimer shares the free slots between limited and ordinary jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.limits import LimitedClaimed
from django_graphile_worker.worker.limited import SharedClaimer

# Another thread sorts.
KEEPER: Any = SimpleNamespace(call=lambda: False)
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
    claimer = SharedClaimer(Ordinary(), Limited(), KEEPER)  # type: ignore[arg-type]
    for _ in range(4):
        claimed = claimer.claim(max_jobs=10, max_per_queue=1, free_slots=3, max_bytes=1)
        assert claimed.claims
        assert not claimer.has_ordinary_backlog


class Backlog:
    """More ordinary jobs than a worker can claim."""

    def __init__(self) -> None:
        self.claimed = 0

    def claim(self, *, max_jobs: int, **limits: Any) -> Claimed:
        self.claimed += max_jobs
        return Claimed(claims=[object()] * max_jobs, seconds_until_next=None, has_more=True)  # type: ignore[list-item]


class OneJob:
    """One limited job, once it is ready."""

    is_ready = False

    def claim(self, max_jobs: int) -> LimitedClaimed:
        claims, self.is_ready = [object()] * self.is_ready, False
        return LimitedClaimed(claims=claims, has_more=False, seconds_until_next=None)  # type: ignore[arg-type]


def test_limited_job__gets_one_of_the_next_two_slots_beside_ordinary_jobs_that_are_claimed_ahead() -> None:
    ordinary, limited = Backlog(), OneJob()
    claimer = SharedClaimer(ordinary, limited, KEEPER)  # type: ignore[arg-type]

    def claim(free_slots: int) -> int:
        before = ordinary.claimed
        claimer.claim(max_jobs=10, max_per_queue=1, free_slots=free_slots, max_bytes=1)
        return ordinary.claimed - before

    assert claim(5) == 10
    assert claim(0) == 10, "no limited job is known"
    limited.is_ready = True
    claimer.claim_limited_soon()
    assert claim(0) == 0, "the slots must become free"
    # While both wait, each gets every second slot.
    assert claim(1) + claim(1) == 1
    assert not limited.is_ready
    assert claim(0) == 10


class Failing:
    """Ordinary jobs whose claim fails."""

    def claim(self, **limits: Any) -> Claimed:
        raise psycopg.errors.QueryCanceled


def test_limited_jobs__run_although_the_claim_of_ordinary_jobs_fails() -> None:
    limited = OneJob()
    limited.is_ready = True
    claimer = SharedClaimer(Failing(), limited, KEEPER)  # type: ignore[arg-type]
    claimed = claimer.claim(max_jobs=10, max_per_queue=1, free_slots=3, max_bytes=1)
    assert len(claimed.claims) == 1
    assert claimed.has_more
    with pytest.raises(psycopg.errors.QueryCanceled):
        claimer.claim(max_jobs=10, max_per_queue=1, free_slots=2, max_bytes=1)
