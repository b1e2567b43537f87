"""Claims that go on where the last one ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.factories import make_job, minutes_ago
from tests.support.stepped_worker import Build, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_resumes_behind_the_last_job_without_a_queue(runner: Build) -> None:
    """Where the claimed jobs of a queue end says nothing of the jobs without one."""
    worker = runner()
    queued = [make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 20)]
    plain = [make_job("quick", run_at=minutes_ago(minute)) for minute in (50, 40, 30)]
    other = make_job("quick", flags={"f": True}, run_at=minutes_ago(30))
    claimed = worker.claimer.claim(max_jobs=3, max_per_queue=3)
    assert [claim.id for claim in claimed.claims] == [queued[0], *plain[:2]]
    assert claimed.has_more
    claimed = worker.claimer.claim(max_jobs=4, max_per_queue=3)
    assert [claim.id for claim in claimed.claims] == [plain[2], other]


def test_resumes_nowhere_behind_the_last_job_of_a_queue(runner: Build) -> None:
    worker = runner()
    first, second = (make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 1))
    claimed = worker.claimer.claim(max_jobs=2, max_per_queue=2)
    assert [claim.id for claim in claimed.claims] == [first, second]
    older = make_job("quick", run_at=minutes_ago(30))
    assert [claim.id for claim in worker.claimer.claim(max_jobs=2, max_per_queue=2).claims] == [older]


def test_jobs_before_the_place_of_resumption_are_not_forgotten(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    for number in range(20):
        make_job("quick", {"n": number})
    worker = runner(concurrency=5)
    worker.fetcher.step()
    make_job("quick", {"n": 99}, run_at=minutes_ago(60))
    wait_until(lambda: worker.slots.is_idle)
    run_all(worker, wait_until)
    assert sorted(ran) == [*range(20), 99]
