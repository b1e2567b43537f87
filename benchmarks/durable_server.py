"""A PostgreSQL server for measurements that flushes its writes, unlike the embedded server of the tests.

The cluster is new for each run, in a folder of the checkout that git ignores, and is deleted at the end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.commands import CHECKOUT
from testproject import embedded, embedded_account

# Names the process that started the server, for child processes.
OWNED = "BENCHMARK_SERVER"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "300",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "autovacuum_naptime": "60s",
    "shared_buffers": "256MB",
    "timezone": "UTC",
}


def is_owned() -> bool:
    """Return whether the server of DATABASE_URL was started by this run, so that its settings may be changed."""
    return OWNED in os.environ


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL."""
    return embedded._binary(name)


def start() -> str:
    """Start a server, let it stop at the end of this process, and return its address."""
    home = CHECKOUT / ".benchmarks"
    embedded_account.open_path_to(home)
    _end_leftovers(home)
    data = home / f"postgres-{os.getpid()}"
    # The path of a socket may not be longer than about a hundred bytes.
    sockets = Path(tempfile.gettempdir()) / f"benchmark-postgres-{os.getpid()}"
    embedded_account.make_private_directory(data)
    embedded_account.make_private_directory(sockets)
    _run(data, "initdb", f"--pgdata={data}", f"--username={embedded.SUPERUSER}", "--auth=trust", "--encoding=UTF8")
    options = " ".join(f"-c {name}='{value}'" for name, value in SETTINGS.items())
    where = f"-c unix_socket_directories='{sockets}'"
    _run(data, "pg_ctl", "start", "--wait", f"--pgdata={data}", f"--log={data / 'log'}", f"--options={options} {where}")
    atexit.register(_stop, data, sockets, os.getpid())
    os.environ[OWNED] = str(os.getpid())
    return f"postgresql://{embedded.SUPERUSER}@/postgres?host={sockets}"


def _end_leftovers(home: Path) -> None:
    """Stop and delete the servers of runs that were killed."""
    for data in home.glob("postgres-*"):
        owner = int(data.name.rpartition("-")[2])
        if not psutil.pid_exists(owner):
            _end(data)


def _end(data: Path) -> None:
    if (data / "postmaster.pid").exists():
        with suppress(RuntimeError):  # it may have ended
            _run(data, "pg_ctl", "stop", "--wait", "--mode=immediate", f"--pgdata={data}")
    shutil.rmtree(data, ignore_errors=True)


def _stop(data: Path, sockets: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child inherits the hook
    _end(data)
    shutil.rmtree(sockets, ignore_errors=True)


def _run(data: Path, name: str, *arguments: str) -> None:
    # Files instead of pipes for the output: the server inherits them and would keep a pipe open.
    with tempfile.TemporaryFile("w+") as output:
        finished = subprocess.run(
            [program(name), *arguments],
            cwd=data,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal must not reach the server
            check=False,
            **embedded_account.subprocess_options(),
        )
        output.seek(0)
        if finished.returncode:
            raise RuntimeError(f"Expected {name} to succeed, got: {output.read().strip()}")
