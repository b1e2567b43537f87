"""The notification queue of the server is full, because a session listens and keeps a transaction open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.faults.cluster import Cluster
from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import Fleet, Wait, WorkerProcess, Zygote
from tests.faults.world import World
from tests.support import postgres_versions

LEASE = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 3.0}
# The smallest queue that PostgreSQL 17 and later allow: half a megabyte.
SETTINGS = {"max_notify_queue_pages": "64"}
VERSION = next((version for version in (18, 17) if postgres_versions.programs(version)), None)

pytestmark = pytest.mark.skipif(VERSION is None, reason="needs PostgreSQL 17 or 18")


@pytest.fixture(scope="module")
def cluster_with_a_short_queue(migrate: Migrate) -> Iterator[Cluster]:
    assert VERSION is not None
    with Cluster.create(programs=postgres_versions.programs(VERSION), settings=SETTINGS) as cluster:
        migrate(cluster.url())
        yield cluster


@pytest.fixture
def full_world(cluster_with_a_short_queue: Cluster, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    with World.open(cluster_with_a_short_queue.url(), worker_schema, wait_until) as world:
        yield world


@pytest.fixture
def full_fleet(full_world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    with closing(Fleet(zygote, tmp_path, environment_for(full_world.url), wait_until)) as fleet:
        yield fleet


@pytest.fixture
def foreign_listener(full_world: World) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A session of another program, which listens on another channel inside a transaction."""
    with psycopg.connect(full_world.url) as connection:
        connection.execute("listen something_else")
        connection.commit()
        connection.execute("select 1")
        yield connection


def fill(world: World) -> None:
    # The function also removes what every listener has read. Before that, the queue may seem full from the last test.
    world.wait_until(lambda: world.value("select pg_notification_queue_usage()") < 0.1)
    with pytest.raises(psycopg.OperationalError, match="too many notifications in the NOTIFY queue"):
        while True:
            world.query("select pg_notify('something_else', repeat('x', 7000) || random())")


def test_full_notify_queue__ends_no_lease_and_loses_no_result(
    full_world: World, full_fleet: Fleet, foreign_listener: psycopg.Connection[tuple[object, ...]]
) -> None:
    """A notification that fails must not keep the worker from storing heartbeats and results."""
    world = full_world
    workers = [full_fleet.start("-j", "2", "--poll-interval", "0.5", settings=LEASE) for _ in range(2)]
    long_jobs = world.add_many(2, "until", {"word": "go"})
    queued = world.add("until", {"word": "go"}, queue_name="q")
    world.wait_for("start", 3)
    fill(world)
    began = world.value("select max(last_heartbeat_at) from {schema}._private_workers")
    # More than the lease. No worker may be declared dead.
    world.wait_until(
        lambda: (
            world.value("select min(last_heartbeat_at) - %s > interval '4 s' from {schema}._private_workers", began)
            or any(worker.has_written("lost its lease") for worker in workers)
        )
    )
    assert not any(worker.has_written("lost its lease") for worker in workers)
    world.continue_jobs("go")
    world.wait_until(lambda: all(world.job(job_id) is None for job_id in [*long_jobs, queued]))
    foreign_listener.rollback()
    world.wait_until_empty()
    world.check()
    assert [worker.stop() for worker in workers] == [0, 0]


def test_full_notify_queue__lets_jobs_be_recovered_added_and_run_without_notifications(
    full_world: World, full_fleet: Fleet, foreign_listener: psycopg.Connection[tuple[object, ...]]
) -> None:
    world = full_world
    world.add("quick")
    world.query(
        "update {schema}._private_jobs set locked_by = 'django-worker-dead/1', locked_at = now() - interval '1 hour',"
        " attempts = 1"
    )
    fill(world)

    def operate(*arguments: str, **settings: bool) -> WorkerProcess:
        process = full_fleet.start(*arguments, command=("graphile_worker",), settings=settings, is_ready=False)
        process.wait()
        return process

    status = operate("status", "--check", "--min-workers", "0")
    assert (status.exit_code, status.has_written("the server's NOTIFY queue is")) == (1, True)
    assert operate("sweep").exit_code == 0
    assert world.locked() == 0
    assert operate("add", "quick", "{}", NOTIFY=False).exit_code == 0
    worker = full_fleet.start("--poll-interval", "0.5", settings={"NOTIFY": False})
    world.wait_for("end", 2)
    world.wait_until(lambda: world.count() == 0)
    # With notifications on, the functions leave them out as long as the queue is nearly full.
    world.add("quick")
    world.add("quick", job_key="key")
    world.wait_until(lambda: world.count() == 0)
    assert world.count_events("end") == 4
    foreign_listener.rollback()
    assert worker.stop() == 0


def test_notifications__are_sent_by_functions_and_never_by_triggers(full_world: World) -> None:
    """A trigger would notify for every row of every statement. Schedules change rarely, and through the ORM."""
    triggers = full_world.query(
        "select tgname from pg_trigger join pg_class on pg_class.oid = tgrelid"
        " where relnamespace = %s::regnamespace and not tgisinternal and tgname <> 'note_lost_lease'"
        " and relname not like '%%\\_schedule%%'",
        f'"{full_world.schema}"',
    )
    assert triggers == []


@pytest.mark.chaos
@pytest.mark.parametrize("clients", [1, 16, 64])
def test_notifications_that_are_switched_off__do_not_slow_down_adding(world: World, clients: int) -> None:
    """NOTIFY locks the database until the commit has ended, so sessions that add jobs wait for each other."""
    rates = {switch: adds_per_second(world, clients, switch) for switch in ("on", "off")}
    # Switched on, notifications cost more with more sessions. How much is measured by the benchmarks.
    assert rates["off"] > 0.7 * rates["on"], f"adds per second: {rates}"


def adds_per_second(world: World, clients: int, switch: str, adds: int = 960) -> float:
    def add(number: int) -> None:
        with psycopg.connect(world.url, autocommit=True) as connection:
            connection.execute(f"set graphile_worker.notify = {switch}".encode())
            ready.wait()
            for _ in range(adds // clients):
                connection.execute(f"select from \"{world.schema}\".add_job('quiet')".encode())

    ready = threading.Barrier(clients + 1)
    with ThreadPoolExecutor(clients) as threads:
        futures = [threads.submit(add, number) for number in range(clients)]
        ready.wait()
        began = time.monotonic()
        for future in futures:
            future.result()
    return adds / (time.monotonic() - began)
