"""A network that is cut: the link between two network namespaces goes down. For root, on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.faults.cluster import Cluster
from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import Fleet, Wait, Zygote
from tests.faults.world import World

IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
LEASE = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 4.0, "STATEMENT_TIMEOUT": 2.0}
PORT = "5432"
TRUST = "host all all 10.0.0.0/8 trust\n"


def run_ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    assert IP is not None
    return subprocess.run([IP, *arguments], check=check, capture_output=True)


def is_possible() -> bool:
    if IP is None or os.geteuid() != 0:
        return False
    name = f"gw-probe-{os.getpid()}"
    made = run_ip("netns", "add", name, check=False).returncode == 0
    if made:
        run_ip("netns", "delete", name)
    return made


pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not is_possible(), reason="needs root and Linux's network namespaces (`ip netns`)"),
]


class Link:
    """A link between this network namespace and another, from which workers reach the server."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.namespace = f"gw-{os.getpid()}"
        self.device = f"gw{os.getpid()}a"
        self._far_device = f"gw{os.getpid()}b"
        self.here, self.there = f"10.213.{number}.1", f"10.213.{number}.2"

    def __enter__(self) -> Link:
        run_ip("netns", "add", self.namespace)
        run_ip("link", "add", self.device, "type", "veth", "peer", "name", self._far_device)
        run_ip("link", "set", self._far_device, "netns", self.namespace)
        run_ip("address", "add", f"{self.here}/30", "dev", self.device)
        run_ip("link", "set", self.device, "up")
        run_ip("-n", self.namespace, "address", "add", f"{self.there}/30", "dev", self._far_device)
        run_ip("-n", self.namespace, "link", "set", self._far_device, "up")
        run_ip("-n", self.namespace, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error: object) -> None:
        run_ip("link", "delete", self.device, check=False)
        run_ip("netns", "delete", self.namespace, check=False)

    def cut(self) -> None:
        run_ip("link", "set", self.device, "down")

    def mend(self) -> None:
        run_ip("link", "set", self.device, "up")


@pytest.fixture
def link() -> Iterator[Link]:
    with Link() as link:
        yield link


@pytest.fixture
def linked_world(link: Link, migrate: Migrate, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    """A world on a server that listens at this end of the link."""

    def allow(directory: Path) -> None:
        with (directory / "pg_hba.conf").open("a") as file:
            file.write(TRUST)

    with Cluster.create(settings={"listen_addresses": link.here, "port": PORT}, prepare=allow) as cluster:
        migrate(cluster.url())
        with World.open(cluster.url(), worker_schema, wait_until) as world:
            yield world


@pytest.fixture
def near_fleet(linked_world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    with closing(Fleet(zygote, tmp_path, environment_for(linked_world.url), wait_until)) as fleet:
        yield fleet


@pytest.fixture
def far_fleet(linked_world: World, link: Link, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    """Workers at the other end. Their history uses a unix socket, which needs no network."""
    directory = tmp_path / "far"
    directory.mkdir()
    url = make_conninfo(linked_world.url, host=link.here, port=PORT)
    with closing(Fleet(zygote, directory, environment_for(url, linked_world.url), wait_until)) as fleet:
        fleet.prefix = ("ip", "netns", "exec", link.namespace)
        yield fleet


@pytest.mark.parametrize("is_known", [False, True], ids=["silence", "refusal"])
def test_partition_past_the_lease__lets_another_worker_run_the_job_and_the_first_reconnect(
    linked_world: World, near_fleet: Fleet, far_fleet: Fleet, link: Link, is_known: bool
) -> None:
    """No packet arrives and no error occurs; the sockets stay open until a timeout ends them."""
    world = linked_world
    cut_off = far_fleet.start("-j", "2", settings=LEASE, is_forked=False)
    job_id = world.add("until", {"word": "go"}, queue_name="q")
    behind = world.add("quick", queue_name="q")
    world.wait_for("start")
    near = near_fleet.start("-j", "2", settings=LEASE)
    link.cut()
    near.wait_for("recovered the jobs")
    world.wait_for("start", 2)
    held = world.job(job_id).locked_by
    # The job ends behind the partition, and its result waits.
    world.continue_jobs(f"go {cut_off.pid}")
    world.wait_for("end")
    if is_known:
        cut_off.wait_for("failed, next try in")
    link.mend()
    cut_off.wait_for("lost its lease and continues as")
    cut_off.wait_for(rf"until #{job_id} was no longer claimed by this worker when it ended")
    assert world.job(job_id).locked_by == held, "the late end changed nothing"
    assert behind not in {run.job_id for run in world.executions()}, "the queue is still held"
    world.continue_jobs("go")
    world.wait_until_empty()
    world.kill(near)
    world.add("quick")
    world.wait_until_empty()
    assert cut_off.stop() == 0
    world.check()


def test_partition_shorter_than_the_lease__ends_no_lease(linked_world: World, far_fleet: Fleet, link: Link) -> None:
    world = linked_world
    worker = far_fleet.start("-j", "2", settings=LEASE | {"WORKER_TIMEOUT": 60.0}, is_forked=False)
    world.add_many(2, "until", {"word": "go"})
    world.wait_for("start", 2)
    link.cut()
    worker.wait_for("failed, next try in")
    link.mend()
    world.continue_jobs("go")
    world.wait_until_empty()
    assert len(world.executions()) == 2, "each started once"
    assert not worker.has_written("lost its lease")
    world.check()
    assert worker.stop() == 0
