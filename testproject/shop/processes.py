"""The demo's child processes: the web site and the worker, started, watched and ended together."""

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
PATIENCE_SECONDS = 15

Process = subprocess.Popen[bytes]


@contextmanager
def manage(*arguments: str, output: IO[bytes] | None = None) -> Iterator[Process]:
    """Run a management command beside this one; leaving the block asks it to end, and waits."""
    process = subprocess.Popen(
        [sys.executable, "-u", str(MANAGE), *arguments],
        env=os.environ | {"DATABASE_URL": databases.to_url(connection.settings_dict)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Ctrl-C is for this process alone, which then ends the others in order
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: Process) -> None:
    try:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        pass  # a second Ctrl-C: no more patience
    finally:
        _kill_group(process)


def _kill_group(process: Process) -> None:
    """Leave nothing behind, not even what the process itself had started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port(preferred: int = 8000) -> int:
    """The preferred port, or any other when somebody has it."""
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
    """Return when the port answers; raise when its process ends first."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise ChildProcessError(f"Expected the web site to listen on port {port}, got exit code {process.returncode}.")
