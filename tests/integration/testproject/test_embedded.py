"""The embedded PostgreSQL of a checkout, each test in a checkout of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testproject import databases, embedded

pytestmark = pytest.mark.skipif(not databases.is_embedded(), reason="DATABASE_URL names a server, none is embedded")

PROBE = """
import os, signal, sys
import psycopg
from testproject import embedded
embedded.ensure_running()
print(embedded.data_directory(), flush=True)
server = int((embedded.data_directory() / "postmaster.pid").read_text().split()[0])
connection = psycopg.connect(embedded.conninfo(), autocommit=True)
"""
ANSWERS = "print(connection.execute('select 42').fetchone())"
KEPT = "print(connection.execute(\"select count(*) from pg_database where datname = 'kept'\").fetchone())"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for checkouts. Not tmp_path: each pytest that starts closes it to other accounts, PostgreSQL's too."""
    with tempfile.TemporaryDirectory(prefix="dgw-test-") as name:
        yield Path(name)
        for pid_file in Path(name).glob("*/.postgres/*/postmaster.pid"):  # of a test that failed
            with suppress(ProcessLookupError):
                os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)


@pytest.fixture
def checkout(folder: Path) -> Path:
    directory = folder / "checkout"
    shutil.copytree(Path(embedded.__file__).parent, directory / "testproject")
    return directory


def _run(checkout: Path, script: str) -> tuple[int, str]:
    """Use the cluster in a new process; its exit code, and what it printed last."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE + script], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert str(checkout) in done.stdout, done.stderr
    return done.returncode, done.stdout.splitlines()[-1]


def _server_is_running(checkout: Path) -> bool:
    return any(checkout.glob(".postgres/*/postmaster.pid"))


def test_cluster__stops_with_its_last_user_and_keeps_its_data(checkout: Path) -> None:
    assert _run(checkout, "connection.execute('create database kept')")[0] == 0
    assert not _server_is_running(checkout)
    assert _run(checkout, KEPT) == (0, "(1,)")


def test_cluster__goes_on__while_another_process_uses_it(checkout: Path) -> None:
    first = f"""
import subprocess
second = subprocess.run([sys.executable, "-c", {PROBE!r}], check=True)
{ANSWERS}
"""
    assert _run(checkout, first) == (0, "(42,)")


@pytest.mark.chaos
def test_cluster__is_found_again__when_its_user_was_killed(checkout: Path) -> None:
    _run(checkout, "os.kill(os.getpid(), signal.SIGKILL)")
    assert _server_is_running(checkout)
    assert _run(checkout, ANSWERS) == (0, "(42,)")
    assert not _server_is_running(checkout)


@pytest.mark.chaos
def test_cluster__recovers__when_the_server_was_killed(checkout: Path) -> None:
    _run(checkout, "connection.execute('create database kept'); os.kill(server, signal.SIGKILL); os._exit(1)")
    assert _run(checkout, KEPT) == (0, "(1,)")
