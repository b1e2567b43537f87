"""How long the last jobs took, on average."""

from __future__ import annotations

import pytest

from django_graphile_worker.worker.fetching.mean_duration import MeanDuration


def test_no_job__has_no_duration() -> None:
    duration = MeanDuration()
    duration.add(0, 0.0)
    assert duration.seconds is None


def test_one_interrupted_job_of_thousands__changes_little() -> None:
    duration = MeanDuration()
    duration.add(1000, 0.01)
    duration.add(3, 0.01)
    assert duration.seconds == pytest.approx(0.0002, rel=0.1)
    duration.add(1000, 0.01)
    assert duration.seconds == pytest.approx(0.00002, rel=0.1)


def test_jobs_that_have_become_long__are_noticed_after_a_few() -> None:
    duration = MeanDuration()
    duration.add(1000, 0.01)
    duration.add(10, 1.0)
    assert duration.seconds == pytest.approx(0.017, rel=0.1)
    for _ in range(20):
        duration.add(10, 1.0)
    assert duration.seconds == pytest.approx(0.1, rel=0.1)


def test_forgotten_jobs__do_not_count() -> None:
    duration = MeanDuration()
    duration.add(1000, 0.01)
    duration.forget()
    assert duration.seconds is None
    duration.add(1, 0.5)
    assert duration.seconds == 0.5
