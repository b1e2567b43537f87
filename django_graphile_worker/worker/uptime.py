"""The clock of leases: seconds that go on while the machine is suspended."""

from __future__ import annotations

import time

# A lease goes on while the machine sleeps. CLOCK_MONOTONIC, which time.monotonic() reads on Linux, does not.
_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def uptime() -> float:
    """Seconds since some moment in the past, suspended ones included where the system can tell."""
    return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)
