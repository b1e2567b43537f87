"""When a fast claim is worth a try."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from django_graphile_worker.sql.claims import Claim, Claimed, FastClaimed
from django_graphile_worker.worker.fetching import claimer
from django_graphile_worker.worker.fetching.claimer import (
    SLOW_FAST_CLAIM,
    SLOW_IN_A_ROW,
    FastPath,
    HeldClaims,
)


def claim(number: int = 1, *, queue_id: int | None = None) -> Claim:
    return Claim(number, 1, 1, "{}", queue_id, 0, 0.0, 25, None, 0, None, None, 0.0, 0.0, None, "w/1")


class Stage:
    """A fast path without a database: what it finds, how long that takes, and how often it was run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.takes = 0.0
        self.finds: list[Claim] = [claim()]
        self.runs = 0
        monkeypatch.setattr(claimer, "claim_few", self.claim_few)
        monkeypatch.setattr(claimer, "PreparedStatement", lambda *arguments, **options: self)
        self.is_possible = True
        self.worker: Any = Mock(worker_id="w", claim_database=SimpleNamespace(schema="s"))
        self.worker.pool.vacant = 10
        self.worker.directory.is_review_due = False
        self.worker.held = HeldClaims(self.worker)
        self.fast_path = FastPath(self.worker, clock=lambda: self.now)

    def claim_few(self, statement: Any, **options: Any) -> FastClaimed:
        self.runs += 1
        self.now += self.takes
        return FastClaimed(self.finds, None)

    def claim(self) -> list[Claim]:
        """Start the due jobs; return them."""
        return self.finds if self.fast_path.start_due_jobs() is not None else []


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_is_not_tried_again_after_it_found_nothing_until_it_would_have_done(stage: Stage) -> None:
    stage.finds = []
    stage.claim()
    stage.claim()
    assert stage.runs == 1
    stage.fast_path.learn_from(Claimed(claims=[], seconds_until_next=None, has_more=False))
    stage.claim()
    assert stage.runs == 1
    stage.fast_path.learn_from(Claimed(claims=[claim()], seconds_until_next=None, has_more=False))
    stage.claim()
    assert stage.runs == 2


@pytest.mark.parametrize(
    "claimed",
    [
        Claimed(claims=[claim(1), claim(2, queue_id=3)], seconds_until_next=None, has_more=False),
        Claimed(claims=[claim()], seconds_until_next=None, has_more=True),
    ],
    ids=["queues", "more than there was room for"],
)
def test_is_not_tried_again_while_there_is_more_to_decide(stage: Stage, claimed: Claimed) -> None:
    stage.finds = []
    stage.claim()
    stage.fast_path.learn_from(claimed)
    stage.claim()
    assert stage.runs == 1


def test_rests_when_it_is_slow_several_times_in_a_row(stage: Stage) -> None:
    for takes in [SLOW_FAST_CLAIM * 1.1] * (SLOW_IN_A_ROW - 1) + [0.0] + [SLOW_FAST_CLAIM * 1.1] * SLOW_IN_A_ROW:
        stage.takes = takes
        assert stage.claim() == stage.finds
    assert stage.claim() == []
