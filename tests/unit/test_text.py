from __future__ import annotations

import pytest

from django_graphile_worker.text import (
    MAX_TEXT_LENGTH,
    MAX_VALUE_LENGTH,
    in_largest_unit,
    quoted,
    readable_duration,
    shown,
    storable_text,
)


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain", "plain"), ("a\x00b", "a\\x00b"), ("é\ud800", "é\\ud800"), ("🎉", "🎉")],
)
def test_storable_text_shows_what_postgresql_cannot_hold(text: str, stored: str) -> None:
    assert storable_text(text) == stored


def test_shown_is_one_line_of_bounded_length() -> None:
    assert shown("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert shown("x" * (MAX_TEXT_LENGTH + 1)) == "x" * MAX_TEXT_LENGTH + "…"


def test_shown_survives_an_object_without_readable_text() -> None:
    class Mute:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert shown(Mute()) == "<its text could not be read>"


def test_quoted_is_short() -> None:
    assert [quoted(value) for value in ("a'b", 7, None)] == ['"a\'b"', "7", "None"]
    assert quoted("x" * 5_000) == f"'{'x' * (MAX_VALUE_LENGTH - 1)}… (5000 characters)"
    assert quoted("x" * (MAX_VALUE_LENGTH - 2)) == repr("x" * (MAX_VALUE_LENGTH - 2))
    assert quoted(list(range(5_000))) == f"{repr(list(range(5_000)))[:MAX_VALUE_LENGTH]}…"
    # Python refuses to write it.
    assert quoted(10**5_000) == "a value of type int"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "<0.1 ms"),
        (0.00002, "<0.1 ms"),
        (0.0004, "0.4 ms"),
        (0.00097, "1 ms"),
        (0.0123, "12 ms"),
        (0.9999, "1 s"),
        (2.44, "2.4 s"),
        (7, "7 s"),
        (9.97, "10 s"),
        (55.2, "55 s"),
        (119.4, "119 s"),
        (1097, "18 min"),
        (3_569, "59 min"),
        (3_590, "1 h"),
        (7_500, "2 h 5 min"),
        (21_600, "6 h"),
        (86_400, "1 d"),
        (273_600, "3 d 4 h"),
    ],
)
def test_readable_duration__is_as_people_say_it(seconds: float, text: str) -> None:
    assert readable_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 m"), (-7_500, "2 h"), (86_400 * 3.5, "3 d"), (86_400 * 800, "2 y")],
)
def test_largest_unit__is_written_and_nothing_below_it(seconds: float, text: str) -> None:
    assert in_largest_unit(seconds) == text
