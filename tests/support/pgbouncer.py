"""PgBouncer in front of a database of the tests."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from testproject import embedded_account
from tests.support import prerequisites
from tests.support.ports import free_port

BINARY = prerequisites.find_pgbouncer()
REASON = "needs pgbouncer (Debian: apt-get install pgbouncer)"

POOL_SIZE = 4

CONFIGURATION = """
[databases]
{name} = host={host} port={port} dbname={name} user={user} {password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {pool_size}
ignore_startup_parameters = extra_float_digits
logfile = {directory}/pgbouncer.log
pidfile = {directory}/pgbouncer.pid
"""


@contextmanager
def pgbouncer(url: str, *, mode: str, wait_until: Callable[..., object]) -> Iterator[str]:
    """Start PgBouncer in this mode, and return the address of the database behind it."""
    # A short path that the account of PgBouncer can read.
    directory = Path(tempfile.mkdtemp(prefix="dgw-pgbouncer-"))
    directory.chmod(0o777)
    pooled, process = _start(url, directory, mode=mode)
    try:
        wait_until(lambda: _answers(pooled))
        yield pooled
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)


def _start(url: str, directory: Path, *, mode: str) -> tuple[str, subprocess.Popen[bytes]]:
    assert BINARY is not None
    listen_port = free_port("127.0.0.1")
    parts = {**conninfo_to_dict(url)}
    name = str(parts["dbname"])
    configuration = directory / "pgbouncer.ini"
    configuration.write_text(
        CONFIGURATION.format(
            name=name,
            host=parts.get("host") or "localhost",
            port=parts.get("port") or 5432,
            user=parts.get("user") or getpass.getuser(),
            password=f"password={parts['password']}" if parts.get("password") else "",
            listen_port=listen_port,
            mode=mode,
            pool_size=POOL_SIZE,
            directory=directory,
        )
    )
    # PgBouncer refuses to run as root, and the socket of the server may belong to its account.
    process = subprocess.Popen(
        [BINARY, "--quiet", str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **embedded_account.subprocess_options(),
    )
    return f"postgresql://someone@127.0.0.1:{listen_port}/{quote(name)}?sslmode=disable", process


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
