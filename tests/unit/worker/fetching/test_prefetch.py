"""How many waiting jobs are so few that the next claim must begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from django_graphile_worker.worker.fetching.prefetch import Prefetch


class Pool(SimpleNamespace):
    """A pool of five slots, whose jobs took this long."""

    concurrency = 5

    def totals(self) -> tuple[int, float]:
        return 100, 100 * self.seconds


@pytest.mark.parametrize(
    ("seconds", "ahead", "low_water"),
    [
        # Two thousand empty jobs last for moments only: the next claim begins early.
        (0.00001, 2000, 1500),
        # A hundred jobs of ten milliseconds are claimed when six are left, so a claim brings about ninety.
        (0.01, 100, 6),
        (0.1, 10, 0),
        (0.6, 0, 0),
    ],
)
def test_low_water__is_what_the_slots_run_during_a_claim(seconds: float, ahead: int, low_water: int) -> None:
    now = [0.0]
    prefetch = Prefetch(cast("Any", Pool(seconds=seconds)), clock=lambda: now[0])
    prefetch.note_claim(is_full=True)
    now[0] = 1.0
    assert prefetch.ahead(2000) == ahead
    assert prefetch.low_water(ahead) == low_water


@pytest.mark.parametrize(("seconds", "ahead"), [(0.01, 25), (0.05, 5), (0.06, 0), (0.1, 0)])
def test_long_jobs__are_not_claimed_ahead_without_a_backlog(seconds: float, ahead: int) -> None:
    prefetch = Prefetch(cast("Any", Pool(seconds=seconds)))
    assert prefetch.ahead(2000) == ahead


def test_long_jobs__are_claimed_ahead_when_claims_have_been_full_for_as_long_as_a_job() -> None:
    """After one full claim, another worker may have free slots for the rest of the jobs."""
    now = [0.0]
    prefetch = Prefetch(cast("Any", Pool(seconds=0.1)), clock=lambda: now[0])
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 0
    now[0] = 0.09
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 0
    now[0] = 0.11
    assert prefetch.ahead(2000) == 2
    prefetch.note_claim(is_full=False)
    assert prefetch.ahead(2000) == 0
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 0


def test_more_jobs__are_claimed_ahead_when_claims_have_been_full_for_longer() -> None:
    now = [0.0]
    prefetch = Prefetch(cast("Any", Pool(seconds=0.01)), clock=lambda: now[0])
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 25
    now[0] = 0.19
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 25
    now[0] = 0.21
    assert prefetch.ahead(2000) == 100
    prefetch.note_claim(is_full=False)
    assert prefetch.ahead(2000) == 25
