"""The clock by which a worker measures the age of its lease."""

from __future__ import annotations

import time

# CLOCK_MONOTONIC stands still while a machine is suspended, but the lease runs out for the other workers. Linux has a
# clock that goes on; elsewhere the system's monotonic clock is used.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def lease_clock() -> float:
    """Return seconds that also pass while the machine is suspended."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
