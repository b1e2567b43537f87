"""The log lines that a worker writes to standard error if the project does not configure logging."""

from __future__ import annotations

import atexit
import logging
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from select import PIPE_BUF
from types import FunctionType
from typing import Any, TextIO

from django.utils.termcolors import make_style

from django_graphile_worker.logs import success_lines
from django_graphile_worker.logs.lines import indented
from django_graphile_worker.logs.success_lines import SuccessLine
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.process.line_writer import LineWriter

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

_root = logging.getLogger()
_package = logging.getLogger(ROOT_LOGGER)
_jobs = logging.getLogger(f"{ROOT_LOGGER}.jobs")


def set_up_logging(*, verbosity: int, is_colored: bool) -> None:
    """Write the worker's log to standard error, unless the project's LOGGING has a handler for it."""
    if _package.hasHandlers():
        return
    handler = ConsoleHandler(sys.stderr, Formatter(is_colored=is_colored, is_detailed=verbosity > 1))
    _package.addHandler(handler)
    _package.setLevel(LEVELS.get(verbosity, logging.INFO))
    success_lines.console = handler
    # logging flushes its handlers at the end, too, but not those of an earlier configuration.
    atexit.register(handler.writer.close)
    fork_guard.call_around("log", handler.writer.hold, handler.writer.release)
    fork_guard.call_in_child("log", handler.writer.forget)


def write_log() -> None:
    """Write the lines that wait, so that they precede what the command writes after the worker has ended."""
    for handler in _package.handlers:
        if isinstance(handler, ConsoleHandler):
            handler.writer.wait(WRITE_TIMEOUT)


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes lines from a thread of its own. Warnings and errors are written when the call that logs them returns."""

    def __init__(self, stream: TextIO, formatter: Formatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._own_formatter = formatter
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
            and _package.handlers == self._only_this
            and not (_jobs.handlers or _jobs.filters or self.filters)
            and _jobs.propagate
            and not (_package.propagate and _root.handlers)
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
        text = f"{self._time(line[0])} {success_lines.message(line)}"
        return _painted(text, logging.INFO, "succeeded") if self._is_colored else text

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback without the worker's own frames; empty when no other frame is left."""
        # Late import: a worker that starts has no exception to write.
        from django_graphile_worker.worker.execution.retry import trace

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
    paint = OUTCOMES.get(str(outcome))
    if paint and f" {outcome} " in text:
        return text.replace(f" {outcome} ", f" {paint(str(outcome))} ", 1)
    paint = COLORS.get(level)
    return paint(text) if paint else text


def _with_block(text: str, block: str) -> str:
    if not block:
        return text
    return f"{text}{block}" if text.endswith("\n") else f"{text}\n{block}"
