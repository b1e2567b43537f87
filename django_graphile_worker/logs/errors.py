"""Errors as text: for the database, for one line of a log, and as the exception of a log record.

Whatever the methods of an exception raise, there is a text. It is bounded, and a log has it without secrets.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.text import escaped, shown, storable_text, text_of

# The folders worker/ and testing/: their frames are left out of tracebacks.
OWN_FOLDERS = tuple(f"{Path(__file__).resolve().parents[1] / folder}/" for folder in ("worker", "testing"))
# How many times the longest text is searched for secrets.
LIMITS_READ = 4
_MAX_SUMMARY_LENGTH = 2_000
_LONGEST_CHAIN = 20
# After a cut, the text continues with the next word that begins within this many characters: the rest of a word that
# was cut in two may be the rest of a secret whose name is missing.
_LONGEST_WORD = 1_000
_UNREADABLE = "The task failed, and its error could not be described."


# For the database.


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


def cut_middle(text: str, limit: int) -> str:
    """Shorten a text to ``limit`` characters: replace its middle, the least useful part, by the length of the cut."""
    if len(text) <= limit:
        return text
    mark = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = max(limit - len(mark), 0)
    head = room // 3
    return (text[:head] + mark + _from_next_word(text[len(text) - (room - head) :]))[:limit]


def redacted_and_cut(text: str, limit: int) -> str:
    """Hide secrets, then shorten the text: after a cut, a value may lack the name that says that it is a secret.

    Only a text that would take long to read is cut before that, too.
    """
    return cut_middle(redact_text(cut_middle(text, LIMITS_READ * limit)), limit)


def _from_next_word(text: str) -> str:
    words = text[:_LONGEST_WORD].split(maxsplit=1)
    return text if len(words) < 2 else text[text.index(words[0]) + len(words[0]) :].lstrip()


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
    reports = list(_reports(report))
    for each in reports:
        each.stack = traceback.StackSummary.from_list(
            [frame for frame in each.stack if not frame.filename.startswith(OWN_FOLDERS)]
        )
    # Members of a group that were never raised have no frames, and only the report of the group names them.
    if not any(each.stack for each in reports) and not report.exceptions:
        return ""
    return "".join(report.format()).rstrip()


def _reports(report: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Return a report and all reports that it refers to: causes, contexts, members of groups."""
    waiting = [report]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(filter(None, [each.__cause__, each.__context__, *(each.exceptions or ())]))


# For the log.


def error_text(error: object) -> str:
    """Return the class and the message of an exception in one line, without secrets."""
    if not isinstance(error, BaseException):
        return shown(error)
    text = shown(redact_text(text_of(error)))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def log_exception(
    logger: logging.Logger,
    level: int,
    template: str,
    *arguments: object,
    error: BaseException,
    attributes: Mapping[str, object] | None = None,
    is_final: bool = True,
) -> None:
    """Log a line with an exception whose text nobody has checked.

    A plain formatter of the project writes the ``exc_text`` of a record.
    """
    if not logger.isEnabledFor(level):
        return
    exception = _worth_logging(error, is_final=is_final)
    if exception is None:
        logger.log(level, template, *arguments, extra=attributes)
        return
    exc_info = (type(exception), exception, exception.__traceback__)
    record = logger.makeRecord(
        logger.name, level, __file__, 0, template, arguments, exc_info, "log_exception", attributes
    )
    record.exc_text = indented(logging.Formatter().formatException(exc_info))
    logger.handle(record)


def indented(block: str) -> str:
    """Return the lines of a traceback so that none looks like a line of the log, or controls a terminal."""
    return "\n".join(f"  {escaped(line)}" for line in block.split("\n"))


def _worth_logging(error: BaseException, *, is_final: bool) -> BaseException | None:
    """Return the exception for a record's ``exc_info``.

    Return None for a retry that the task requested, and for an exception that a handler could not write. Return a copy
    with the same name and traceback for an exception whose text is too long or contains a secret.
    """
    if isinstance(error, RetryLater) and not is_final:
        return None
    chain = list(_linked(error))
    # What follows after the longest chain has not been read: the copy ends there.
    if len(chain) == _LONGEST_CHAIN or any(_safe_text(each) != _text(each) for each in chain):
        error = _copied(error)
    return error if all(map(_is_writable, _linked(error))) else None


def _linked(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that its traceback includes: causes, contexts, members of groups."""
    waiting = [error]
    for _ in range(_LONGEST_CHAIN):
        if not waiting:
            return
        each = waiting.pop()
        yield each
        waiting += getattr(each, "exceptions", ()) if isinstance(each, BaseExceptionGroup) else ()
        following = each.__cause__ or each.__context__
        if following is not None:
            waiting.append(following)


def _text(error: BaseException) -> str:
    """Return the message and the notes of an exception, whose methods may raise anything."""
    try:
        return "\n".join([str(error), *map(str, getattr(error, "__notes__", ()))])
    except BaseException:
        return "<its message could not be read>"


def _safe_text(error: BaseException) -> str:
    settings = conf.current()
    limit = settings.max_error_length
    return redacted_and_cut(_text(error), limit) if settings.redact_errors else cut_middle(_text(error), limit)


def _copied(error: BaseException, level: int = 0) -> BaseException:
    """Return a copy of the exception whose texts may be logged."""
    if isinstance(error, BaseExceptionGroup):
        copy = _copied_group(error, level)
    else:
        kind = type(error)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        copy = type(kind.__name__, (Exception,), names)(_safe_text(error))
    copy.__traceback__ = error.__traceback__
    if level < _LONGEST_CHAIN:
        copy.__cause__ = error.__cause__ and _copied(error.__cause__, level + 1)
        # Beside a cause, a traceback shows no context. To copy both would double the copies at each level.
        if error.__context__ is not None and error.__cause__ is None:
            copy.__context__ = _copied(error.__context__, level + 1)
    copy.__suppress_context__ = error.__suppress_context__
    return copy


def _copied_group(error: BaseExceptionGroup[Any], level: int) -> BaseException:
    message = redacted_and_cut(error.message, conf.current().max_error_length)
    return BaseExceptionGroup(message, [_copied(each, level + 1) for each in error.exceptions[:_LONGEST_CHAIN]])


def _is_writable(error: BaseException) -> bool:
    """Return whether a handler can write the exception: half a surrogate pair makes it drop the whole record."""
    try:
        "".join(traceback.format_exception_only(error)).encode()
    except BaseException:
        return False
    return True
