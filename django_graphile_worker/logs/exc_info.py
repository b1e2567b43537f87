"""Exceptions for log records: with their tracebacks, for error trackers, but bounded and without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from traceback import format_exception_only
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.redaction import redact_text

# How many times the longest text is searched for secrets.
LIMITS_READ = 4
_LONGEST_CHAIN = 20
# After a cut, the text continues with the next word that begins within this many characters: the rest of a word that
# was cut in two may be the rest of a secret whose name is missing.
_LONGEST_WORD = 1_000


def worth_logging(error: BaseException | None, *, is_final: bool = False) -> BaseException | None:
    """Return the exception for a record's ``exc_info``.

    Return None for a retry that the task requested, and for an exception that a handler could not write. Return a copy
    with the same name and traceback for an exception whose text is too long or contains a secret.
    """
    if error is None or (isinstance(error, RetryLater) and not is_final):
        return None
    chain = list(_linked(error))
    # What follows after the longest chain has not been read: the copy ends there.
    if len(chain) == _LONGEST_CHAIN or any(_safe_text(each) != _text(each) for each in chain):
        error = _copied(error)
    return error if all(map(_is_writable, _linked(error))) else None


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
        copy = _named_like(error)(_safe_text(error))
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


def _named_like(error: BaseException) -> type[Exception]:
    kind = type(error)
    return type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _is_writable(error: BaseException) -> bool:
    """Return whether a handler can write the exception: half a surrogate pair makes it drop the whole record."""
    try:
        "".join(format_exception_only(error)).encode()
    except BaseException:
        return False
    return True
