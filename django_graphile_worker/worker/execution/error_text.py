"""Exceptions to the text that a failed job keeps."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from django_graphile_worker.escaping import storable_text
from django_graphile_worker.logs.exc_info import cut_middle
from django_graphile_worker.redaction import redact_text

_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_LONGEST_SUMMARY = 2_000
_UNREADABLE = "The task failed, and its error could not be put into words."


def describe(error: BaseException, *, limit: int, remark: str = "") -> str:
    """What went wrong in one line, then the traceback; never raises."""
    try:
        parts = [summary(error), remark, _traceback(error)]
        return cut("\n\n".join(part for part in parts if part), limit)
    except BaseException:  # whatever an exception's own methods do
        return cut(f"{type(error).__name__}\n\n{_UNREADABLE}", limit)


def trace(error: BaseException) -> str:
    """The traceback alone; empty for an exception that nobody raised. Never raises."""
    try:
        return _traceback(error)
    except BaseException:
        return ""


def summary(error: BaseException) -> str:
    """``ValueError: no such order``, as the last line of a traceback has it."""
    name, message = _class_name(type(error)), _message(error)
    return cut(f"{name}: {message}" if message else name, _LONGEST_SUMMARY)


def redacted(text: str, limit: int) -> str:
    """The text without secrets; what hides a short one may make it longer."""
    return cut_middle(redact_text(text), limit)


def cut(text: str, limit: int) -> str:
    """Text that PostgreSQL takes; the middle goes, as both ends tell more."""
    return cut_middle(storable_text(cut_middle(text, limit)), limit)


def _class_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "<its message could not be read>"


def _traceback(error: BaseException) -> str:
    """The standard traceback without the worker's own frames; empty when none is left."""
    report = traceback.TracebackException.from_exception(error, compact=True)
    reports = list(_linked(report))
    for each in reports:
        each.stack = traceback.StackSummary.from_list(
            [frame for frame in each.stack if not frame.filename.startswith(_OURS)]
        )
    # The members of a group that nobody raised have no lines, and are told nowhere else.
    if not any(each.stack for each in reports) and not report.exceptions:
        return ""
    return "".join(report.format()).rstrip()


def _linked(report: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """A report and all it refers to: causes, contexts, members of groups."""
    waiting = [report]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(filter(None, [each.__cause__, each.__context__, *(each.exceptions or ())]))
