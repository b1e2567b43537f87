"""The line of a job that succeeded: the short way to standard error, and what has to take the ordinary way."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from django_graphile_worker import signals
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.console import (
    Formatter,
)
from django_graphile_worker.logs.lines import served_databases
from django_graphile_worker.logs.structured import SuccessLine
from django_graphile_worker.sql.claims import Claim
from tests.support.console_log import ConsoleLog, lone_console
from tests.support.log_lines import make_job, send
from tests.support.slot import Slot, open_slot


@pytest.fixture
def log() -> Iterator[ConsoleLog]:
    with lone_console() as log:
        yield log


@pytest.fixture
def slot() -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


def nothing(payload: Any) -> None: ...


SUCCEEDED = re.compile(r"a_task #\d+ succeeded after [\d<.]+ ms \(attempt 1 of 25\)")


def test_job_that_succeeds__has_its_line_without_a_record_a_signal_or_a_job(
    log: ConsoleLog, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("expected not to be called")

    monkeypatch.setattr(logging.LogRecord, "__init__", refuse)
    monkeypatch.setattr(type(signals.job_succeeded), "send_robust", refuse)
    monkeypatch.setattr(Claim, "to_job", refuse)
    for number in range(3):
        slot.run(nothing, id=number)
    lines = log.lines()
    assert all(map(SUCCEEDED.fullmatch, lines))
    assert [line.split()[1] for line in lines] == ["#0", "#1", "#2"]


LINES = [
    (None, "send_email", 0.0123),
    (None, "a\nINFO forged", 0.00004),
    (None, "x succeeded y", 9_000.0),
    (None, "größe \x1b[31m", 1.0),
    (None, "x" * 501, 0.5),
    ("eu", "send_email", 0.5),
    ("e\nu", "%s", 0.5),
]


@pytest.mark.parametrize("is_colored", [False, True])
@pytest.mark.parametrize(("place", "identifier", "duration"), LINES)
def test_line_without_a_record__is_the_line_of_the_record(
    place: str | None, identifier: str, duration: float, is_colored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    served = [place, "another"] if place else []
    served_databases.add(served)
    try:
        job = make_job(id=7, task_identifier=identifier, attempts=2)
        send("job_succeeded", job=job, duration=duration, worker_id="w", database=place or "default")
    finally:
        served_databases.remove(served)
    (record,) = caplog.records
    formatter = Formatter(is_colored=is_colored)
    line = SuccessLine(record.created, place, identifier, 7, duration, 2, 25)
    assert formatter.format_success(line) == formatter.format(record)


def test_log_success__keeps_lines_out(log: ConsoleLog) -> None:
    with open_slot(log_success=False) as slot:
        slot.run(nothing)
    assert log.lines() == []


class Records(logging.Handler):
    """A handler of the project."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("name", ["root", "django_graphile_worker", "django_graphile_worker.jobs"])
def test_handler_that_is_added__gets_records_and_the_line_is_written_once(
    log: ConsoleLog, slot: Slot, name: str
) -> None:
    logger = log.root if name == "root" else logging.getLogger(name)
    slot.run(nothing, id=1)
    handler = Records()
    logger.addHandler(handler)
    try:
        slot.run(nothing, id=2)
    finally:
        logger.removeHandler(handler)
    slot.run(nothing, id=3)
    assert [vars(record)["job_id"] for record in handler.records] == [2]
    assert [line.split()[1] for line in log.lines()] == ["#1", "#2", "#3"]


def test_receiver_of_the_project__gets_the_signal_with_the_job_and_the_line_is_written_once(
    log: ConsoleLog, slot: Slot
) -> None:
    jobs = []

    def receive(*, job: Job, **kwargs: Any) -> None:
        jobs.append(job)

    signals.job_succeeded.connect(receive)
    try:
        slot.run(nothing, '{"a": 1}')
    finally:
        signals.job_succeeded.disconnect(receive)
    assert [type(job) for job in jobs] == [Job]
    assert jobs[0].payload == {"a": 1}
    assert len(log.lines()) == 1
