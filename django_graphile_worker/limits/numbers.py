"""``LimitNumbers``: the numbers of a limit, which settings and operators may override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_graphile_worker.exceptions import InvalidJobError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.job_options import whole_number
from django_graphile_worker.limits.rates import Rate

LARGEST_CONCURRENCY = 100_000
# The keys of an entry of GRAPHILE_WORKER["LIMITS"].
NUMBERS = ("concurrency", "rate", "burst")


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
