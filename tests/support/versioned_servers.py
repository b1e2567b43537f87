"""A server of each supported PostgreSQL version, started on first use, which all processes of a run share."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from testproject.embedded import CHECKOUT
from tests.faults.cluster import Cluster
from tests.support import postgres_versions
from tests.support.database_server import is_alive

PREFIX = "dgw-versions-"
LOCK = "dgw-versions.lock"
# Every test gets a copy of this database.
MIGRATED = "migrated"
# Tests that check plans and buffers analyze by themselves; nothing else may change their statistics.
SETTINGS = {
    "autovacuum": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "max_prepared_transactions": "20",
}


@dataclass
class VersionedServer:
    """A running server, in which this process creates databases."""

    version: int
    cluster: Cluster
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def create_database(self, template: str = MIGRATED) -> str:
        """Create a database, by default a migrated database, and return its address."""
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        name = f"test_{worker}_{next(self._numbers)}"
        # Two processes may copy at once: no session may be connected to the template, and none is.
        self._execute(f"create database {name} template {template}")
        return self.cluster.url(name)

    def drop_database(self, url: str) -> None:
        self._execute(f"drop database if exists {psycopg.conninfo.conninfo_to_dict(url)['dbname']} with (force)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
            connection.execute(statement.encode())


def ensure_running(version: int, programs: Path) -> VersionedServer:
    """Start the server of this version, unless another process of the run has started it."""
    home = _home(os.environ["TEST_RUN_PID"])
    home.mkdir(exist_ok=True)
    cluster = Cluster(home / str(version), programs=programs, settings=SETTINGS)
    ready = home / f"{version}.ready"
    with _exclusive(home / f"{version}.lock"):
        if not ready.exists():
            cluster.initialise()
            cluster.start()
            _migrate(cluster)
            ready.touch()
    return VersionedServer(version, cluster)


def stop_all(run: str) -> None:
    """Stop the servers of a run, and remove their files."""
    home = _home(run)
    for process_file in home.glob("*/postmaster.pid"):
        if _is_server(process_file):
            Cluster(process_file.parent, programs=_any_programs()).end()
    shutil.rmtree(home, ignore_errors=True)


def stop_servers_of_dead_runs() -> None:
    """Stop the servers that killed runs left behind. The run that begins calls this, before its processes start."""
    folder = Path(tempfile.gettempdir())
    with _exclusive(folder / LOCK):
        for home in folder.glob(f"{PREFIX}*"):
            run = home.name.removeprefix(PREFIX)
            # A run that begins has no servers yet: files with its process id are of a dead run with the same id.
            if int(run) == os.getpid() or not is_alive(int(run)):
                stop_all(run)


def _is_server(process_file: Path) -> bool:
    """Return whether the process of this file is the server of its directory. Process ids are used again."""
    with suppress(OSError, ValueError, IndexError, psutil.Error):
        process_id = int(process_file.read_text().splitlines()[0])
        return psutil.Process(process_id).cwd() == str(process_file.parent.resolve())
    return False


def _any_programs() -> Path | None:
    """Return the programs of any version: each can stop all. The programs of a dead run may have been removed."""
    return next(filter(None, map(postgres_versions.programs, reversed(postgres_versions.SUPPORTED))), None)


def _home(run: str) -> Path:
    # A short path, because the length of the path of a socket is limited.
    return Path(tempfile.gettempdir()) / f"{PREFIX}{run}"


def _migrate(cluster: Cluster) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"create database {MIGRATED}".encode())
    environment = os.environ | {"DATABASE_URL": cluster.url(MIGRATED), "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    manage = str(CHECKOUT / "testproject" / "manage.py")
    subprocess.run([sys.executable, manage, "migrate", "-v0"], cwd=CHECKOUT, env=environment, check=True, timeout=100)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
