"""A drain is measured from the first report until nothing is left, with what it cost."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.commands import Command
from benchmarks.draining import Drained, Left, Report, drain

NOTHING_LEFT = Left(any=lambda: False, count=lambda: 0)
WORKER = """
import os, signal, sys, time
with open(os.environ["REPORT"], "a") as file:
    for line in sys.argv[1:]:
        file.write(line.format(now=time.monotonic()) + "\\n")
# The system counts CPU time in steps of 10 ms. A process without a step seems not to have started.
while time.process_time() < 0.03:
    pass
signal.pause()
"""


class FakeServer:
    """A server whose costs grow each time that they are read."""

    def __init__(self) -> None:
        self._cpu, self._written = 0.0, 0

    def cpu_seconds(self) -> float:
        self._cpu += 1.0
        return self._cpu

    def written_bytes(self) -> int:
        self._written += 100
        return self._written


def worker(*lines: str) -> Command:
    return Command([sys.executable, "-S", "-c", WORKER, *lines])


def test_report__counts_lines_that_arrive_in_parts(tmp_path: Path) -> None:
    report = Report(tmp_path / "report")
    with (tmp_path / "report").open("a") as file:
        for part in ("first 5.5\n10", "00\n", "first 4.5\n", "7\n"):
            file.write(part)
            file.flush()
            report.read()
    assert (report.first, report.count) == (4.5, 1007)


def test_figures__are_for_each_job() -> None:
    figures = Drained(jobs=200, seconds=2.0, worker_cpu=1.0, server_cpu=0.5, written=1000).figures()
    assert figures == {"rate": 100, "worker_cpu": 5000, "server_cpu": 2500, "written": 5}


def test_drain__ends_when_nothing_is_left() -> None:
    began = time.monotonic()
    answers = [True, True, False]
    left = Left(any=lambda: answers.pop(0), count=lambda: 0)
    commands = [worker("first {now}", "6", "4")]
    done = drain(commands, total=10, left=left, server=FakeServer(), report_every=1)  # type: ignore[arg-type]
    # Read before each of the three questions.
    assert (done.jobs, done.server_cpu, done.written) == (10, 3.0, 300)
    assert 0 < done.seconds < time.monotonic() - began
    assert answers == []


def test_drain__does_not_count_the_question_that_nothing_is_left() -> None:
    """The answer reads the index entries of all jobs."""
    server, asked_at = FakeServer(), []

    def has_any() -> bool:
        asked_at.append(time.monotonic())
        server.cpu_seconds()
        return False

    began = time.monotonic()
    left = Left(any=has_any, count=lambda: 0)
    done = drain([worker("first {now}", "1")], total=1, left=left, server=server, report_every=1)  # type: ignore[arg-type]
    assert done.server_cpu == 1.0
    assert began + done.seconds <= asked_at[0]


def test_drain__opens_the_gate_when_the_workers_wait() -> None:
    opened: list[float] = []
    commands = [worker("first {now}", "1")]
    done = drain(
        commands,
        total=1,
        left=NOTHING_LEFT,
        server=FakeServer(),  # type: ignore[arg-type]
        report_every=1,
        open_gate=lambda: opened.append(time.monotonic()),
    )
    assert (len(opened), done.jobs) == (1, 1)


def test_drain__counts_what_is_left_when_the_time_is_over() -> None:
    left = Left(any=lambda: True, count=lambda: 4)
    commands = [worker("first {now}")]
    done = drain(commands, total=10, left=left, server=FakeServer(), time_limit=0.01)  # type: ignore[arg-type]
    assert done.jobs == 6


def test_drain__reports_the_log_of_a_worker_that_ended() -> None:
    command = Command([sys.executable, "-S", "-c", "print('no such table')"])
    with pytest.raises(RuntimeError, match="no such table"):
        drain([command], total=1, left=NOTHING_LEFT, server=FakeServer())  # type: ignore[arg-type]
