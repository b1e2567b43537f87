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


class OneJob:
    """One limited job, once it is ready."""

    is_ready = False

    def claim(self, max_jobs: int) -> LimitedClaimed:
        claims, self.is_ready = [object()] * self.is_ready, False
        return LimitedClaimed(claims=claims, has_more=False, seconds_until_next=None)  # type: ignore[arg-type]


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
