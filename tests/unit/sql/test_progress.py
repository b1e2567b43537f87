"""The arguments of ``helpers.progress()``, and what is computed from them."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.sql.progress import MAX_MESSAGE_LENGTH, Progress, valid_progress


@pytest.mark.parametrize(
    ("done", "total", "fraction", "percent"),
    [(3, 7, 3 / 7, 42), (0, 7, 0.0, 0), (7, 7, 1.0, 100), (9, 7, 1.0, 100), (0, 0, 1.0, 100), (6.99, 7, 6.99 / 7, 99)],
)
def test_fraction__is_the_part_that_is_done(done: float, total: float, fraction: float, percent: int) -> None:
    progress = valid_progress(done, total)
    assert (progress.fraction, progress.percent) == (fraction, percent)


def test_fraction__is_unknown_without_a_total() -> None:
    assert valid_progress(5) == Progress(done=5.0)
    assert valid_progress(5).fraction is None
    assert valid_progress(5).percent is None


def test_message__is_cut_and_storable() -> None:
    progress = valid_progress(1, 2, "a\x00" + "b" * 1000)
    assert progress.message.startswith("a\\x00b")
    assert len(progress.message) <= MAX_MESSAGE_LENGTH + 3


@pytest.mark.parametrize("arguments", [("3", 7), (True, 7), (None,), (1, "7"), (1, 2, None), (1, 2, 3)])
def test_wrong_types__are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidTypeError, match=r"^progress: expected"):
        valid_progress(*arguments)


@pytest.mark.parametrize("arguments", [(-1, 7), (float("nan"), 7), (1, float("inf")), (10**400, 1), (1, -1)])
def test_impossible_numbers__are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidJobError, match=r"^progress: expected (done|total) to be a finite number"):
        valid_progress(*arguments)
