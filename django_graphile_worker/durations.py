"""Durations as text for people: in logs, commands and errors.

The admin translates its durations (``admin.formatting``); the time phrases of crontabs are in ``crontab.time_phrases``.
"""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3_600, 86_400
_UNITS = ((365 * DAY, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s"))


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
