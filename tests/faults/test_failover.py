"""The primary dies and its standby takes over: real streaming replication, real promotion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.faults.cluster import Cluster
from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import Fleet, Wait, Zygote
from tests.faults.proxy import Proxy
from tests.faults.world import World

READS_ONLY = "failed, next try in .*(read-only transaction|recovery)"
# A commit waits until the standby has it.
REPLICATED = {"synchronous_standby_names": "*", "synchronous_commit": "remote_apply"}


class Pair(NamedTuple):
    primary: Cluster
    standby: Cluster

    @property
    def url(self) -> str:
        """Return both addresses: clients connect to the server that accepts writes."""
        hosts = f"{self.primary.directory},{self.standby.directory}"
        return f"{self.primary.url().split('?')[0]}?host={hosts}&target_session_attrs=read-write"

    def fail_over(self) -> None:
        self.primary.stop("immediate")
        self.standby.promote()


@pytest.fixture
def pair(migrate: Migrate) -> Iterator[Pair]:
    with Cluster.create() as primary:
        migrate(primary.url())
        with primary.standby() as standby:
            for name, value in REPLICATED.items():
                primary.set(name, value)
            yield Pair(primary, standby)


@pytest.fixture
def pair_world(pair: Pair, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    world = World(pair.url, worker_schema, wait_until)
    wait_until(lambda: world.value("select count(*) from pg_stat_replication where sync_state = 'sync'") == 1)
    world.prepare()
    yield world
    world.close()


@pytest.fixture
def start_fleet(zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Callable[..., Fleet]]:
    """Return a factory of fleets whose workers use one address and write their history to another."""
    started: list[Fleet] = []

    def start(url: str, history_url: str) -> Fleet:
        started.append(Fleet(zygote, tmp_path, environment_for(url, history_url), wait_until))
        return started[-1]

    yield start
    for fleet in started:
        fleet.close()


@contextmanager
def adding(world: World) -> Iterator[list[int]]:
    """Add jobs in a thread, and return the ids of the jobs whose commit was acknowledged."""
    acknowledged: list[int] = []
    is_over = threading.Event()
    statement = f'select id from "{world.schema}".add_job(%s, %s::json, queue_name := %s)'

    def add() -> None:
        while not is_over.is_set():
            try:
                with psycopg.connect(world.url, autocommit=True) as connection:
                    while not is_over.wait(0.005):
                        queue_name = "q" if len(acknowledged) % 3 else None
                        row: Any = connection.execute(statement, ("quick", "{}", queue_name)).fetchone()
                        acknowledged.append(row[0])
            except psycopg.Error:
                is_over.wait(0.1)

    thread = threading.Thread(target=add)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()


def check(world: World, acknowledged: list[int]) -> None:
    """Check the world. A job whose commit was not acknowledged may exist; then it runs."""
    assert acknowledged
    world.job_ids += acknowledged
    ran = {run.job_id for run in world.executions()}
    world.job_ids += ran - set(world.job_ids)
    world.check()


def test_failover__lets_workers_continue_on_the_standby_and_loses_nothing_committed(
    pair: Pair, pair_world: World, start_fleet: Callable[..., Fleet]
) -> None:
    """The primary dies while jobs are added and run. The workers are not restarted."""
    world = pair_world
    fleet = start_fleet(world.url, world.url)
    workers = [fleet.start("-j", "4", settings={"WORKER_TIMEOUT": 20.0}) for _ in range(2)]
    world.add_many(20, "exactly_once", {"seconds": 0.05})
    with adding(world) as acknowledged:
        world.wait_for("end", 40)
        world.close()
        pair.fail_over()
        world.wait_until(lambda: _answers(world))
        before = len(acknowledged)
        world.wait_until(lambda: len(acknowledged) > before + 20)
    world.wait_until_empty()
    check(world, acknowledged)
    effects = world.value("select count(*) from fault_history.effect")
    assert effects == world.value("select count(distinct job_id) from fault_history.effect") == 20
    assert not any(worker.has_written("lost its lease") for worker in workers)
    assert [worker.stop() for worker in workers] == [0, 0]
    world.check_nothing_is_held()


@pytest.mark.chaos
def test_address_that_leads_to_the_standby__is_disconnected_from_or_waited_for(
    pair: Pair, pair_world: World, start_fleet: Callable[..., Fleet], start_proxy: Callable[[str], Proxy]
) -> None:
    """The address of the primary leads to a read-only server, twice.

    The first time the address is corrected, so the worker must not keep its sessions on the standby. The second time
    the primary is dead, and the standby is promoted later.
    """
    world = pair_world
    proxy = start_proxy(pair.primary.url())
    worker = start_fleet(proxy.url, world.url).start(
        "-j", "4", "--no-prepared-statements", "--poll-interval", "0.2", settings={"WORKER_TIMEOUT": 20.0}
    )
    proxy.redirect_to(pair.standby.url())
    proxy.cut()
    worker.wait_for(READS_ONLY)
    proxy.redirect_to(pair.primary.url())
    jobs = world.add_many(4, "until", {"word": "go"})
    world.wait_for("start", 4)
    world.close()
    complaints = worker.count_in_output(READS_ONLY)
    pair.primary.stop("immediate")
    proxy.redirect_to(pair.standby.url())
    proxy.cut()
    world.wait_until(lambda: worker.count_in_output(READS_ONLY) > complaints)
    pair.standby.promote()
    world.wait_until(lambda: _answers(world))
    world.continue_jobs("go")
    world.add("quick")
    world.wait_until_empty()
    # Jobs that ran when the primary died have ended in their workers: no attempt was lost.
    assert sorted(run.job_id for run in world.executions()) == sorted([*jobs, *world.job_ids[4:]])
    world.check()
    assert worker.stop() == 0


def _answers(world: World) -> bool:
    try:
        return bool(world.value("select not pg_is_in_recovery()"))
    except psycopg.Error:
        world.close()
        return False
