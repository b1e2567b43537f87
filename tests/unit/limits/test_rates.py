"""Rates: how many jobs may start in a time."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits.numbers import Rate


@pytest.mark.parametrize(
    ("text", "count", "seconds", "shown"),
    [
        ("100/m", 100, 60, "100/m"),
        ("5/s", 5, 1, "5/s"),
        ("1000/h", 1000, 3600, "1000/h"),
        ("7/d", 7, 86_400, "7/d"),
        ("300/15m", 300, 900, "300/15m"),
        ("1/10s", 1, 10, "1/10s"),
        ("100/60s", 100, 60, "100/m"),
        (" 10 / minute ", 10, 60, "10/m"),
        ("10 per hour", 10, 3600, "10/h"),
        ("2/DAYS", 2, 86_400, "2/d"),
    ],
)
def test_rate__is_read_and_written(text: str, count: int, seconds: int, shown: str) -> None:
    rate = Rate.parse(text)
    assert (rate.count, rate.seconds, str(rate)) == (count, seconds, shown)
    assert Rate.parse(str(rate)) == rate == Rate.parse(rate)


@pytest.mark.parametrize("text", ["", "100", "m/100", "100/", "/m", "100/y", "100/m/s", "-5/m", "1e3/m", "٣/m", "5/mm"])
def test_text_that_is_no_rate__is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        Rate.parse(text)
    assert str(refused.value).startswith("rate: expected a rate like '100/m'")
    assert str(refused.value).endswith(f"got {text!r}.")


def test_fraction__is_a_longer_window() -> None:
    with pytest.raises(InvalidJobError, match=r"got '0.5/s'\. Write '1/2s'\."):
        Rate.parse("0.5/s")
    with pytest.raises(InvalidJobError, match="'1/10s' is one start in ten seconds"):
        Rate.parse("0.1/s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0/m", "expected 1 to 1000000 starts, got '0/m'."),
        ("1000001/m", "expected 1 to 1000000 starts, got '1000001/m'."),
        ("1/0s", "expected a window of 1 second to 31 days, got '1/0s'."),
        ("1/32d", "expected a window of 1 second to 31 days, got '1/32d'."),
    ],
)
def test_rate_out_of_range__is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        Rate.parse(text, name="Limit: rate")
    assert str(refused.value) == f"Limit: rate: {message}"


@pytest.mark.parametrize("value", [5, 5.0, None, ("5", "m"), b"5/m"])
def test_value_of_another_type__is_refused(value: Any) -> None:
    with pytest.raises(InvalidTypeError, match="expected a rate like '100/m'"):
        Rate.parse(value)
