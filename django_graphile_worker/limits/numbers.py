"""``LimitNumbers``: the numbers of a limit, which settings and operators may override, and ``Rate``, one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.job_options import whole_number

LARGEST_CONCURRENCY = 100_000
# The keys of an entry of GRAPHILE_WORKER["LIMITS"].
NUMBERS = ("concurrency", "rate", "burst")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
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


class LimitNumbers(Frozen):
    """How many jobs of a key run at once, and how many start in a time; None is no limit."""

    concurrency: int | None
    rate: Rate | None
    # Of the starts of a window, how many may follow each other at once; None for all of them.
    burst: int | None

    def __init__(self, *, concurrency: object = None, rate: object = None, burst: object = None, where: str = "Limit"):
        parsed = None if rate is None else Rate.parse(rate, name=f"{where}: rate")
        super().__init__(
            concurrency=None
            if concurrency is None
            else whole_number(f"{where}: concurrency", concurrency, 1, LARGEST_CONCURRENCY),
            rate=parsed,
            burst=_valid_burst(burst, parsed, where),
        )

    @property
    def are_limiting(self) -> bool:
        return self.concurrency is not None or self.rate is not None

    @property
    def rate_count(self) -> int | None:
        return None if self.rate is None else self.rate.count

    @property
    def rate_seconds(self) -> int | None:
        return None if self.rate is None else self.rate.seconds

    def overridden(self, numbers: Mapping[str, Any]) -> LimitNumbers:
        """Return the numbers with these changes; a burst that the rate does not reach is left out."""
        values = {name: getattr(self, name) for name in NUMBERS} | dict(numbers)
        rate = None if values["rate"] is None else Rate.parse(values["rate"])
        if rate is None or (values["burst"] or 0) >= rate.count:
            values["burst"] = None
        return LimitNumbers(**values)

    def __str__(self) -> str:
        parts = [
            f"{self.concurrency} at once" if self.concurrency is not None else "",
            str(self.rate) if self.rate is not None else "",
            f"burst {self.burst}" if self.burst is not None else "",
        ]
        return ", ".join(part for part in parts if part) or "no limit"


def _valid_burst(burst: object, rate: Rate | None, where: str) -> int | None:
    if burst is None:
        return None
    if rate is None:
        raise InvalidJobError(
            f"{where}: expected a rate with burst={burst!r}, got none: burst is how many of the starts of a rate may "
            "follow each other at once. Add rate='100/m', or write concurrency=."
        )
    return whole_number(f"{where}: burst", burst, 1, rate.count)


def _way_out(text: str) -> str:
    """Return the rate that is probably meant by a fraction, as a sentence."""
    found = re.fullmatch(r"\s*0\.5\s*/\s*([smhd])\s*", text)
    if found:
        return f" Write '1/2{found[1]}'."
    return " A fraction is a longer window: '1/10s' is one start in ten seconds." if "." in text else ""
