"""When a glance is worth it."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.fast_claim import Glance
from django_graphile_worker.worker.fetching import fast_path as glancing
from django_graphile_worker.worker.fetching.fast_path import LONGEST_GLANCE, REST, FastClaim


def claim(number: int = 1, *, queue_id: int | None = None) -> Claim:
    return Claim(number, 1, 1, "{}", queue_id, 0, 0.0, 25, None, 0, None, None, 0.0, 0.0, None, "w/1")


class Rehearsal:
    """A glancer on a stage: what it finds, how long that takes, and how often it looked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.takes = 0.0
        self.finds: list[Claim] = [claim()]
        self.looks = 0
        monkeypatch.setattr(glancing, "take_few", self.take_few)
        monkeypatch.setattr(glancing, "PreparedStatement", lambda *arguments, **options: self)
        self.is_possible = True
        self.glancer = FastClaim(None, schema="s", clock=lambda: self.now)  # type: ignore[arg-type]

    def take_few(self, statement: Any, **options: Any) -> Glance:
        self.looks += 1
        self.now += self.takes
        return Glance(self.finds, None)

    def look(self) -> list[Claim]:
        return self.glancer(10, token="w", task_ids=b"{}", forbidden_flags=(), now=None).claims


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    return Rehearsal(monkeypatch)


def test_goes_on_as_long_as_it_finds_something(rehearsal: Rehearsal) -> None:
    for _ in range(3):
        assert rehearsal.look() == rehearsal.finds
    assert rehearsal.looks == 3


def test_in_vain_once_is_enough_until_it_would_have_done(rehearsal: Rehearsal) -> None:
    rehearsal.finds = []
    rehearsal.look()
    rehearsal.look()
    assert rehearsal.looks == 1
    rehearsal.glancer.learn_from(Claimed(claims=[], seconds_until_next=None, has_more=False))
    rehearsal.look()
    assert rehearsal.looks == 1
    rehearsal.glancer.learn_from(Claimed(claims=[claim()], seconds_until_next=None, has_more=False))
    rehearsal.look()
    assert rehearsal.looks == 2


@pytest.mark.parametrize(
    "claimed",
    [
        Claimed(claims=[claim(1), claim(2, queue_id=3)], seconds_until_next=None, has_more=False),
        Claimed(claims=[claim()], seconds_until_next=None, has_more=True),
    ],
    ids=["queues", "more than there was room for"],
)
def test_is_not_for_those_who_have_more_to_weigh_up(rehearsal: Rehearsal, claimed: Claimed) -> None:
    rehearsal.finds = []
    rehearsal.look()
    rehearsal.glancer.learn_from(claimed)
    rehearsal.look()
    assert rehearsal.looks == 1


def test_rests_when_it_takes_long(rehearsal: Rehearsal) -> None:
    rehearsal.takes = LONGEST_GLANCE * 1.1
    assert rehearsal.look() == rehearsal.finds
    assert rehearsal.look() == []
    rehearsal.now += REST * rehearsal.takes * 0.9
    assert rehearsal.look() == []
    rehearsal.now += REST * rehearsal.takes * 0.2
    assert rehearsal.look() == rehearsal.finds


def test_does_not_look_where_it_is_not_possible(rehearsal: Rehearsal) -> None:
    rehearsal.is_possible = False
    assert rehearsal.look() == []
    assert rehearsal.looks == 0
