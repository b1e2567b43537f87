"""The claims that a worker notes, and forgets when they end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.worker.fetching.claimer import HeldClaims
from tests.support.slot import make_claim


def test_forget__leaves_only_the_claims_that_have_not_ended() -> None:
    """Otherwise the memory of a worker would grow with every job."""
    worker: Any = SimpleNamespace(claim_database=None, worker_id="w")
    held = HeldClaims(worker)
    claims = [make_claim(id=number, token=token) for number, token in enumerate(["w/1", "w/1", "w/2"], 1)]
    for statement in (claims[:2], claims[2:]):
        held.hold(lambda statement=statement: Claimed(claims=statement, seconds_until_next=None, has_more=False))  # type: ignore[misc]
    held.forget([claims[0], claims[2]])
    assert held._known == {"w/1": {2}}
    held.forget(claims)
    assert held._known == {}
