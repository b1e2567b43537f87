"""The child processes of the demo: the web site and the worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from django.db import connection

from testproject import databases

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
STOP_TIMEOUT_SECONDS = 15

Process = subprocess.Popen[bytes]


@contextmanager
def manage(*arguments: str, output: IO[bytes] | None = None) -> Iterator[Process]:
    """Run a management command in a process of its own; at the end of the block, stop it and wait for its end."""
    process = subprocess.Popen(
        [sys.executable, "-u", str(MANAGE), *arguments],
        env=os.environ | {"DATABASE_URL": databases.to_url(connection.settings_dict)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Ctrl-C reaches this process alone, which stops the others in order
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: Process) -> None:
    try:
        process.terminate()
        process.wait(STOP_TIMEOUT_SECONDS)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        pass  # after a second Ctrl-C, or the timeout, kill it
    finally:
        _kill_group(process)


def _kill_group(process: Process) -> None:
    """Kill the process and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port(preferred: int = 8000) -> int:
    """Return the preferred port, or another one if it is taken."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("Expected a free port on 127.0.0.1, got none.")


def wait_until_listening(process: Process, port: int) -> None:
    """Return when the port accepts connections; raise if its process ends first."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise ChildProcessError(f"Expected the web site to listen on port {port}, got exit code {process.returncode}.")
