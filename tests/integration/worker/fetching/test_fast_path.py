"""The fast path of the fetcher, on a real database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.fetching.claimer import Claimer, FastPath
from django_graphile_worker.worker.fetching.scan import Scan
from django_graphile_worker.worker.outcomes import Outcome
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job, minutes_ago
from tests.support.stepped_worker import Build, expect_fast_claim, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_learns_when_the_next_job_falls_due(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    worker = runner(poll_interval=600)
    worker.fetcher._poll_interval = 600.0
    run_all(worker, wait_until)
    make_job("quick", {"n": 1})
    make_job("quick", {"n": 2}, run_at=minutes_ago(-2))
    expect_fast_claim(worker)
    worker.fetcher.wake()
    worker.fetcher.round()
    wait_until(lambda: ran == [1])
    assert worker.fetcher.round() <= 120


def test_starts_all_jobs_that_are_due_without_the_claim_statement(
    runner: Build, wait_until: Wait, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the claim statement")

    worker = runner(concurrency=5)
    monkeypatch.setattr(Claimer, "send", fail)
    for number in range(3):
        make_job("quick", {"n": number})
    assert worker.fetcher.round() == 0.0
    assert worker.fetcher.trouble is None
    wait_until(lambda: sorted(ran) == [0, 1, 2])


def test_is_not_tried_while_the_start_of_the_backlog_is_expensive_to_read(
    runner: Build, wait_until: Wait, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the fast claim")

    worker = runner()
    monkeypatch.setattr(FastPath, "send", fail)
    monkeypatch.setattr(Scan, "is_quick", False)
    make_job("quick", {"n": 1})
    worker.fetcher.round()
    assert worker.fetcher.trouble is None
    run_all(worker, wait_until)
    assert ran == [1]


def test_the_thread_that_claimed_a_lone_job_runs_it(
    runner: Build, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another thread fetches meanwhile."""
    claimed: list[int] = []
    ran_by: list[int] = []
    worker = runner(concurrency=5)
    claim, run = FastPath.send, worker.pool._run

    def note_claim(path: FastPath, vacant: int) -> Any:
        found = claim(path, vacant)
        claimed.extend(threading.get_ident() for _ in found.claims)
        return found

    def note_run(job: Claim) -> Outcome:
        ran_by.append(threading.get_ident())
        return run(job)

    monkeypatch.setattr(FastPath, "send", note_claim)
    monkeypatch.setattr(worker.pool, "_run", note_run)
    make_job("quick")
    worker.fetcher.start()
    wait_until(lambda: len(ran_by) == 1)
    assert claimed == ran_by
    make_job("quick")
    worker.fetcher.wake()
    wait_until(lambda: len(ran_by) == 2)
    worker.fetcher.stop()
    assert worker.fetcher.join(WAIT_TIMEOUT)
