"""The text of an exception that is stored with a failed job."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from django_graphile_worker.logs.exc_info import cut_middle
from django_graphile_worker.text import storable_text

# The folders worker/ and testing/: their frames are left out of tracebacks.
OWN_FOLDERS = tuple(f"{Path(__file__).resolve().parents[2] / folder}/" for folder in ("worker", "testing"))
_MAX_SUMMARY_LENGTH = 2_000
_UNREADABLE = "The task failed, and its error could not be described."


def describe(error: BaseException, *, limit: int, remark: str = "") -> str:
    """Return a summary in one line, then the remark and the traceback. Never raises."""
    try:
        parts = [summary(error), remark, _traceback(error)]
        return cut("\n\n".join(part for part in parts if part), limit)
    except BaseException:  # the methods of an exception may raise anything
        return cut(f"{type(error).__name__}\n\n{_UNREADABLE}", limit)


def trace(error: BaseException) -> str:
    """Return the traceback alone; an empty string for an exception that was never raised. Never raises."""
    try:
        return _traceback(error)
    except BaseException:
        return ""


def summary(error: BaseException) -> str:
    """Return ``ValueError: no such order``, as the last line of a traceback shows it."""
    name, message = _class_name(type(error)), _message(error)
    # Cut at its end: a value without its end is still known as a secret, a value without its name is not.
    return storable_text(f"{name}: {message}" if message else name)[:_MAX_SUMMARY_LENGTH]


def class_path(error: BaseException) -> str:
    """Return the dotted path from which the class of the exception can be imported."""
    kind = type(error)
    return storable_text(f"{kind.__module__}.{kind.__qualname__}")


def cut(text: str, limit: int) -> str:
    """Return text that PostgreSQL accepts. A text that is too long loses its middle: the ends matter more."""
    return cut_middle(storable_text(cut_middle(text, limit)), limit)


def _class_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "<its message could not be read>"


def _traceback(error: BaseException) -> str:
    """Return the standard traceback without the worker's own frames; an empty string if no frame is left."""
    report = traceback.TracebackException.from_exception(error, compact=True)
    reports = list(_linked(report))
    for each in reports:
        each.stack = traceback.StackSummary.from_list(
            [frame for frame in each.stack if not frame.filename.startswith(OWN_FOLDERS)]
        )
    # Members of a group that were never raised have no frames, and only the report of the group names them.
    if not any(each.stack for each in reports) and not report.exceptions:
        return ""
    return "".join(report.format()).rstrip()


def _linked(report: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Return a report and all reports that it refers to: causes, contexts, members of groups."""
    waiting = [report]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(filter(None, [each.__cause__, each.__context__, *(each.exceptions or ())]))
