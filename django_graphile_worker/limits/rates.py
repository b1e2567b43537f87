"""``Rate``: how many jobs may start in a time, such as ``100/m``."""

from __future__ import annotations

import re

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.frozen import Frozen

LARGEST_COUNT = 1_000_000
LONGEST_WINDOW = 31 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNITS = {
    "s": ("s", "sec", "second", "seconds"),
    "m": ("m", "min", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "d": ("d", "day", "days"),
}
_UNIT_OF_NAME = {name: unit for unit, names in _UNITS.items() for name in names}
_SHAPE = re.compile(r"\s*(\d+)\s*(?:/|per)\s*(\d*)\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)
EXPECTED = "expected a rate like '100/m': a whole number, a slash, and s, m, h, d or a number of them ('300/15m')"


class Rate(Frozen):
    """A number of starts in a window of time."""

    count: int
    # The length of the window.
    seconds: int

    @classmethod
    def parse(cls, value: object, *, name: str = "rate") -> Rate:
        """Return the rate of a text; raise for a text that is no rate."""
        if isinstance(value, Rate):
            return value
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name}: {EXPECTED}, got {value!r} ({type(value).__name__}).")
        found = _SHAPE.fullmatch(value)
        unit = _UNIT_OF_NAME.get(found[3].lower()) if found else None
        if found is None or unit is None:
            raise InvalidJobError(f"{name}: {EXPECTED}, got {value!r}.{_way_out(value)}")
        count, seconds = int(found[1]), int(found[2] or 1) * _SECONDS[unit]
        if not 1 <= count <= LARGEST_COUNT:
            raise InvalidJobError(f"{name}: expected 1 to {LARGEST_COUNT} starts, got {value!r}.")
        if not 1 <= seconds <= LONGEST_WINDOW:
            raise InvalidJobError(f"{name}: expected a window of 1 second to 31 days, got {value!r}.")
        return cls(count=count, seconds=seconds)

    def __str__(self) -> str:
        unit = next(unit for unit in ("d", "h", "m", "s") if self.seconds % _SECONDS[unit] == 0)
        number = self.seconds // _SECONDS[unit]
        return f"{self.count}/{number if number > 1 else ''}{unit}"


def _way_out(text: str) -> str:
    """Return the rate that is probably meant by a fraction, as a sentence."""
    found = re.fullmatch(r"\s*0\.5\s*/\s*([smhd])\s*", text)
    if found:
        return f" Write '1/2{found[1]}'."
    return " A fraction is a longer window: '1/10s' is one start in ten seconds." if "." in text else ""
