"""The fast path of the fetcher, on a real database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.factories import make_job, minutes_ago
from tests.support.stepped_worker import Build, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_learns_when_the_next_job_falls_due(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    worker = runner(poll_interval=600)
    worker.fetcher._poll_interval = 600.0
    run_all(worker, wait_until)
    make_job("quick", {"n": 1})
    make_job("quick", {"n": 2}, run_at=minutes_ago(-2))
    worker.fast_claim._is_promising = True
    worker.fetcher.wake()
    worker.fetcher.round()
    wait_until(lambda: ran == [1])
    assert worker.fetcher.round() <= 120
