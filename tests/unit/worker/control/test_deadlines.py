"""The thread that waits for the deadlines of runs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from django_graphile_worker.worker.control.deadlines import Deadlines
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun
from django_graphile_worker.worker.job_stop import Stop
from tests.conftest import WAIT_TIMEOUT
from tests.support.slot import make_claim


def run_of(job_id: int) -> JobRun:
    return JobRun(make_claim(id=job_id), 0.0)


def unstarted(on_deadline: Callable[[JobRun, float], None], now: list[float]) -> Deadlines:
    """Return deadlines whose thread never starts, with a clock that the test sets."""
    deadlines = Deadlines(on_deadline, clock=lambda: now[0])
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


def test_a_run_that_has_ended__is_not_reported() -> None:
    now, reported = [0.0], []
    deadlines = unstarted(lambda run, seconds: reported.append(run), now)
    run = run_of(1)
    deadlines.begin(run, 1.0)
    deadlines.end(run)
    deadlines.end(run)
    now[0] = 2.0
    assert (deadlines.check(), reported) == (math.inf, [])


def test_a_run_that_stops_already__is_not_reported_again() -> None:
    now, reported = [0.0], []
    deadlines = unstarted(lambda run, seconds: reported.append(run), now)
    run = run_of(1)
    deadlines.begin(run, 1.0)
    run.stopping = StopOfRun(Stop(kind="cancelled"))
    now[0] = 2.0
    assert (deadlines.check(), reported) == (math.inf, [])


def test_thread__wakes_for_an_earlier_deadline() -> None:
    reported = threading.Event()
    deadlines = Deadlines(lambda run, seconds: reported.set())
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


def test_thread__survives_a_report_that_fails() -> None:
    reported, failures = threading.Event(), iter([ValueError("no thread can be started")])

    def on_deadline(run: JobRun, seconds: float) -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        reported.set()

    deadlines = Deadlines(on_deadline)
    try:
        deadlines.begin(run_of(1), 0.01)
        assert reported.wait(WAIT_TIMEOUT)
    finally:
        deadlines.close()
