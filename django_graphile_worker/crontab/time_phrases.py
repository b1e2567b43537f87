"""Time phrases: ``4w3d2h1m`` is four weeks, three days, two hours and one minute."""

from __future__ import annotations

import re
from datetime import timedelta

# The longest unit of graphile-worker is a week. Years are an addition of this package: each has 365 days.
_UNITS = {
    "y": timedelta(days=365),
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
_PHRASE = re.compile(r"(?:[0-9]{1,12}[ywdhms])+")
_TERM = re.compile(r"([0-9]+)([ywdhms])")

LONGEST_PERIOD = timedelta(days=36_500)
EXPECTED_TIME_PHRASE = "a time phrase of at most 100 years, like 4w3d2h1m or 1y (units y, w, d, h, m, s)"


def parse_time_phrase(text: str) -> timedelta:
    """Return the period that a time phrase means; raise ValueError for any other text."""
    if not _PHRASE.fullmatch(text):
        raise ValueError(f"expected {EXPECTED_TIME_PHRASE}, got {text!r}")
    seconds = sum(int(count) * int(_UNITS[unit].total_seconds()) for count, unit in _TERM.findall(text))
    if seconds > LONGEST_PERIOD.total_seconds():
        raise ValueError(f"expected {EXPECTED_TIME_PHRASE}, got {text!r}")
    return timedelta(seconds=seconds)


def format_time_phrase(period: timedelta) -> str:
    """Return the shortest phrase for a period, in the units that graphile-worker has (no years)."""
    if period.microseconds or period < timedelta(0):
        raise ValueError(f"expected a period of whole seconds, got {period!r}")
    text, rest = "", period
    for unit in "wdhms":
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"
