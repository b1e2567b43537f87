"""Figures are found by their place, and rounded to what is known."""

from __future__ import annotations

import pytest

from benchmarks.report.figures import Figures, Place, rounded
from tests.unit.benchmarks.test_results import measured


@pytest.mark.parametrize(
    ("value", "text"),
    [(43_912.4, "43,900"), (1.2749, "1.27"), (0.5, "0.5"), (1000.0, "1,000"), (99.96, "100"), (0, "0"), (25.0, "25")],
)
def test_rounded__has_three_digits(value: float, text: str) -> None:
    assert rounded(value) == text


def test_get__is_the_median_or_none() -> None:
    figures = Figures({"drain": measured("drain", 1.0, 5.0, 3.0)})
    assert figures.get(Place("drain", "drain_1", "ours", "rate")) == 3.0
    for place in (
        Place("idle", "drain_1", "ours", "rate"),
        Place("drain", "drain_2", "ours", "rate"),
        Place("drain", "drain_1", "node", "rate"),
        Place("drain", "drain_1", "ours", "memory"),
    ):
        assert figures.get(place) is None


def test_preliminary__names_each_reason_once() -> None:
    one, two = measured("drain", 1.0), measured("idle", 1.0)
    one.preliminary = ["the load average was 1.20 at the start", "measured in the quick mode"]
    two.preliminary = ["the load average was 0.90 at the start"]
    reasons = Figures({"drain": one, "idle": two}).preliminary("drain", "idle", "missing")
    assert reasons == ["the load average was above 0.5", "measured in the quick mode"]
