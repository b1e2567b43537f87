"""Requests to stop runs, and to keep claims from beginning; the deadlines of runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from django_graphile_worker.worker.control.run_stops import Deadlines, RunStops
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Cancelled, RunStop
from tests.conftest import WAIT_TIMEOUT
from tests.support.slot import WORKER_ID, make_claim

CANCELLED = RunStop(kind="cancelled", reason="no longer wanted", by="somebody")

Wait = Callable[..., None]


class Worker(DatabaseWorker):
    """The worker of the stops, with runs that the test begins and ends."""

    def __init__(self) -> None:
        # Not the constructor of the base class, which builds all parts.
        self.runs: list[JobRun] = []
        self.aborted: list[JobRun] = []
        self.settings = cast("Any", SimpleNamespace(stop_grace=1.0))
        self.heartbeat = cast("Any", SimpleNamespace(holds_lease=True))
        self.worker_id = WORKER_ID
        self.pauses = cast("Any", SimpleNamespace(hold_any=False))
        self.executor = cast(
            "Any",
            SimpleNamespace(
                runs=lambda: list(self.runs), is_running=lambda run: run in self.runs, request_stop=self.aborted.append
            ),
        )
        self.run_stops = RunStops(self)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.runs.clear()


@pytest.fixture
def stops(worker: Worker) -> RunStops:
    return worker.run_stops


def test_a_claim_that_has_not_begun__never_begins(worker: Worker, stops: RunStops) -> None:
    claim, other = make_claim(id=1), make_claim(id=2)
    stops.request(claim.id, claim.token, CANCELLED)
    assert (worker.may_begin(claim), worker.may_begin(other)) == (False, True)
    outcome = stops.refuse(claim)
    assert isinstance(outcome, Cancelled)
    assert (outcome.claim, outcome.stop, outcome.has_begun) == (claim, CANCELLED, False)
    assert stops.refuse(other) is None


def test_a_lost_lease__keeps_claims_from_beginning_beside_requests(worker: Worker, stops: RunStops) -> None:
    stops.request(1, "token", CANCELLED)
    worker.heartbeat = cast("Any", SimpleNamespace(holds_lease=False))
    assert not worker.may_begin(make_claim(id=2))
    assert stops.refuse(make_claim(id=2)) is None


def test_a_run__is_stopped_once(worker: Worker, stops: RunStops, wait_until: Wait) -> None:
    run = JobRun(make_claim(id=1), 0.0)
    worker.runs.append(run)
    for _ in range(2):
        stops.request(run.claim.id, run.claim.token, CANCELLED)
    wait_until(lambda: worker.aborted)
    assert worker.aborted == [run]
    assert run.stopping is not None
    assert (run.stopping.stop, run.is_marked) == (CANCELLED, True)
    assert not stops.unbegun


def test_a_run_that_begins_at_the_moment_of_the_request__is_found(
    worker: Worker, stops: RunStops, wait_until: Wait
) -> None:
    run = JobRun(make_claim(id=1), 0.0)
    # The thread of the run has asked whether it may begin, and the run is not among the runs yet.
    stops.request(run.claim.id, run.claim.token, CANCELLED)
    assert run.stopping is None
    worker.runs.append(run)
    wait_until(lambda: worker.aborted)
    assert run.stopping is not None


def test_cancellation__wins_over_a_timeout(worker: Worker, stops: RunStops) -> None:
    run = JobRun(make_claim(id=1), 0.0)
    worker.runs.append(run)
    stops.time_out(run, 30.0)
    assert run.stopping is not None
    assert run.stopping.stop == RunStop(kind="timeout", reason="the task ran longer than its time limit of 30 s")
    stops.request(run.claim.id, run.claim.token, CANCELLED)
    assert run.stopping.stop == CANCELLED
    stops.time_out(run, 30.0)
    assert run.stopping.stop == CANCELLED


def test_requests_of_many_threads__lose_none(worker: Worker, stops: RunStops) -> None:
    claims = [make_claim(id=number) for number in range(40)]
    threads = [threading.Thread(target=stops.request, args=(each.id, each.token, CANCELLED)) for each in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(worker.may_begin(claim) for claim in claims)
    assert all(stops.refuse(claim) for claim in claims)
    assert not stops.unbegun


def run_of(job_id: int) -> JobRun:
    return JobRun(make_claim(id=job_id), 0.0)


def stops_that(time_out: Callable[[JobRun, float], object]) -> RunStops:
    """Return stops that call a function for a run that is past its deadline."""
    return cast("RunStops", SimpleNamespace(time_out=time_out))


def unstarted(time_out: Callable[[JobRun, float], object], now: list[float]) -> Deadlines:
    """Return deadlines whose thread never starts, with a clock that the test sets."""
    deadlines = Deadlines(stops_that(time_out), clock=lambda: now[0])
    deadlines._thread = threading.current_thread()
    return deadlines


def test_check__reports_each_run_once_it_is_past_its_deadline() -> None:
    now, reported = [100.0], []
    deadlines = unstarted(lambda run, seconds: reported.append((run.claim.id, seconds)), now)
    early, late = run_of(1), run_of(2)
    deadlines.begin(early, 5.0)
    deadlines.begin(late, 8.0)
    assert (early.deadline, late.deadline) == (105.0, 108.0)
    assert deadlines.check() == 5.0
    now[0] = 105.0
    assert deadlines.check() == 3.0
    assert reported == [(1, 5.0)]


def test_thread__wakes_for_an_earlier_deadline() -> None:
    reported = threading.Event()
    deadlines = Deadlines(stops_that(lambda run, seconds: reported.set()))
    slow, quick = run_of(1), run_of(2)
    try:
        deadlines.begin(slow, 1000.0)
        deadlines.begin(quick, 0.01)
        assert reported.wait(WAIT_TIMEOUT)
    finally:
        deadlines.close()
    assert deadlines._thread is not None
    deadlines._thread.join(WAIT_TIMEOUT)
    assert not deadlines._thread.is_alive()
