"""Drains: from the start of the first job until no job is left, with the CPU time of workers and server.

Jobs report to the file that ``REPORT`` names. A process appends ``first <seconds of the monotonic clock>`` at its first
job, and a number whenever that many more jobs have run: each ``REPORT_EVERY`` jobs, because a report costs as much as
part of a trivial job. The queue is asked only when it is nearly empty.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from benchmarks import CHECKOUT
from benchmarks.servers import Server, tree_cpu_seconds
from benchmarks.session import Figures, Metric

RATE = Metric("rate", "jobs/s")
WORKER_CPU = Metric("worker_cpu", "µs of worker CPU", 1)
SERVER_CPU = Metric("server_cpu", "µs of server CPU", 1)
METRICS = [RATE, WORKER_CPU, SERVER_CPU]
PAUSE = 0.003
STILL_CHECKS = 3


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of a process, with its directory and the variables that it needs beside those of this one."""

    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path = CHECKOUT

    def start(self, *, output: int | IO[bytes], errors: int | IO[bytes], **more: str) -> subprocess.Popen[str]:
        environment = os.environ | self.environment | more
        # An installed package has byte code.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.Popen(
            self.arguments,
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
        )

    def run(self) -> None:
        """Run it to its end."""
        process = self.start(output=subprocess.DEVNULL, errors=subprocess.PIPE)
        _, errors = process.communicate()
        if process.returncode:
            shown = " ".join(self.arguments)
            raise RuntimeError(f"{shown} ended with exit code {process.returncode}:\n{errors[-2000:]}")


@contextmanager
def running(command: Command) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose standard output is read, and end it after the block."""
    process = command.start(output=subprocess.PIPE, errors=subprocess.DEVNULL)
    try:
        yield process
    finally:
        end(process)
        assert process.stdout is not None
        process.stdout.close()


def end(process: subprocess.Popen[str]) -> None:
    """Ask a process to stop, and kill what is left of it and of its children after ten seconds."""
    with suppress(psutil.NoSuchProcess):
        tree = [*psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        for each in tree if process.poll() is not None else [*tree, psutil.Process(process.pid)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()


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
    """The CPU seconds of the workers and of the server, from a moment on."""

    def __init__(self, workers: Sequence[subprocess.Popen[str]], server: Server) -> None:
        self._workers = [psutil.Process(worker.pid) for worker in workers]
        self._server = server
        self._before = self._now()

    def _now(self) -> tuple[float, float]:
        return sum(tree_cpu_seconds(worker) for worker in self._workers), self._server.cpu_seconds()

    def since(self) -> Figures:
        (worker, server), now = self._before, self._now()
        return {"worker_cpu": now[0] - worker, "server_cpu": now[1] - server}


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
) -> Figures:
    """Start the workers, wait until they have run ``total`` jobs or for ``time_limit`` seconds, and stop them.

    Return jobs a second, and the microseconds of CPU time of each job. ``open_gate()`` is called when all workers have
    started. Until then a gate must keep them from the jobs, so that the start of one process is not measured with the
    jobs of another.
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
        wait(lambda: _has_begun(report), workers, folder / "log", time_limit=60, pause=PAUSE)
        # When this many jobs have run, only those are missing that no process has reported yet.
        nearly_all = total - (report_every - 1) * processes
        return _wait_for_last(report, left, Costs(workers, server), total, nearly_all, time_limit)


def wait(
    condition: Callable[[], bool],
    workers: Sequence[subprocess.Popen[str]],
    log: Path,
    *,
    time_limit: float = 120,
    pause: float = 0.1,
) -> None:
    """Wait for a condition. Raise with the end of the log when a worker ends, or when the time is over."""
    deadline = time.monotonic() + time_limit
    while not condition():
        if time.monotonic() > deadline or any(worker.poll() is not None for worker in workers):
            end_of_log = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"A worker ended, or did not do its work within {time_limit:g} s:\n{end_of_log}")
        time.sleep(pause)


def _has_begun(report: Report) -> bool:
    report.read()
    return report.first is not None


def _wait_for_start(workers: Sequence[subprocess.Popen[str]], time_limit: float = 20) -> None:
    """Wait until the processes use no CPU time, because they wait at the gate."""
    deadline, trees = time.monotonic() + time_limit, [psutil.Process(worker.pid) for worker in workers]
    before, still = 0.0, 0
    while still < STILL_CHECKS and time.monotonic() < deadline:
        time.sleep(0.15)
        now = sum(tree_cpu_seconds(tree) for tree in trees)
        still = still + 1 if now and now - before < 0.015 else 0
        before = now


def _wait_for_last(report: Report, left: Left, costs: Costs, total: int, nearly_all: int, time_limit: float) -> Figures:
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
                return _figures(total, seconds, spent)
        if seconds > time_limit:
            return _figures(total - left.count(), seconds, costs.since())
        time.sleep(PAUSE)


def _figures(jobs: int, seconds: float, spent: Figures) -> Figures:
    each = {name: cpu / max(jobs, 1) * 1e6 for name, cpu in spent.items()}
    return {"rate": jobs / max(seconds, 1e-9), **each}
