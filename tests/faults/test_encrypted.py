"""Jobs that start processes, with encrypted connections: a child that used its parent's would break them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from testproject import embedded_account
from tests.faults.cluster import Cluster
from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import Fleet, Wait, Zygote
from tests.faults.world import World
from tests.support import postgres_versions
from tests.support.ports import free_port

OPENSSL = shutil.which("openssl")
HOST = "127.0.0.1"


def find_programs() -> Path | None:
    """Return the programs of a server with TLS. The servers of the wheel have none."""
    found = (postgres_versions.programs(version) for version in postgres_versions.SUPPORTED)
    return next((programs for programs in found if programs is not None and _has_tls(programs)), None)


def _has_tls(programs: Path) -> bool:
    libraries = subprocess.run(["ldd", programs / "postgres"], capture_output=True, text=True, check=False)
    return "libssl" in libraries.stdout


PROGRAMS = find_programs() if OPENSSL and shutil.which("ldd") else None
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(
        PROGRAMS is None, reason="needs openssl and a PostgreSQL built with it (Debian: apt-get install postgresql-15)"
    ),
]


def make_certificate(directory: Path) -> None:
    """Create a key and a self-signed certificate, owned by the account of the server."""
    key, certificate = directory / "server.key", directory / "server.crt"
    assert OPENSSL is not None
    command = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    account = embedded_account.subprocess_options()
    for path in (key, certificate):
        path.chmod(0o600)
        if account:
            os.chown(path, account["user"], account["group"])


@pytest.fixture
def encrypted_world(migrate: Migrate, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    port = str(free_port(HOST))
    settings = {"listen_addresses": HOST, "port": port, "ssl": "on"}
    with Cluster.create(programs=PROGRAMS, settings=settings, prepare=make_certificate) as cluster:
        url = make_conninfo(cluster.url(), host=HOST, port=port, sslmode="require")
        migrate(url)
        with World.open(url, worker_schema, wait_until) as world:
            yield world
        log = (cluster.directory / "log").read_text(errors="replace")
    broken = [line for line in log.splitlines() if "SSL error" in line or "invalid message" in line]
    assert broken == [], "the server met connections that two processes wrote to"


@pytest.fixture
def encrypted_fleet(encrypted_world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    with closing(Fleet(zygote, tmp_path, environment_for(encrypted_world.url), wait_until)) as fleet:
        yield fleet


def test_jobs_that_make_processes__break_no_encrypted_connection(
    encrypted_world: World, encrypted_fleet: Fleet
) -> None:
    world = encrypted_world
    worker = encrypted_fleet.start("-j", "2")
    assert world.value(
        "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where usename is not null"
    )
    for _ in range(2):
        with world.in_one_transaction():
            world.add_many(4, "uses_processes", max_attempts=1)
            world.add_many(20, max_attempts=1)
        world.wait_until_empty()
    assert all(run.outcome == "end" for run in world.executions())
    world.check()
    assert worker.stop() == 0
    assert not worker.has_written("SSL error|lost synchronization|Traceback")
