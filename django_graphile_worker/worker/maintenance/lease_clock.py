"""The clock by which a worker measures the age of its lease."""

from __future__ import annotations

import time

# CLOCK_MONOTONIC stops while a machine is suspended, but for the other workers the lease expires. Linux has a clock
# that continues; on other systems the monotonic clock is used.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def lease_clock() -> float:
    """Return seconds that also pass while the machine is suspended, on Linux."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
