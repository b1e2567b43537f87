"""Which exceptions go into the log whole, for whoever collects errors there."""

from __future__ import annotations

from collections.abc import Iterator
from traceback import format_exception_only

from django_graphile_worker.exceptions import RetryLater

_LONGEST_CHAIN = 20


def worth_logging(error: BaseException, *, is_final: bool) -> BaseException | None:
    """The exception for a record's ``exc_info``; None for a retry that will come, and for what cannot be written."""
    if isinstance(error, RetryLater) and not is_final:
        return None
    return error if all(map(_is_writable, _chain(error))) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if following is None:
            return
        yield following
        following = following.__cause__ or following.__context__


def _is_writable(error: BaseException) -> bool:
    """Half a surrogate pair in its text, and a handler that writes a file would drop the line and all."""
    try:
        "".join(format_exception_only(error)).encode()
    except BaseException:
        return False
    return True
