"""The log on standard error: its lines, and when they are written."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from select import PIPE_BUF
from typing import Any

import pytest

from django_graphile_worker.logs import console
from django_graphile_worker.logs.console import (
    ConsoleHandler,
    Formatter,
    _largest_write,
    _portions,
    set_up_logging,
)
from django_graphile_worker.logs.structured import SuccessLine
from django_graphile_worker.worker.outcomes import Failed, Succeeded
from django_graphile_worker.worker.typed_payloads import converters
from tests.support.console_log import PACKAGE, ConsoleLog, lone_console
from tests.support.slot import Slot, open_slot


def make_record(level: int, text: str = "no such order", **facts: Any) -> logging.LogRecord:
    try:
        raise ValueError(text)
    except ValueError as error:
        exception = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("a", level, __file__, 1, "send #1 failed after 2 ms", (), exception)
    vars(record).update(facts)
    return record


@pytest.mark.parametrize(
    ("level", "is_detailed", "has_traceback"),
    [
        (logging.WARNING, False, False),
        (logging.WARNING, True, True),
        (logging.ERROR, False, True),
        (logging.ERROR, True, True),
    ],
)
def test_traceback__is_shown_for_what_is_final_or_to_whoever_asks_for_more(
    level: int, is_detailed: bool, has_traceback: bool
) -> None:
    record = make_record(level)
    text = Formatter(is_colored=False, is_detailed=is_detailed).format(record)
    assert "failed after" in text
    assert ("Traceback" in text) is has_traceback
    assert record.exc_info, "other handlers get it in any case"
    assert record.exc_text is None, "other handlers write their own"


def test_traceback__cannot_command_the_terminal() -> None:
    text = Formatter(is_colored=False).format(make_record(logging.ERROR, "\x1b[2Jgone"))
    assert text.endswith("ValueError: \\x1b[2Jgone")
    assert len(text.splitlines()) > 3


def test_traceback__cannot_be_mistaken_for_other_lines() -> None:
    text = Formatter(is_colored=False).format(make_record(logging.ERROR, "no\n12:00:00 send #2 succeeded"))
    assert all(line.startswith("  ") for line in text.splitlines()[1:])


def test_traceback__leaves_the_worker_s_own_frames_out() -> None:
    record = make_record(logging.ERROR)
    try:
        converters.one_of((1,))(2, "$")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    text = Formatter(is_colored=False).format(record)
    assert f'File "{__file__}"' in text
    assert converters.__file__ not in text


@pytest.mark.parametrize(
    ("level", "outcome", "code"),
    [
        (logging.INFO, "succeeded", "32"),
        (logging.WARNING, "failed", "33;1"),
        (logging.ERROR, "permanently failed", "31;1"),
    ],
)
def test_color__paints_the_word_that_says_how_a_job_ended(level: int, outcome: str, code: str) -> None:
    record = make_record(level, outcome=outcome.replace(" ", "_"))
    record.msg, record.exc_info = f"send #1 {outcome} after 2 ms", None
    text = Formatter(is_colored=True).format(record)
    assert text.endswith(f"send #1 \x1b[{code}m{outcome}\x1b[0m after 2 ms")
    assert re.fullmatch(r"[\d:]{8} send #1 .* after 2 ms", Formatter(is_colored=False).format(record))


@pytest.fixture
def log() -> Iterator[ConsoleLog]:
    with lone_console() as log:
        yield log


@pytest.fixture
def slot() -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


def nothing(payload: Any) -> None: ...


def fails(payload: Any) -> None:
    raise ValueError("no such order")


def test_lines__are_in_the_order_in_which_jobs_ended(log: ConsoleLog, slot: Slot) -> None:
    for number, task in enumerate([nothing, nothing, fails, nothing, fails, nothing]):
        slot.run(task, id=number)
        logging.getLogger("django_graphile_worker.task").info("between #%s", number)
    lines = [line for line in log.lines() if "#" in line]
    outcomes = ["succeeded", "succeeded", "failed", "succeeded", "failed", "succeeded"]
    assert [(line.split()[1], line.split()[0] == "between") for line in lines] == [
        (f"#{number}", is_between) for number in range(6) for is_between in (False, True)
    ]
    assert [line.split()[2] for line in lines[::2]] == outcomes


def test_warning__is_written_when_the_call_returns_and_so_is_what_precedes_it(log: ConsoleLog, slot: Slot) -> None:
    slot.run(nothing)
    slot.run(nothing)
    slot.run(fails)
    assert [line.split()[2] for line in log.text.splitlines() if " #1 " in line][:2] == ["#1", "#1"]
    assert " failed after " in log.text
    assert "ValueError: no such order" in log.text


def test_error__keeps_nothing_of_the_task_in_memory(log: ConsoleLog) -> None:
    class Large:
        pass

    references = []

    def fail() -> None:
        large = Large()
        references.append(weakref.ref(large))
        raise ValueError

    logger = logging.getLogger("django_graphile_worker.task")
    for _ in range(2):
        try:
            fail()
        except ValueError:
            logger.info("it failed", exc_info=True)
    assert [reference() for reference in references] == [None, None]
    assert "".join(log.lines()).count("in fail") == 2


def test_broken_stream__is_reported_as_logging_does_and_harms_no_job(
    log: ConsoleLog, slot: Slot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    log.handler.setStream(Full())
    assert isinstance(slot.run(nothing), Succeeded)
    log.handler.flush()
    assert isinstance(slot.run(fails), Failed)
    error = capsys.readouterr().err
    assert error.count("--- Logging error ---") >= 1
    assert "No space left on device" in error
    monkeypatch.setattr(logging, "raiseExceptions", False)
    slot.run(fails)
    assert capsys.readouterr().err == ""
    log.handler.setStream(log.stream)
    slot.run(nothing)
    assert len(log.lines()) == 1


def test_line_that_a_stream_cannot_take__costs_no_other_line(log: ConsoleLog) -> None:
    raw = BytesIO()
    log.handler.setStream(TextIOWrapper(raw, encoding="ascii", write_through=True))
    log.handler.handleError = lambda record: None  # type: ignore[method-assign]
    log.handler._write(["first", "größe", "third"])
    assert raw.getvalue() == b"first\nthird\n"


def test_pipe__gets_lines_in_portions_that_other_processes_cannot_cut() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as stream:
        limit = _largest_write(stream)
    assert limit == PIPE_BUF
    texts = ["x" * 100] * 200 + ["ö" * 3_000] + ["y"] * 5_000
    portions = list(_portions(texts, limit))
    assert [text for portion in portions for text in portion] == texts
    sizes = [len("\n".join([*portion, ""]).encode()) for portion in portions if portion != [texts[200]]]
    assert max(sizes) <= limit
    assert len(portions) < 10


def test_terminal__shows_a_line_at_once_and_in_colour() -> None:
    formatter = Formatter(is_colored=True)
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream, os.fdopen(reader, "rb", buffering=0) as terminal:
        handler = ConsoleHandler(stream, formatter)
        handler.put_success(SuccessLine(time.time(), None, "a_task", 1, 0.5, 1, 25))
        # No flush: the read returns when the writer has written.
        line = terminal.read(1_000)
    assert line.endswith(b"a_task #1 \x1b[32msucceeded\x1b[0m after 500 ms (attempt 1 of 25)\r\n")


def test_set_up__leaves_the_log_to_the_handlers_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_console", None)
    monkeypatch.setattr(PACKAGE, "handlers", [logging.NullHandler()])
    set_up_logging(verbosity=1, is_colored=False)
    assert console._console is None
    assert [type(handler) for handler in PACKAGE.handlers] == [logging.NullHandler]


# The writer writes the first line at once and then pauses, so only what is flushed at the end is written after it.
ENDING = """
import logging, os, sys, threading
from django_graphile_worker.logs import console
from django_graphile_worker.worker.process.worker_process import leave
console.PAUSE = 3600
console.set_up_logging(verbosity=1, is_colored=False)
logger = logging.getLogger("django_graphile_worker.worker")
logger.info("first")
while not console._package.handlers[0].writer._thread or console._package.handlers[0].writer._queue:
    threading.Event().wait(0.001)
# The line is not in the queue any more: wait until it is written.
console._package.handlers[0].writer.flush()
logger.info("second")
threading.excepthook = lambda *_: None
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "code", "further"),
    [
        ("1 / 0", 1, []),
        ("leave(4)", 4, []),
        pytest.param(
            "import logging.config; logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False})",
            0,
            [],
            marks=pytest.mark.chaos,
        ),
        pytest.param(
            "__import__('atexit')._run_exitfuncs(); logger.info('third'); os._exit(5)",
            5,
            ["third"],
            marks=pytest.mark.chaos,
        ),
    ],
    ids=["error", "leave", "other configuration", "after exit handlers"],
)
def test_end_of_the_process__writes_all_lines(ending: str, code: int, further: list[str]) -> None:
    process = subprocess.run(
        [sys.executable, "-c", ENDING.format(ending=ending)], capture_output=True, text=True, check=False, timeout=60
    )
    words = [line.split()[-1] for line in process.stderr.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert (process.returncode, sorted(words)) == (code, sorted(["first", "second", *further]))


def test_forked_process__writes_no_line_of_its_parent() -> None:
    ending = "from django_graphile_worker.worker import fork_guard; fork_guard.watch()\n"
    ending += "child = os.fork()\nif not child: logger.info('child'); os._exit(0)\nos.waitpid(child, 0)"
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDING.format(ending=ending)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [line.split()[-1] for line in process.stderr.splitlines()] == ["first", "child", "second"]


# A thread writes slowly to a stream, as to a terminal, while another forks.
FORKING = """
import io, logging, os, signal, threading
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.logs import console

class Slow(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        if os.getpid() == parent:
            is_writing.set()
            threading.Event().wait(0.2)
        return os.write(2, data)

parent, is_writing = os.getpid(), threading.Event()
fork_guard.watch()
console.set_up_logging(verbosity=1, is_colored=False)
stream = console._package.handlers[0].stream = io.TextIOWrapper(io.BufferedWriter(Slow()), line_buffering=True)
logging.getLogger("django_graphile_worker.worker").info("parent")
is_writing.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    print("child", file=stream, flush=True)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_process__can_write_to_the_stream_that_its_parent_is_writing_to() -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, check=False, timeout=60
    )
    assert (process.returncode, [line.split()[-1] for line in process.stderr.splitlines()]) == (0, ["parent", "child"])
