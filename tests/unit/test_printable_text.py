from __future__ import annotations

import pytest

from django_graphile_worker.printable_text import LONGEST_TEXT, LONGEST_VALUE, escaped, quoted, shown, storable_text


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain", "plain"), ("a\x00b", "a\\x00b"), ("é\ud800", "é\\ud800"), ("🎉", "🎉")],
)
def test_storable_text_shows_what_postgresql_cannot_hold(text: str, stored: str) -> None:
    assert storable_text(text) == stored


def test_shown_is_one_line_of_bounded_length() -> None:
    assert shown("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert shown("x" * (LONGEST_TEXT + 1)) == "x" * LONGEST_TEXT + "…"


def test_shown_survives_an_object_without_readable_text() -> None:
    class Mute:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert shown(Mute()) == "<its text could not be read>"


def test_escaped_leaves_printable_text_alone() -> None:
    assert escaped("größe 🎉") == "größe 🎉"
    assert escaped("\u202egnp.exe") == "\\u202egnp.exe"


def test_quoted_is_short() -> None:
    assert [quoted(value) for value in ("a'b", 7, None)] == ['"a\'b"', "7", "None"]
    assert quoted("x" * 5_000) == f"'{'x' * (LONGEST_VALUE - 1)}… (5000 characters)"
    assert quoted("x" * (LONGEST_VALUE - 2)) == repr("x" * (LONGEST_VALUE - 2))
    assert quoted(list(range(5_000))) == f"{repr(list(range(5_000)))[:LONGEST_VALUE]}…"
    # Python refuses to write it.
    assert quoted(10**5_000) == "a value of type int"
