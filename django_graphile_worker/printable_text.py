"""Text from any source, made safe for one line of a log, for a terminal, or for PostgreSQL."""

from __future__ import annotations

LONGEST_TEXT = 500
LONGEST_VALUE = 80


def shown(value: object) -> str:
    """Return the value as text for one line: without line breaks and control characters, and not too long."""
    text = text_of(value)
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}…"
    return escaped(text)


def text_of(value: object) -> str:
    """Return the value as text, whatever its methods raise."""
    try:
        return str(value)
    except BaseException:  # the methods of an exception may raise anything, and the line must be written
        return "<its text could not be read>"


def quoted(value: object) -> str:
    """Return the value as Python code for the message of an error, cut if it is long."""
    try:
        text = repr(value[: LONGEST_VALUE + 1] if isinstance(value, str) else value)
    except Exception:  # a number of very many digits, or an object whose method fails
        return f"a value of type {type(value).__name__}"
    if len(text) <= LONGEST_VALUE:
        return text
    length = f" ({len(value)} characters)" if isinstance(value, str) else ""
    return f"{text[:LONGEST_VALUE]}…{length}"


def escaped(text: str) -> str:
    """Return the text with every character that controls a terminal written as an escape sequence."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def storable_text(text: str) -> str:
    """Return the text with what PostgreSQL cannot store escaped, for messages that must not be refused."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
