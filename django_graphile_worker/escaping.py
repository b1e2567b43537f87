"""Text from anywhere, made fit for one line of a log or a terminal."""

from __future__ import annotations

LONGEST_TEXT = 500


def shown(value: object) -> str:
    """Text for one line of a log: no line breaks, no control characters, no novel."""
    try:
        text = str(value)
    except BaseException:  # whatever an exception's own methods do; the line is worth more
        text = "<its text could not be read>"
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}…"
    return escaped(text)


def escaped(text: str) -> str:
    """The text with everything that a terminal could obey made visible."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )
