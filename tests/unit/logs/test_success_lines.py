"""The line of a job that succeeded: the short way to standard error, and what has to take the ordinary way."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_graphile_worker import signals
from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.console import (
    ConsoleHandler,
    Formatter,
)
from django_graphile_worker.logs.lines import served_databases
from django_graphile_worker.sql.claims import Claim
from tests.support.console_log import JOBS, PACKAGE, ConsoleLog, lone_console
from tests.support.log_lines import make_job, send
from tests.support.slot import WORKER_ID, Slot, open_slot


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


def test_job_that_succeeds__has_its_line_without_a_record_beside_a_receiver_of_the_site(
    log: ConsoleLog, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Job] = []

    def receive(sender: Any, job: Job, **arguments: Any) -> None:
        received.append(job)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("expected not to be called")

    monkeypatch.setattr(logging.LogRecord, "__init__", refuse)
    signals.job_succeeded.connect(receive)
    try:
        slot.run(nothing, id=5)
    finally:
        signals.job_succeeded.disconnect(receive)
    (line,) = log.lines()
    assert SUCCEEDED.fullmatch(line)
    assert [job.id for job in received] == [5]


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
    line = (record.created, place, identifier, 7, duration, 2, 25)
    assert formatter.format_success(line) == formatter.format(record)


def test_line__names_its_database_if_there_are_several(log: ConsoleLog, slot: Slot) -> None:
    slot.run(nothing)
    served_databases.add(["default", "eu"])
    try:
        slot.run(nothing)
    finally:
        served_databases.remove(["default", "eu"])
    assert [line.split()[0] for line in log.lines()] == ["a_task", "[default]"]


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


def _refuse(record: logging.LogRecord) -> bool:
    return False


# What suppresses records, and what ends that.
SUPPRESSORS: dict[str, tuple[Callable[[ConsoleHandler], Any], Callable[[ConsoleHandler], Any]]] = {
    "level of the logger": (lambda _: JOBS.setLevel(logging.WARNING), lambda _: JOBS.setLevel(logging.NOTSET)),
    "level of the package": (lambda _: PACKAGE.setLevel(logging.WARNING), lambda _: PACKAGE.setLevel(logging.INFO)),
    "level of the handler": (lambda each: each.setLevel(logging.WARNING), lambda each: each.setLevel(logging.NOTSET)),
    "level of the process": (lambda _: logging.disable(logging.INFO), lambda _: logging.disable(logging.NOTSET)),
    "disabled logger": (lambda _: setattr(JOBS, "disabled", True), lambda _: setattr(JOBS, "disabled", False)),
    "filter of the logger": (lambda _: JOBS.addFilter(_refuse), lambda _: JOBS.removeFilter(_refuse)),
    "filter of the handler": (lambda each: each.addFilter(_refuse), lambda each: each.removeFilter(_refuse)),
    "no propagation": (lambda _: setattr(JOBS, "propagate", False), lambda _: setattr(JOBS, "propagate", True)),
}


@pytest.mark.parametrize("kind", SUPPRESSORS)
def test_what_suppresses_records__suppresses_lines_at_any_time(
    log: ConsoleLog, slot: Slot, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", None)
    begin, end = SUPPRESSORS[kind]
    slot.run(nothing, id=1)
    begin(log.handler)
    try:
        slot.run(nothing, id=2)
    finally:
        end(log.handler)
    slot.run(nothing, id=3)
    assert [line.split()[1] for line in log.lines()] == ["#1", "#3"]


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


def test_other_formatter__writes_the_lines(log: ConsoleLog, slot: Slot) -> None:
    log.handler.setFormatter(logging.Formatter("%(threadName)s %(job_id)s"))
    slot.run(nothing, id=4)
    assert log.lines() == ["4"]
    assert log.text == "slot_0 4\n"


@pytest.mark.parametrize("method", ["callHandlers", "handle", "makeRecord", "log"])
def test_replaced_method_of_logging__sees_every_record(
    log: ConsoleLog, slot: Slot, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As error trackers do, for their breadcrumbs."""
    original = getattr(logging.Logger, method)
    calls = []

    def replaced(*args: Any, **kwargs: Any) -> Any:
        calls.append(method)
        return original(*args, **kwargs)

    monkeypatch.setattr(logging.Logger, method, replaced)
    slot.run(nothing)
    later = ConsoleHandler(log.stream, Formatter(is_colored=False))
    assert calls
    assert not log.handler.is_alone()
    assert not later._is_logging_original
    assert len(log.lines()) == 1


def test_factory_of_records__makes_every_record(log: ConsoleLog, slot: Slot) -> None:
    made = []

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made.append(args[0])
        return logging.LogRecord(*args, **kwargs)

    logging.setLogRecordFactory(factory)
    try:
        slot.run(nothing)
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    assert made == ["django_graphile_worker.jobs"]


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


# What a record about a success has; projects' formatters rely on it.
ATTRIBUTES = {
    *vars(logging.makeLogRecord({})),
    *("job_id", "task_identifier", "queue_name", "attempt", "max_attempts", "outcome"),
    *("worker_id", "database", "installation", "duration"),
}


def test_record__has_the_attributes_of_the_thread_and_the_moment(
    log: ConsoleLog, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Records()
    monkeypatch.setattr(PACKAGE, "handlers", [handler])
    before = time.time()
    slot.run(nothing, id=9, attempts=2, queue_name="mail")
    after = time.time()
    (record,) = handler.records
    facts = vars(record)
    assert set(facts) == ATTRIBUTES
    assert before <= record.created <= after
    assert (record.threadName, record.thread, record.process) == ("slot_0", slot.call(threading.get_ident), os.getpid())
    assert (record.name, record.levelno, record.module, record.funcName) == (JOBS.name, 20, "receivers", "_log_run")
    assert (facts["job_id"], facts["attempt"], facts["queue_name"]) == (9, 2, "mail")
    assert (facts["worker_id"], facts["database"], facts["installation"]) == (WORKER_ID, "default", "default")
    assert (record.exc_info, record.msg) == (None, "%s #%s succeeded after %s (attempt %s of %s)")
