"""Text for people, in logs, commands and errors: values of any kind made printable, and durations.

The admin translates its durations (``admin.formatting``); the time phrases of crontabs are in ``crontab.time_phrases``.
"""

from __future__ import annotations

MAX_TEXT_LENGTH = 500
MAX_VALUE_LENGTH = 80
MINUTE, HOUR, DAY = 60, 3_600, 86_400
_UNITS = ((365 * DAY, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s"))


def shown(value: object) -> str:
    """Return the value as text for one line: without line breaks and control characters, and not too long."""
    text = text_of(value)
    if len(text) > MAX_TEXT_LENGTH:
        text = f"{text[:MAX_TEXT_LENGTH]}…"
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
        text = repr(value[: MAX_VALUE_LENGTH + 1] if isinstance(value, str) else value)
    except Exception:  # a number of very many digits, or an object whose method fails
        return f"a value of type {type(value).__name__}"
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    length = f" ({len(value)} characters)" if isinstance(value, str) else ""
    return f"{text[:MAX_VALUE_LENGTH]}…{length}"


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


def readable_duration(seconds: float) -> str:
    """Return seconds as text: ``0.4 ms``, ``12 ms``, ``2.4 s``, ``18 min``, ``2 h 5 min``, ``3 d 4 h``."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        milliseconds = seconds * 1_000
        if milliseconds < 0.05:
            return "<0.1 ms"
        return f"{milliseconds:.1f} ms" if milliseconds < 0.95 else f"{milliseconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 2 * MINUTE:
        return f"{whole} s"
    if whole < HOUR - MINUTE / 2:
        return f"{round(whole / MINUTE)} min"
    if whole < DAY:
        return _in_two_units(round(whole / MINUTE), HOUR // MINUTE, "h", "min")
    return _in_two_units(round(whole / HOUR), DAY // HOUR, "d", "h")


def _in_two_units(number: int, size: int, large: str, small: str) -> str:
    """Return a number of small units as ``2 h 5 min``, or as ``2 h`` when the rest is zero."""
    whole, rest = divmod(number, size)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"


def in_largest_unit(seconds: float) -> str:
    """Return seconds in the largest unit that fits, without the rest: ``3 h``, not ``3 h 12 m 5 s``."""
    seconds = round(abs(seconds))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"
