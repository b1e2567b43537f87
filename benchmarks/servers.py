"""The servers of the benchmarks: a PostgreSQL that flushes its writes, what it spends, and a Redis.

The embedded PostgreSQL of the tests does not flush. The cluster of the benchmarks is new for each run, in a folder of
the checkout that git ignores, and is deleted at the end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks import CHECKOUT
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


def server_url() -> str:
    """Return the URL of the server that is measured: of DATABASE_URL, or of a new server for this run.

    Child processes use the same server.
    """
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = _start()
    return os.environ["DATABASE_URL"]


def is_owned() -> bool:
    """Return whether the server of DATABASE_URL was started by this run, so that its settings may be changed."""
    return OWNED in os.environ


def _start() -> str:
    """Start a server, let it stop at the end of this process, and return its URL."""
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
            [embedded._binary(name), *arguments],
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
            raise RuntimeError(f"{name} failed: {output.read().strip()}")


def tree_cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and of its descendants, those that have ended and were waited for included."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


class Server:
    """The PostgreSQL of a connection. Its CPU time is 0 if it runs on another machine."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._postmaster = self._find_postmaster()

    def version(self) -> str:
        return self._setting("server_version").split()[0]

    def cpu_seconds(self) -> float:
        return tree_cpu_seconds(self._postmaster) if self._postmaster else 0.0

    def settings(self, *names: str) -> dict[str, str]:
        return {name: self._setting(name) for name in names}

    def close(self) -> None:
        self._connection.close()

    def _find_postmaster(self) -> psutil.Process | None:
        try:
            backend = psutil.Process(self._connection.info.backend_pid)
            parent = backend.parent()
        except psutil.NoSuchProcess:
            return None
        return parent if backend.name().startswith("postgres") else None

    def _setting(self, name: str) -> str:
        row: Any = self._connection.execute(f"show {name}".encode()).fetchone()
        return str(row[0])


class RedisServer:
    """A running server without persistence, which is its fastest mode."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"redis://127.0.0.1:{port}/0"

    def ask(self, command: str) -> int:
        """Send a command whose answer is a number, or that is only acknowledged, and return the number or 0."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            answer = connection.makefile("rb").readline().decode().strip()
        if answer.startswith("-"):
            raise RuntimeError(f"Redis answered {command!r} with an error: {answer}")
        return int(answer[1:]) if answer.startswith(":") else 0


@contextmanager
def redis_server() -> Iterator[RedisServer | None]:
    """Start the program redis-server of the system on a free port; yield None if it is missing."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        try:
            yield _answering(RedisServer(port))
        finally:
            process.terminate()
            process.wait(10)


def _answering(server: RedisServer) -> RedisServer:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError):
            server.ask("PING")
            return server
        time.sleep(0.02)
    raise RuntimeError("redis-server does not answer within 10 s.")
