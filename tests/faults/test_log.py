"""The log of a worker process: no line is lost, however the process ends."""

from __future__ import annotations

import signal

from tests.faults.processes import Fleet, WorkerProcess
from tests.faults.world import World

# The thread that writes the log writes its first lines and then pauses for an hour: the end writes the others.
PAUSING = {"FAULT_LOG_PAUSE": "3600"}
JOBS = 20


def _check(worker: WorkerProcess) -> None:
    assert worker.count_in_output(r"(?m)^[\d:]{8} quick #\d+ succeeded after .* \(attempt 1 of 25\)$") == JOBS
    assert worker.count_in_output(r"(?m)^[\d:]{8} worker \S+ stopped: ") >= 1


def test_signal__has_all_lines_of_all_processes_written(world: World, fleet: Fleet) -> None:
    world.add_many(JOBS)
    worker = fleet.start("--processes", "2", environment=PAUSING, is_ready=False)
    world.wait_until_empty()
    assert worker.stop() == 0
    _check(worker)


def test_process_that_leaves_a_job_behind__has_all_lines_written(world: World, fleet: Fleet) -> None:
    world.add_many(JOBS)
    worker = fleet.start(environment=PAUSING, is_ready=False, is_forked=False)
    world.wait_until_empty()
    world.add("never_ends")
    world.wait_for("start", JOBS + 1)
    worker.signal(signal.SIGINT)
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == 128 + signal.SIGQUIT
    _check(worker)
    assert worker.has_written(r"never_ends #\d+ interrupted")


def test_once__has_all_lines_written(world: World, fleet: Fleet) -> None:
    world.add_many(JOBS)
    worker = fleet.start("--once", environment=PAUSING)
    assert worker.wait() == 0
    _check(worker)
