"""Lines on a terminal."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from django_graphile_worker.worker.process.console_log import Formatter
from django_graphile_worker.worker.typed_payloads import scalars


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


def test_traceback__leaves_the_worker_s_own_frames_out() -> None:
    record = make_record(logging.ERROR)
    try:
        scalars.one_of((1,))(2, "$")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    text = Formatter(is_colored=False).format(record)
    assert f'File "{__file__}"' in text
    assert scalars.__file__ not in text


def test_traceback__of_an_exception_without_other_frames_is_left_out() -> None:
    record = make_record(logging.ERROR)
    record.exc_info = (ValueError, ValueError("returned, not raised"), None)
    assert len(Formatter(is_colored=False).format(record).splitlines()) == 1


@pytest.mark.parametrize(
    ("level", "outcome", "code"),
    [
        (logging.INFO, "succeeded", "32"),
        (logging.WARNING, "failed", "33;1"),
        (logging.ERROR, "permanently failed", "31;1"),
    ],
)
def test_color__paints_the_word_that_says_how_a_job_ended(level: int, outcome: str, code: str) -> None:
    record = make_record(level, outcome=outcome)
    record.msg, record.exc_info = f"send #1 {outcome} after 2 ms", None
    text = Formatter(is_colored=True).format(record)
    assert text.endswith(f"send #1 \x1b[{code}m{outcome}\x1b[0m after 2 ms")
    assert re.fullmatch(r"[\d:]{8} send #1 .* after 2 ms", Formatter(is_colored=False).format(record))


def test_color__of_other_lines_is_that_of_their_level() -> None:
    text = Formatter(is_colored=True, is_detailed=False).format(make_record(logging.WARNING))
    assert text.startswith("\x1b[33m")
    assert text.endswith("\x1b[0m")
