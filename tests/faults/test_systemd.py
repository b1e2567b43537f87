"""What runworker tells systemd, through a real socket."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import Fleet, Wait
from tests.faults.proxy import Proxy
from tests.faults.world import World


class Notifications:
    """The end of systemd: a socket to which a service sends datagrams."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0"))
        self._lines: list[str] = []

    def read(self) -> list[str]:
        """Return all lines so far."""
        self._socket.setblocking(False)
        while True:
            try:
                self._lines += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self._lines

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Notifications]:
    is_abstract = getattr(request, "param", "") == "abstract"
    notifications = Notifications(f"@graphile-worker-{os.getpid()}" if is_abstract else str(tmp_path / "notify"))
    yield notifications
    notifications.close()


@pytest.mark.parametrize(("systemd", "processes"), [("path", 1), ("abstract", 2)], indirect=["systemd"])
def test_service__tells_that_it_is_ready_lives_and_stops(
    world: World, fleet: Fleet, systemd: Notifications, wait_until: Wait, processes: int
) -> None:
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "400000"}
    worker = fleet.start("--processes", str(processes), environment=environment, is_ready=False)
    wait_until(lambda: "READY=1" in systemd.read())
    assert len(world.workers()) == processes, "they have registered"
    told = "Processes ready: 2 of 2." if processes == 2 else "Slots in use: 0 of 10."
    wait_until(lambda: f"STATUS={told}" in systemd.read())
    signs = systemd.read().count("WATCHDOG=1")
    began = time.monotonic()
    wait_until(lambda: systemd.read().count("WATCHDOG=1") >= signs + 5)
    # Every 0.2 seconds, and not as fast as possible.
    assert time.monotonic() - began > 0.5
    world.add("until", {"word": "go"})
    world.wait_for("start")
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "STOPPING=1" in systemd.read())
    # The grace period of the fault tests, and fifteen seconds.
    assert "EXTEND_TIMEOUT_USEC=35000000" in systemd.read()
    signs = systemd.read().count("WATCHDOG=1")
    wait_until(lambda: systemd.read().count("WATCHDOG=1") >= signs + 3)
    world.continue_jobs("go")
    assert worker.wait() == 0
    assert systemd.read().count("READY=1") == systemd.read().count("STOPPING=1") == 1
    assert systemd.read().index("STOPPING=1") > systemd.read().index("READY=1")


def test_service_that_waits_for_its_database__is_not_ready(
    world: World, proxied_fleet: Fleet, proxy: Proxy, systemd: Notifications, wait_until: Wait
) -> None:
    proxy.refuse()
    # The watchdog is that of another process.
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "400000", "WATCHDOG_PID": "1"}
    worker = proxied_fleet.start(environment=environment, is_ready=False)
    worker.wait_for("start failed")
    wait_until(lambda: "STATUS=Waiting for the database." in systemd.read())
    assert "READY=1" not in systemd.read()
    proxy.accept()
    wait_until(lambda: "READY=1" in systemd.read())
    assert worker.stop() == 0
    assert "WATCHDOG=1" not in systemd.read()


def test_service_without_systemd__ends_well(world: World, fleet: Fleet) -> None:
    """The socket is gone."""
    worker = fleet.start(environment={"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "400000"})
    assert worker.stop() == 0
    assert "Traceback" not in worker.output()
