"""Requests to stop runs, and to keep claims from beginning."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.control import stops as module
from django_graphile_worker.worker.control.stops import Stop, Stops
from django_graphile_worker.worker.execution.coroutines.coroutine_run import CoroutineRun
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Cancelled
from tests.support.slot import make_claim

CANCELLED = Stop(kind="cancelled", reason="no longer wanted", by="somebody")

Wait = Callable[..., None]


class Worker:
    """The worker of the stops: runs that the test begins and ends, and the check before each job."""

    def __init__(self) -> None:
        self.runs: list[JobRun] = []
        self.aborted: list[JobRun] = []
        self.holds_lease = True
        self.check: Callable[[Claim], bool] = self.may_begin

    def running(self) -> list[JobRun]:
        return list(self.runs)

    def is_running(self, run: JobRun) -> bool:
        return run in self.runs

    def may_begin(self, claim: Claim) -> bool:
        return self.holds_lease

    def check_begin(self, may_begin: Callable[[Claim], bool]) -> None:
        self.check = may_begin

    def set_abort(self, run: JobRun) -> None:
        self.aborted.append(run)

    def stop_coroutine(self, coroutine_run: CoroutineRun) -> None:
        raise AssertionError

    def leave_coroutine(self, coroutine_run: CoroutineRun) -> None:
        raise AssertionError

    def ended_without_thread(self, run: JobRun, thread_id: int) -> None:
        raise AssertionError


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.runs.clear()


@pytest.fixture
def stops(worker: Worker) -> Stops:
    return Stops(worker, grace=1.0)


def test_a_claim_that_has_not_begun__never_begins(worker: Worker, stops: Stops) -> None:
    claim, other = make_claim(id=1), make_claim(id=2)
    stops.request(claim.id, claim.token, CANCELLED)
    assert (worker.check(claim), worker.check(other)) == (False, True)
    outcome = stops.refuse(claim)
    assert isinstance(outcome, Cancelled)
    assert (outcome.claim, outcome.stop, outcome.has_begun) == (claim, CANCELLED, False)
    assert stops.refuse(other) is None


def test_a_later_claim_of_the_job__may_begin(worker: Worker, stops: Stops) -> None:
    claim = make_claim(id=1)
    stops.request(claim.id, claim.token, CANCELLED)
    assert worker.check(claim._replace(token=f"{claim.token}0"))


def test_a_lost_lease__keeps_claims_from_beginning_beside_requests(worker: Worker, stops: Stops) -> None:
    stops.request(1, "token", CANCELLED)
    worker.holds_lease = False
    assert not worker.check(make_claim(id=2))
    assert stops.refuse(make_claim(id=2)) is None


def test_check__ends_with_the_last_request(worker: Worker, stops: Stops) -> None:
    claim = make_claim(id=1)
    stops.request(claim.id, claim.token, CANCELLED)
    assert worker.check != worker.may_begin
    stops.refuse(claim)
    assert worker.check == worker.may_begin, "other jobs cost nothing more"


def test_requests_for_claims_that_never_come__are_forgotten(
    worker: Worker, stops: Stops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_FOR", -1.0)
    stops.request(1, "token", CANCELLED)
    monkeypatch.setattr(module, "KEPT_FOR", 60.0)
    stops.request(2, "token", CANCELLED)
    assert list(stops._unbegun) == [(2, "token")]


def test_a_run__is_stopped_once(worker: Worker, stops: Stops, wait_until: Wait) -> None:
    run = JobRun(make_claim(id=1), 0.0)
    worker.runs.append(run)
    for _ in range(2):
        stops.request(run.claim.id, run.claim.token, CANCELLED)
    wait_until(lambda: worker.aborted)
    assert worker.aborted == [run]
    assert run.stopping is not None
    assert (run.stopping.stop, run.is_marked) == (CANCELLED, True)
    assert worker.check == worker.may_begin


def test_a_run_that_begins_at_the_moment_of_the_request__is_found(
    worker: Worker, stops: Stops, wait_until: Wait
) -> None:
    run = JobRun(make_claim(id=1), 0.0)
    # The thread of the run has asked whether it may begin, and the run is not among the runs yet.
    stops.request(run.claim.id, run.claim.token, CANCELLED)
    assert run.stopping is None
    worker.runs.append(run)
    wait_until(lambda: worker.aborted)
    assert run.stopping is not None


def test_cancellation__wins_over_a_timeout(worker: Worker, stops: Stops) -> None:
    run = JobRun(make_claim(id=1), 0.0)
    worker.runs.append(run)
    stops._time_out(run, 30.0)
    assert run.stopping is not None
    assert run.stopping.stop == Stop(kind="timeout", reason="the task ran longer than its time limit of 30 s")
    stops.request(run.claim.id, run.claim.token, CANCELLED)
    assert run.stopping.stop == CANCELLED
    stops._time_out(run, 30.0)
    assert run.stopping.stop == CANCELLED


def test_requests_of_many_threads__lose_none(worker: Worker, stops: Stops) -> None:
    claims = [make_claim(id=number) for number in range(40)]
    threads = [threading.Thread(target=stops.request, args=(each.id, each.token, CANCELLED)) for each in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(worker.check(claim) for claim in claims)
    assert all(stops.refuse(claim) for claim in claims)
    assert worker.check == worker.may_begin
