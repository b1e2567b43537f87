"""The progress that pages show, with an estimate of the time that is left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_graphile_worker.admin.shown_progress import seconds_left, shown_progress
from django_graphile_worker.sql.progress import Progress

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "silent", "expected"),
    [
        (250, 1000, 60, 0, 180),
        (250, 1000, 60, 30, 150),
        (250, 1000, 60, 181, None),
        (250, None, 60, 0, None),
        (0, 1000, 60, 0, None),
        (1000, 1000, 60, 0, None),
        (1200, 1000, 60, 0, None),
        (9, 1000, 60, 0, None),
        (250, 1000, 2, 0, None),
        (250, 1000, 60, -5, 180),
        (0, 0, 60, 0, None),
    ],
)
def test_estimate__is_that_of_the_rate_so_far_or_none(
    done: float, total: float | None, elapsed: float, silent: float, expected: float | None
) -> None:
    assert seconds_left(done, total, elapsed, silent) == expected


def test_shown__has_numbers_in_groups_and_the_time_that_is_left() -> None:
    progress = Progress(done=300.0, total=1200.0, message="page", updated_at=START + timedelta(seconds=60))
    shown = shown_progress(progress, sees_payloads=True, started_at=START, now=START + timedelta(seconds=70))
    assert shown is not None
    assert (shown.percent, shown.amount, shown.remaining) == (25, "300 of 1,200", "about 2 min left")


def test_shown__has_no_estimate_without_a_start_and_no_percent_without_a_total() -> None:
    shown = shown_progress(Progress(done=2.5, message="token=hunter2"), sees_payloads=False)
    assert shown is not None
    assert (shown.percent, shown.amount, shown.remaining) == (None, "2.5", "")
    assert "hunter2" not in shown.message
