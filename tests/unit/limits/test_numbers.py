"""The numbers of a limit."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits.numbers import LimitNumbers


def test_numbers__are_told_as_statements_and_people_need_them() -> None:
    numbers = LimitNumbers(concurrency=3, rate="100/m", burst=20)
    assert (numbers.rate_count, numbers.rate_seconds, numbers.are_limiting) == (100, 60, True)
    assert str(numbers) == "3 at once, 100/m, burst 20"
    none = LimitNumbers()
    assert (none.rate_count, none.rate_seconds, none.are_limiting, str(none)) == (None, None, False, "no limit")


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"concurrency": 0}, InvalidJobError, "Limit: concurrency: expected a whole number from 1 to 100000, got 0."),
        (
            {"concurrency": True},
            InvalidTypeError,
            "Limit: concurrency: expected a whole number from 1 to 100000, got True (bool).",
        ),
        ({"rate": "5/m", "burst": 6}, InvalidJobError, "Limit: burst: expected a whole number from 1 to 5, got 6."),
        ({"concurrency": 5, "burst": 2}, InvalidJobError, "Limit: expected a rate with burst=2, got none: "),
    ],
)
def test_numbers_that_mean_nothing__are_refused(values: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        LimitNumbers(**values)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "3 at once, 100/m, burst 20"),
        ({"concurrency": 9}, "9 at once, 100/m, burst 20"),
        ({"concurrency": None}, "100/m, burst 20"),
        ({"rate": None}, "3 at once"),
        ({"rate": "10/m"}, "3 at once, 10/m"),
        ({"rate": "10/m", "burst": 2}, "3 at once, 10/m, burst 2"),
        ({"burst": None}, "3 at once, 100/m"),
        ({"burst": 500}, "3 at once, 100/m"),
    ],
)
def test_overridden_numbers__keep_what_is_not_named(changes: dict[str, Any], expected: str) -> None:
    assert str(LimitNumbers(concurrency=3, rate="100/m", burst=20).overridden(changes)) == expected
