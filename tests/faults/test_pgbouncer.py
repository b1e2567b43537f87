"""Workers behind PgBouncer. In transaction mode they poll, and log it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import connections
from psycopg.conninfo import conninfo_to_dict
from pytest_django import DjangoDbBlocker

from django_graphile_worker import Result, ResultStatus, wait_for_result
from django_graphile_worker.results.waiting import Wait as ResultWait
from django_graphile_worker.results.waiting import close_listeners, listener_of
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.control import PauseKind
from testproject import databases
from tests.faults.conftest import environment_for
from tests.faults.operators import pause, resume
from tests.faults.processes import Fleet, Wait, Zygote
from tests.faults.world import World
from tests.support.pgbouncer import BINARY, POOL_SIZE, REASON, pgbouncer

pytestmark = pytest.mark.skipif(BINARY is None, reason=REASON)


@pytest.fixture
def pooled_fleet(
    request: pytest.FixtureRequest, world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait
) -> Iterator[Fleet]:
    """Workers that reach the database through PgBouncer, in the mode of the parameter."""
    with pgbouncer(world.url, mode=request.param, wait_until=wait_until) as url:
        fleet = Fleet(zygote, tmp_path, environment_for(url, world.url), wait_until)
        yield fleet
        fleet.close()


@pytest.mark.parametrize("pooled_fleet", ["transaction"], indirect=True)
def test_transaction_mode__runs_jobs_by_polling_and_logs_it(world: World, pooled_fleet: Fleet) -> None:
    """Prepared statements and LISTEN are left on, as by default."""
    worker = pooled_fleet.start("--poll-interval", "0.3", "-j", "4")
    worker.wait_for("stopped listening.*pooler in transaction mode")
    assert not worker.has_written("is listening")
    world.add_many(60, payload={"seconds": 0.005})
    for number in range(20):
        world.add("quick", queue_name=f"q{number % 2}")
    world.add("failing", {"delay": 0.1})
    world.add_many(5, "exactly_once")
    world.wait_until_empty()
    world.check()
    assert not worker.has_written("failed, next try")
    assert worker.stop() == 0
    world.check_nothing_is_held()


@pytest.mark.parametrize("pooled_fleet", ["transaction"], indirect=True)
def test_transaction_mode__prepares_nothing_in_the_shared_sessions(world: World, pooled_fleet: Fleet) -> None:
    """Every client of the driver uses the same names, so a prepared statement could be that of another client."""
    worker = pooled_fleet.start("--poll-interval", "0.3", "-j", "4", "--no-listen")
    world.add_many(60)
    world.wait_until_empty()
    prepared = "select name from pg_prepared_statements where not from_sql"
    with ExitStack() as stack:
        for session in every_session_of_the_pool(pooled_fleet, stack):
            assert session.execute(prepared).fetchall() == []
    assert worker.stop() == 0


def every_session_of_the_pool(fleet: Fleet, stack: ExitStack) -> list[psycopg.Connection[tuple[object, ...]]]:
    """As many clients in a transaction as the pool has sessions."""
    url = fleet.environment["DATABASE_URL"]
    clients = [stack.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(POOL_SIZE)]
    for client in clients:
        client.execute("select")
    return clients


@pytest.mark.parametrize("pooled_fleet", ["transaction"], indirect=True)
def test_transaction_mode__neither_obeys_nor_changes_a_time_limit_of_the_database(
    world: World, pooled_fleet: Fleet
) -> None:
    """All clients share the sessions, so the worker may change only its own transactions."""
    name = conninfo_to_dict(world.url)["dbname"]
    world.query(
        """create function fault_history.be_slow() returns trigger language plpgsql as
        $$ begin perform pg_sleep(0.3); return null; end $$"""
    )
    world.query(
        "create trigger be_slow before delete on {schema}._private_jobs execute function fault_history.be_slow()"
    )
    world.query(f'alter database "{name}" set statement_timeout = 150')
    # The sessions that the pool already has do not know the limit.
    world.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()", name
    )
    try:
        worker = pooled_fleet.start("--poll-interval", "0.3", "-j", "4", "--no-listen")
        world.add_many(10)
        world.wait_until_empty()
        world.check()
        with ExitStack() as stack:
            sessions = every_session_of_the_pool(pooled_fleet, stack)
            limits = {session.execute("show statement_timeout").fetchone() for session in sessions}
        assert limits == {("150ms",)}
        assert worker.stop() == 0
    finally:
        world.query(f'alter database "{name}" reset statement_timeout')
        world.query("drop function fault_history.be_slow() cascade")


@pytest.mark.chaos
@pytest.mark.parametrize("pooled_fleet", ["transaction"], indirect=True)
def test_transaction_mode__pauses_and_resumes_with_the_heartbeat(world: World, pooled_fleet: Fleet) -> None:
    """No notification of a pause arrives. The queue is locked at once; the task waits for the next heartbeat."""
    worker = pooled_fleet.start("--poll-interval", "0.3", "--no-listen", settings={"HEARTBEAT_INTERVAL": 0.5})
    queued = world.add("until", {"word": "go"}, queue_name="mail")
    world.wait_for("start")
    pause(world, PauseKind.TASK, "quick")
    until = pause(world, PauseKind.QUEUE, "mail", until=timedelta(seconds=2)).until
    _wait_for_heartbeats(world)
    behind, paused = world.add("records_items", [1], queue_name="mail"), world.add("quick")
    world.continue_jobs("go")
    world.wait_until(lambda: world.job(queued) is None)
    other = world.add("records_items", [2])
    world.wait_until(lambda: world.job(other) is None)
    world.wait_until(lambda: world.job(behind) is None)
    started = {run.job_id: run.started_at for run in world.executions()}
    assert paused not in started
    assert until is not None
    assert started[behind] >= until
    resume(world, PauseKind.TASK, "quick")
    world.wait_until_empty()
    world.check()
    assert not worker.has_written("failed, next try")
    assert worker.stop() == 0
    world.check_nothing_is_held()


def _wait_for_heartbeats(world: World) -> None:
    """Wait for two heartbeats: the first may have begun before."""
    last = "select max(last_heartbeat_at) from {schema}._private_workers"
    for _ in range(2):
        before = world.value(last)
        world.wait_until(lambda before=before: world.value(last) > before)  # type: ignore[misc]


@pytest.mark.parametrize("pooled_fleet", ["session"], indirect=True)
def test_session_mode__listens(world: World, pooled_fleet: Fleet) -> None:
    worker = pooled_fleet.start("--poll-interval", "600")
    worker.wait_for("is listening")
    world.add("quick")
    world.wait_until_empty()
    assert worker.stop() == 0


@pytest.fixture
def pooled_alias(pooled_fleet: Fleet, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An alias of Django for the database behind PgBouncer, in this process."""
    alias, entry = "pooled", databases.from_url(pooled_fleet.environment["DATABASE_URL"])
    connections.settings[alias] = connections.configure_settings({"default": entry})["default"]
    with django_db_blocker.unblock():
        yield alias
        close_listeners()
        connections[alias].close()
    del connections[alias]
    del connections.settings[alias]


@pytest.mark.parametrize("pooled_fleet", ["transaction"], indirect=True)
def test_wait_for_result__polls(world: World, pooled_fleet: Fleet, pooled_alias: str) -> None:
    """The waits begin before the jobs end. Without notifications, each of them ends with a look."""
    worker = pooled_fleet.start("--poll-interval", "0.3", settings={"KEEP_RESULTS": 600})
    job_ids = [world.add("until", {"word": "go on"}) for _ in range(3)]
    world.wait_for("start", times=3)
    listener = listener_of(place_of(pooled_alias))
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(_wait_for, job_id, pooled_alias) for job_id in job_ids]
        world.wait_until(lambda: _are_begun(listener._waits, 3))
        assert not listener.is_listening
        world.continue_jobs("go on")
        assert [wait.result().status for wait in waits] == [ResultStatus.SUCCEEDED] * 3
    assert worker.stop() == 0


def _are_begun(waits: Collection[ResultWait], number: int) -> bool:
    """Return whether the listener has looked for each job at least once."""
    begun = list(waits)
    return len(begun) == number and all(each.next_read_at > -math.inf for each in begun)


def _wait_for(job_id: int, alias: str) -> Result:
    try:
        return wait_for_result(job_id, timeout=60, using=alias)
    finally:
        connections.close_all()
