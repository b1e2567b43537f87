"""Drains: from the start of the first job until no job is left, with the CPU time of workers and server.

Jobs report to the file that ``REPORT`` names. A process appends ``first <seconds of the monotonic clock>`` at its first
job, and a number whenever that many more jobs have run: each ``REPORT_EVERY`` jobs, because a report costs as much as
part of a trivial job. The queue is asked only when it is nearly empty.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.commands import Command, end
from benchmarks.results import Metric
from benchmarks.server import Server, tree_cpu_seconds

RATE = Metric("rate", "jobs/s")
WORKER_CPU = Metric("worker_cpu", "µs of worker CPU", 1)
SERVER_CPU = Metric("server_cpu", "µs of server CPU", 1)
WRITTEN = Metric("written", "bytes of WAL")
METRICS = [RATE, WORKER_CPU, SERVER_CPU, WRITTEN]
PAUSE = 0.003
STILL_CHECKS = 3


class Drained(NamedTuple):
    """The result of a drain."""

    jobs: int
    seconds: float
    worker_cpu: float
    server_cpu: float
    written: int

    def figures(self) -> dict[str, float]:
        """Return jobs a second, and what each job cost: microseconds of CPU time and bytes of write-ahead log."""
        jobs = max(self.jobs, 1)
        return {
            "rate": self.jobs / max(self.seconds, 1e-9),
            "worker_cpu": self.worker_cpu / jobs * 1e6,
            "server_cpu": self.server_cpu / jobs * 1e6,
            "written": self.written / jobs,
        }


@dataclass(frozen=True, slots=True)
class Left:
    """How a queue is asked for what is left: whether there is any job, which must be cheap, and how many."""

    any: Callable[[], bool]
    count: Callable[[], int]


class Report:
    """The file that the jobs append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self._offset = 0
        self._rest = ""
        self.first: float | None = None
        self.count = 0

    def read(self) -> None:
        with self._path.open("r", encoding="ascii") as file:
            file.seek(self._offset)
            text = file.read()
        self._offset += len(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.startswith("first "):
                moment = float(line.removeprefix("first "))
                self.first = moment if self.first is None else min(moment, self.first)
            else:
                self.count += int(line)


class Costs:
    """The CPU time of the workers and of the server, and the write-ahead log, from a moment on."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]], server: Server) -> None:
        self._workers = [psutil.Process(process.pid) for process in processes]
        self._server = server
        self._before = self._now()

    def _now(self) -> tuple[float, float, int]:
        workers = sum(tree_cpu_seconds(worker) for worker in self._workers)
        return workers, self._server.cpu_seconds(), self._server.written_bytes()

    def since(self) -> tuple[float, float, int]:
        (worker, server, written), now = self._before, self._now()
        return now[0] - worker, now[1] - server, now[2] - written


def drain(
    commands: Sequence[Command],
    *,
    total: int,
    left: Left,
    server: Server,
    processes: int = 1,
    time_limit: float = 60,
    report_every: int = 1000,
    open_gate: Callable[[], None] | None = None,
) -> Drained:
    """Start the workers, wait until they have run ``total`` jobs or for ``time_limit`` seconds, and stop them.

    ``open_gate()`` is called when all workers have started. Until then a gate must keep them from the jobs, so that the
    start of one process is not measured with the jobs of another.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        report = Report(folder / "report")
        log = stack.enter_context((folder / "log").open("wb"))
        variables = {"REPORT": str(folder / "report"), "REPORT_EVERY": str(report_every)}
        workers = [command.start(output=log, errors=subprocess.STDOUT, **variables) for command in commands]
        for worker in workers:
            stack.callback(end, worker)
        if open_gate is not None:
            _wait_for_start(workers)
            open_gate()
        costs = _wait_for_first(report, workers, server, folder / "log")
        # When this many jobs have run, only those are missing that no process has reported yet.
        nearly_all = total - (report_every - 1) * processes
        return _wait_for_last(report, left, costs, total, nearly_all, time_limit)


def _wait_for_start(workers: Sequence[subprocess.Popen[str]], time_limit: float = 20) -> None:
    """Wait until the processes use no CPU time, because they wait at the gate."""
    deadline, trees = time.monotonic() + time_limit, [psutil.Process(worker.pid) for worker in workers]
    before, still = 0.0, 0
    while still < STILL_CHECKS and time.monotonic() < deadline:
        time.sleep(0.15)
        now = sum(tree_cpu_seconds(tree) for tree in trees)
        still = still + 1 if now and now - before < 0.015 else 0
        before = now


def _wait_for_first(
    report: Report, workers: Sequence[subprocess.Popen[str]], server: Server, log: Path, time_limit: float = 60
) -> Costs:
    deadline = time.monotonic() + time_limit
    while report.first is None:
        time.sleep(PAUSE)
        report.read()
        if time.monotonic() > deadline or any(worker.poll() is not None for worker in workers):
            end_of_log = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"Expected a worker to run a job within {time_limit:g} s, got none:\n{end_of_log}")
    return Costs(workers, server)


def _wait_for_last(report: Report, left: Left, costs: Costs, total: int, nearly_all: int, time_limit: float) -> Drained:
    """Return what it took since the first job.

    Time and costs are those before the question whether a job is left: an answer that there is none reads the index
    entries of all jobs, which takes up to a tenth of a second for each hundred thousand jobs.
    """
    assert report.first is not None
    while True:
        report.read()
        seconds = time.monotonic() - report.first
        if report.count >= nearly_all:
            spent, seconds = costs.since(), time.monotonic() - report.first
            if not left.any():
                return Drained(total, seconds, *spent)
        if seconds > time_limit:
            return Drained(total - left.count(), seconds, *costs.since())
        time.sleep(PAUSE)
