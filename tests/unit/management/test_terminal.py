"""Lines on a terminal."""

from __future__ import annotations

import logging

import pytest

from django_graphile_worker.management.terminal import Formatter


def make_record(level: int, text: str = "no such order") -> logging.LogRecord:
    try:
        raise ValueError(text)
    except ValueError as error:
        exception = (ValueError, error, error.__traceback__)
    return logging.LogRecord("a", level, __file__, 1, "it failed", (), exception)


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
    assert "it failed" in text
    assert ("Traceback" in text) is has_traceback
    assert record.exc_info, "other handlers get it in any case"


def test_traceback__cannot_command_the_terminal() -> None:
    text = Formatter(is_colored=False).format(make_record(logging.ERROR, "\x1b[2Jgone"))
    assert text.endswith("ValueError: \\x1b[2Jgone")
    assert len(text.splitlines()) > 3
