"""What systemd is told of a service with ``Type=notify``: that it is ready, that it lives, what it does, that it stops.

The protocol is that of ``sd_notify(3)``: lines in a datagram to the socket that an environment variable names.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket

# Seconds that systemd has to take a message. Nothing of the worker may wait for systemd longer.
SEND_TIMEOUT = 1.0
# Seconds that a worker may need to stop beside its grace period; docs/guides/running-the-worker.md says so, too.
STOP_RESERVE = 15.0


class Systemd:
    """Tells systemd what happens to this service; without an address, nothing."""

    def __init__(self, address: str = "", *, interval: float = math.inf, grace_period: float = 0.0) -> None:
        # "@" stands for the zero byte with which the names of abstract sockets begin.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        # Seconds between two signs of life; infinite if systemd wants none.
        self.interval = interval
        self._grace_period = grace_period
        self._is_ready = False
        self._is_stopping = False
        self._status = ""

    @classmethod
    def from_environment(cls, *, grace_period: float) -> Systemd:
        """Take the variables of systemd out of the environment: they are not for the processes that tasks start."""
        address, timeout, pid = (
            os.environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        is_watched = timeout.isdigit() and pid in ("", str(os.getpid()))
        # Half of the time after which systemd kills the service, as the manual asks for.
        interval = int(timeout) / 2_000_000 if address and is_watched else math.inf
        return cls(address, interval=interval, grace_period=grace_period)

    def __bool__(self) -> bool:
        return bool(self._address)

    def report(self, *, is_ready: bool, status: str) -> None:
        """Tell that the service lives, and what has changed since the last report."""
        lines = [] if math.isinf(self.interval) else ["WATCHDOG=1"]
        if not self._is_stopping:
            if is_ready and not self._is_ready:
                self._is_ready = True
                lines.append("READY=1")
            if status != self._status:
                self._status = status
                lines.append(f"STATUS={status}")
        self._send(lines)

    def report_stopping(self) -> None:
        """Tell that the service stops, and how long systemd has to wait for it, whatever its TimeoutStopSec is."""
        self._is_stopping = True
        microseconds = int((self._grace_period + STOP_RESERVE) * 1_000_000)
        status = "STATUS=Stopping: the jobs that run may finish."
        self._send(["STOPPING=1", status, f"EXTEND_TIMEOUT_USEC={microseconds}"])

    def _send(self, lines: list[str]) -> None:
        if not (self._address and lines):
            return
        # systemd may be gone, as may be the container around it: that is no reason to stop working.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.settimeout(SEND_TIMEOUT)
            notifier.sendto("\n".join(lines).encode(), self._address)
