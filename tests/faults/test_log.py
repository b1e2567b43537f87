"""The log of a worker process: no line is lost, however the process ends."""

from __future__ import annotations

import json
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


def test_json_lines__of_all_loggers_with_their_job(world: World, fleet: Fleet) -> None:
    environment = {"FAULT_WORKER_SETTINGS": json.dumps({"LOG_FORMAT": "json"})}
    world.add("logs_and_fails", {"text": "über"}, flags=['headers:{"tenant":"acme"}'], max_attempts=1)
    world.add("quick", flags=['headers:{"tenant":"b"}'])
    worker = fleet.start("--once", environment=environment)
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.output().splitlines()]
    (own,) = [line for line in lines if line["logger"] == "shop"]
    assert (own["message"], own["level"], own["task_identifier"], own["attempt"], own["headers"]) == (
        "a line: über",
        "INFO",
        "logs_and_fails",
        1,
        {"tenant": "acme"},
    )
    (failed,) = [line for line in lines if line.get("outcome") == "permanently_failed"]
    assert (failed["exception"], failed["job_id"], failed["headers"]) == ("ValueError", own["job_id"], own["headers"])
    assert "logs_and_fails" in failed["traceback"]
    (succeeded,) = [line for line in lines if line.get("outcome") == "succeeded"]
    assert (succeeded["task_identifier"], succeeded["headers"]) == ("quick", {"tenant": "b"})
    # Whether a line has a record or not, it has the same facts.
    assert succeeded.keys() >= failed.keys() - {"error", "retry_in", "exception", "traceback", "given_up_by"}
    assert (succeeded["worker_id"], succeeded["database"]) == (failed["worker_id"], "default")
    assert all(line["time"].endswith("Z") for line in lines)


def test_once__has_all_lines_written(world: World, fleet: Fleet) -> None:
    world.add_many(JOBS)
    worker = fleet.start("--once", environment=PAUSING)
    assert worker.wait() == 0
    _check(worker)
