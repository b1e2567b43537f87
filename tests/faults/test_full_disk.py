"""A full disk: for the tables, or for the write-ahead log, without which the server stops. For root, on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from testproject import embedded_account
from testproject.embedded import EmbeddedPostgresError
from tests.faults.cluster import Cluster
from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import Fleet, Wait, Zygote
from tests.faults.world import World

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="needs root and Linux, for a small disk in memory"
    ),
]

LEASE = {"WORKER_TIMEOUT": 60.0}
# Space for a database and some jobs, and space for four segments of the log.
DISK, LOG_DISK = "48M", "72M"


class SmallDisk:
    """A mounted file system in memory, which a test can fill."""

    def __init__(self, directory: Path, size: str) -> None:
        self.directory = directory
        self._size = size
        self._filling = directory / "filling"

    def __enter__(self) -> SmallDisk:
        self.directory.mkdir(exist_ok=True)
        options = f"size={self._size},mode=0755"
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.directory], check=False)
        if mounted.returncode:
            pytest.skip("this account may not mount a file system")
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run(["umount", "--lazy", self.directory], check=True)

    def folder(self, name: str) -> Path:
        """Create a directory on the disk, owned by the account of the server."""
        embedded_account.make_private_directory(self.directory / name)
        return self.directory / name

    def fill(self) -> None:
        with suppress(OSError), self._filling.open("ab", buffering=0) as file:
            while file.write(b"\0" * 4096) == 4096:
                pass

    def make_room(self) -> None:
        self._filling.unlink()


@pytest.fixture
def mount_point() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="dgw-disk-"))
    embedded_account.open_path_to(directory)
    yield directory / "disk"
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def fleet_on(zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    with closing(Fleet(zygote, tmp_path, {}, wait_until)) as fleet:
        yield fleet


def open_world(url: str, schema: str, wait_until: Wait, fleet: Fleet) -> World:
    world = World(url, schema, wait_until)
    world.prepare()
    fleet.environment = environment_for(url)
    return world


def test_full_disk__raises_errors_and_loses_nothing(
    cluster: Cluster, fleet_on: Fleet, mount_point: Path, migrate: Migrate, worker_schema: str, wait_until: Wait
) -> None:
    """Tables cannot grow: adding a job raises an error, the worker keeps results, and nothing is lost."""
    with SmallDisk(mount_point, DISK) as disk:
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            connection.execute(f"create tablespace small location '{disk.folder('tables')}'".encode())
            connection.execute("create database crowded tablespace small")
        migrate(cluster.url("crowded"))
        world = open_world(cluster.url("crowded"), worker_schema, wait_until, fleet_on)
        worker = fleet_on.start("-j", "2", settings=LEASE)
        world.add_many(2, "until", {"word": "go"})
        world.wait_for("start", 2)
        disk.fill()
        with pytest.raises(psycopg.errors.DiskFull):
            while True:
                world.add_many(200, payload={"text": "x" * 500})
        disk.make_room()
        world.continue_jobs("go")
        world.wait_until_empty()
        world.check()
        assert worker.stop() == 0
        world.close()
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            connection.execute("drop database crowded with (force)")
            connection.execute("drop tablespace small")


def test_full_wal_disk__stops_the_server_and_loses_nothing(
    fleet_on: Fleet, mount_point: Path, migrate: Migrate, worker_schema: str, wait_until: Wait
) -> None:
    """Without space for its log PostgreSQL stops. Committed jobs are there after the next start."""
    with SmallDisk(mount_point, LOG_DISK) as disk:

        def move_log(directory: Path) -> None:
            folder = disk.folder("log")
            shutil.copytree(directory / "pg_wal", folder, dirs_exist_ok=True)
            shutil.rmtree(directory / "pg_wal")
            (directory / "pg_wal").symlink_to(folder)
            account = embedded_account.subprocess_options()
            for path in folder.rglob("*"):
                os.chown(path, account["user"], account["group"])

        with Cluster.create(settings={"max_wal_size": "48MB"}, prepare=move_log) as cluster:
            migrate(cluster.url())
            world = open_world(cluster.url(), worker_schema, wait_until, fleet_on)
            worker = fleet_on.start("-j", "2", settings=LEASE)
            world.add_many(2, "until", {"word": "go"})
            world.wait_for("start", 2)
            # A replication slot needs the whole log: no segment is reused, and there is no space for a new segment.
            world.query("select pg_create_physical_replication_slot('reader', true)")
            disk.fill()
            with pytest.raises(psycopg.OperationalError):
                while True:
                    world.add_many(200, payload={"text": "x" * 500})
            world.close()
            worker.wait_for("failed, next try in")
            disk.make_room()
            with suppress(EmbeddedPostgresError):
                cluster.stop()
            cluster.start()
            world.query("select pg_drop_replication_slot('reader')")
            world.continue_jobs("go")
            world.wait_until_empty()
            world.check()
            assert worker.stop() == 0
            world.close()
