"""The clock by which a worker knows how old its lease is."""

from __future__ import annotations

import time

# CLOCK_MONOTONIC stands still while a machine is suspended, and other workers do not wait. Linux has a clock that
# goes on; where there is none, the system's monotonic clock has to do.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def lease_clock() -> float:
    """Return seconds that also pass while the machine is suspended."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
