"""The log of ``runworker`` on standard error, in a project that does not configure logging.

``ConsoleHandler`` has two shortcuts beside a ``StreamHandler``: a job that succeeds has its line without a record
(``write_success()``), and a thread of its own writes many lines together (``LineWriter``). A worker with the default
settings runs trivial jobs, each with its line in a file, on two cores (medians of interleaved runs)::

    this handler                             17,300 jobs a second,  25 µs of worker CPU for each
    no line at all                           17,400                 22
    logging.StreamHandler                     6,100                139
    logging's QueueHandler and QueueListener  5,300                158
    this handler, a record for each line      6,800                108

Without the thread, with every line written by the thread that ran the job, a job takes twice the CPU time. So both
stay.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from select import PIPE_BUF
from types import FunctionType
from typing import Any, Generic, TextIO, TypeVar

from django.utils.termcolors import make_style

from django_graphile_worker.jobs import Job
from django_graphile_worker.logs.errors import indented, trace
from django_graphile_worker.logs.lines import JobFacts, place_key, served_databases
from django_graphile_worker.logs.structured import JobFilter, JSONFormatter, SuccessLine
from django_graphile_worker.sql.claims import Claim

Line = TypeVar("Line")

ROOT_LOGGER = "django_graphile_worker"
# By the option --verbosity.
LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}
COLORS = {
    logging.DEBUG: make_style(fg="blue"),
    logging.WARNING: make_style(fg="yellow"),
    logging.ERROR: make_style(fg="red"),
    logging.CRITICAL: make_style(fg="red", opts=("bold",)),
}
# In a line about a job, only the word for its outcome is coloured.
OUTCOMES = {
    "succeeded": make_style(fg="green"),
    "failed": make_style(fg="yellow", opts=("bold",)),
    "permanently failed": make_style(fg="red", opts=("bold",)),
    "interrupted": make_style(fg="yellow"),
    "claim lost": make_style(fg="yellow"),
}
# Characters. A longer text is written at once: thousands of them would need too much memory in the queue.
LONGEST_QUEUED = 2_000
# Seconds. A stream to which nothing can be written must not keep the process from its end.
WRITE_TIMEOUT = 1.0
# Seconds between two batches. An idle writer writes the first line at once; the lines of the next milliseconds are
# written together. If the process is killed, it loses no more than these lines.
PAUSE = 0.02
# With more lines than this in the queue, the thread that puts the next line in waits until they are written.
LONGEST_QUEUE = 5_000
# Lines that are written together.
LARGEST_BATCH = 1_000
# Seconds that a fork waits for the writer. A pipe may be full.
HOLD_TIMEOUT = 1.0


_root = logging.getLogger()
_package = logging.getLogger(ROOT_LOGGER)
_jobs = logging.getLogger(f"{ROOT_LOGGER}.jobs")
# The handler, if the project does not configure logging.
_console: ConsoleHandler | None = None


def set_up_logging(*, verbosity: int, is_colored: bool, is_json: bool = False, complains: bool = True) -> None:
    """Write the worker's log to standard error, unless the project's LOGGING has a handler for it.

    As JSON, the lines of all loggers are written, with the job that was running.
    """
    global _console
    if _package.hasHandlers():
        if is_json and complains and _console is None:
            _package.warning(
                'GRAPHILE_WORKER["LOG_FORMAT"] has no effect, because LOGGING has handlers. Give them the formatter '
                "django_graphile_worker.logs.JSONFormatter and the filter django_graphile_worker.logs.JobFilter."
            )
        return
    if is_json:
        _console = handler = ConsoleHandler(sys.stderr, JSONFormatter())
        handler.addFilter(handler.job_filter)
        _root.addHandler(handler)
        _root.setLevel(min(_root.level, logging.INFO) or logging.INFO)
    else:
        _console = handler = ConsoleHandler(sys.stderr, Formatter(is_colored=is_colored, is_detailed=verbosity > 1))
        _package.addHandler(handler)
    _package.setLevel(LEVELS.get(verbosity, logging.INFO))
    # logging flushes its handlers at the end, too, but not those of an earlier configuration.
    atexit.register(handler.writer.close)
    writer = handler.writer
    os.register_at_fork(before=writer.hold, after_in_parent=writer.release, after_in_child=writer.forget)


def write_log() -> None:
    """Write the lines that wait, so that they precede what the command writes after the worker has ended."""
    for handler in (*_package.handlers, *_root.handlers):
        if isinstance(handler, ConsoleHandler):
            handler.writer.wait(WRITE_TIMEOUT)


def write_success(identifier: str, job: Claim | Job | JobFacts, duration: float, about: Mapping[str, Any]) -> bool:
    """Write the line of a job that succeeded on the short way; return False if it has to take the ordinary way.

    Most lines of a worker are of this kind. While this log is the only handler, the line needs neither a signal nor a
    record: the thread that ran the job passes on what the line says, and the thread that writes makes the text.
    """
    if _console is None or not _console.is_alone():
        return False
    place = about.get(place_key()) if served_databases.are_several else None
    flags = job.flags if isinstance(job, Job) else job.flags_text
    worker = job.token if isinstance(job, Claim) else about.get("worker_id", "")
    ids = (time.time(), place, identifier, job.id, duration, job.attempts, job.max_attempts)
    _console.put_success(SuccessLine(*ids, flags, job.queue_name, worker, about))
    return True


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes lines from a thread of its own. Warnings and errors are written when the call that logs them returns."""

    def __init__(self, stream: TextIO, formatter: Formatter | JSONFormatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._own_formatter = formatter
        self.job_filter = JobFilter()
        self._only_this = [self]
        self._methods = _logging_methods()
        self._is_logging_original = type(_jobs) is logging.Logger and all(map(_is_original, self._methods))
        self.writer: LineWriter[str | SuccessLine] = LineWriter(self._write)
        # Bound here, which saves a call for every job.
        self.put_success = self.writer.put

    def is_alone(self) -> bool:
        """Return whether logging would pass the record of a job that succeeded to this handler, and to no other.

        Called for every job. Whatever could change the record, or take part in writing it, can be added at any time:
        filters, handlers, a factory of records, a replaced method of logging.
        """
        return (
            self._is_logging_original
            and (_package.handlers + _root.handlers if _package.propagate else _package.handlers) == self._only_this
            and not (_jobs.handlers or _jobs.filters)
            and (not self.filters or self.filters == [self.job_filter])
            and _jobs.propagate
            and self.formatter is self._own_formatter
            and self.level <= logging.INFO
            and _logging_methods() == self._methods
            and logging.getLogRecordFactory() is logging.LogRecord
        )

    def emit(self, record: logging.LogRecord) -> None:
        # The text is made at once: later, the arguments of the message may have changed, and a traceback would keep
        # everything in memory that the task had.
        try:
            text = self.format(record)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)
            return
        if record.levelno >= logging.WARNING or len(text) > LONGEST_QUEUED:
            self.writer.write(text)
        else:
            self.writer.put(text)

    def flush(self) -> None:
        """Write the lines that wait."""
        # Without the lock of the handler, which emit() holds when it takes the lock of the writer.
        self.writer.flush()

    def _write(self, lines: Sequence[str | SuccessLine]) -> None:
        format_success = self._own_formatter.format_success
        texts = [line if isinstance(line, str) else format_success(line) for line in lines]
        for portion in _portions(texts, _largest_write(self.stream)):
            self._write_together(portion)

    def _write_together(self, texts: list[str]) -> None:
        try:
            self.stream.write(self.terminator.join([*texts, ""]))
            if hasattr(self.stream, "flush"):
                self.stream.flush()
        except UnicodeError:
            if len(texts) == 1:
                self._report_error(texts)
            else:
                # Nothing has been written yet, and only some of the lines have characters that the stream cannot take.
                for text in texts:
                    self._write_together([text])
        except Exception:
            self._report_error(texts)

    def _report_error(self, texts: Sequence[str]) -> None:
        """Report the current exception as logging does. Called in an ``except`` block."""
        self.handleError(logging.makeLogRecord({"name": _jobs.name, "msg": texts[0]}))


def _logging_methods() -> tuple[object, ...]:
    """Return the methods through which a record passes. Error trackers and tracers replace them by their own."""
    kind = logging.Logger
    return (kind.log, kind.makeRecord, kind.handle, kind.callHandlers)


def _is_original(method: object) -> bool:
    return isinstance(method, FunctionType) and method.__globals__ is vars(logging)


def _largest_write(stream: TextIO) -> int | None:
    """Return how many bytes may be written at once, None for any number.

    Several processes may write to the same pipe or terminal: a larger write could be cut by lines of the others.
    """
    try:
        return None if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else PIPE_BUF
    except (AttributeError, OSError, ValueError):
        return None


def _portions(texts: list[str], limit: int | None) -> Iterator[list[str]]:
    """Yield the texts in portions of at most ``limit`` bytes; a longer text is a portion by itself."""
    if limit is None:
        yield texts
        return
    portion: list[str] = []
    size = 0
    for text in texts:
        length = (len(text) if text.isascii() else 4 * len(text)) + 1
        if portion and size + length > limit:
            yield portion
            portion, size = [], 0
        portion.append(text)
        size += length
    yield portion


class LineWriter(Generic[Line]):
    """A queue of lines, and the thread that writes them in this order, which starts with the first line.

    A line that a thread writes itself costs a system call, and Python lets another thread run meanwhile. With thousands
    of jobs a second, their threads would spend most of their time waiting for each other.
    """

    def __init__(self, write: Callable[[list[Line]], None]) -> None:
        # Called by one thread at a time; must not raise.
        self._write = write
        self._queue: deque[Line] = deque()
        # Held while lines are removed from the queue and written, so that their order is kept. Reentrant, because a
        # signal handler may log while its thread writes.
        self._writing = threading.RLock()
        # Whether the next line has to call the writer. A writer that pauses finds the line by itself.
        self._wants_call = True
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_closed = False
        # Whether the current thread holds the writer.
        self._holding = threading.local()

    def put(self, line: Line) -> None:
        """Put a line into the queue. Called for every job, so it does as little as possible."""
        queue = self._queue
        queue.append(line)
        if self._wants_call:
            self._call()
        elif len(queue) > LONGEST_QUEUE:
            self.flush()

    def write(self, line: Line) -> None:
        """Write a line, after those that are in the queue, on the calling thread."""
        self._queue.append(line)
        self.flush()

    def flush(self) -> None:
        """Write the lines that are in the queue now, on the calling thread."""
        with self._writing:
            left = len(self._queue)
            while left > 0:
                count = min(left, LARGEST_BATCH)
                left -= count
                self._write(self._take(count))

    def wait(self, seconds: float) -> None:
        """Wait until the lines that are in the queue now are written, but no longer than this: a pipe may be full."""
        flushing = threading.Thread(target=self.flush, name="graphile-worker-log-flush", daemon=True)
        try:
            flushing.start()
        except RuntimeError:
            # No thread can be started.
            self.flush()
        else:
            flushing.join(seconds)

    def close(self) -> None:
        """Write what is in the queue, and every later line at once: the process ends, and its threads with it."""
        self._is_closed = self._wants_call = True
        self.flush()

    def hold(self) -> None:
        """Let no other thread write until ``release()``. Called before a fork.

        A forked process has a copy of the stream. If a thread of its parent were writing, the copy would be locked for
        ever, and would have the lines in its buffer.
        """
        self._holding.is_held = self._writing.acquire(timeout=HOLD_TIMEOUT)

    def release(self) -> None:
        """Let other threads write again. Called after a fork, by the thread that called ``hold()``."""
        if self._holding.is_held:
            self._writing.release()

    def forget(self) -> None:
        """Drop what is in the queue, and write every later line at once.

        Called in a forked process: it has a copy of the queue, which its parent writes, but not of the thread.
        """
        self._queue.clear()
        self._writing = threading.RLock()
        self._is_closed = self._wants_call = True

    def _take(self, count: int) -> list[Line]:
        # A nested call of flush(), by a signal handler, may have taken lines in between.
        return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]

    def _call(self) -> None:
        if self._is_closed or (self._thread is None and not self._start()):
            self.flush()
            return
        # In this order: after the call, the writer may already wait again.
        self._wants_call = False
        self._calls.put(None)

    def _start(self) -> bool:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._main, name="graphile-worker-log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The system allows no more threads, or the interpreter ends.
                    return False
                self._thread = thread
            return True

    def _main(self) -> None:
        while not self._is_closed:
            if self._queue:
                # The thread must not end, whatever a stream raises that the project has put in place.
                with contextlib.suppress(BaseException):
                    self.flush()
                # The lines of the next moments are written together.
                time.sleep(PAUSE)
                continue
            self._wants_call = True
            # Checked again: a line that was put in before the assignment has made no call.
            if not self._queue:
                self._calls.get()
            self._wants_call = False
        self._wants_call = True


class Formatter(logging.Formatter):
    """The time and the message, with a colour for the level or for the outcome of a job."""

    def __init__(self, *, is_colored: bool, is_detailed: bool = True) -> None:
        super().__init__("%(asctime)s %(message)s", datefmt="%H:%M:%S")
        self._is_colored = is_colored
        # Whether to write the tracebacks of failures that are retried; tracebacks of final failures are always written.
        self._is_detailed = is_detailed
        # The last second, and its text.
        self._second: tuple[int, str] = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        # Nothing is stored on the record, as logging.Formatter does: other handlers write texts of their own.
        text = f"{self._time(record.created)} {record.getMessage()}"
        if self._is_colored:
            text = _painted(text, record.levelno, getattr(record, "outcome", None))
        if record.exc_info and (record.levelno >= logging.ERROR or self._is_detailed):
            text = _with_block(text, self.formatException(record.exc_info))
        if record.stack_info:
            text = _with_block(text, self.formatStack(record.stack_info))
        return text

    def format_success(self, line: SuccessLine) -> str:
        """Return the text of a line that has no record."""
        text = f"{self._time(line.created)} {line.message}"
        return _painted(text, logging.INFO, "succeeded") if self._is_colored else text

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback without the worker's own frames; empty when no other frame is left."""
        text = trace(ei[1])
        return indented(text) if text else ""

    def _time(self, created: float) -> str:
        second, text = self._second
        if second != int(created):
            second = int(created)
            text = time.strftime(str(self.datefmt), self.converter(second))
            # One assignment: several threads format records.
            self._second = (second, text)
        return text


def _painted(text: str, level: int, outcome: object) -> str:
    words = str(outcome).replace("_", " ")
    paint = OUTCOMES.get(words)
    if paint and f" {words} " in text:
        return text.replace(f" {words} ", f" {paint(words)} ", 1)
    paint = COLORS.get(level)
    return paint(text) if paint else text


def _with_block(text: str, block: str) -> str:
    if not block:
        return text
    return f"{text}{block}" if text.endswith("\n") else f"{text}\n{block}"
