"""Claims as values."""

from __future__ import annotations

from django_graphile_worker.sql.claims import group_by_token
from tests.support.slot import make_claim


def test_group_by_token__keeps_the_claims_of_a_statement_together() -> None:
    claims = [make_claim(id=number, token=token) for number, token in enumerate(["w/1", "w/1", "w/2", "w/1"])]
    assert group_by_token(claims) == {"w/1": [0, 1, 3], "w/2": [2]}
    assert group_by_token([]) == {}
