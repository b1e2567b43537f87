"""No free connections: of a role, or of Django's connection pool."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from django_graphile_worker.sql.install import privileges
from tests.faults.conftest import environment_for
from tests.faults.processes import Fleet
from tests.faults.world import World


@pytest.fixture
def limited_role(world: World) -> Iterator[str]:
    """A role that may run a worker and has a connection limit; a limit does not apply to superusers."""
    name = f"gw_limited_{world.value('select pg_backend_pid()')}"
    world.query(f"create role {name} login")
    world.query(privileges.grants_script("worker", name, schema=world.schema))
    world.query(f"grant usage on schema fault_history to {name}")
    world.query(f"grant all on all tables in schema fault_history to {name}")
    world.query(f"grant all on all sequences in schema fault_history to {name}")
    yield name
    world.query(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{name}'")
    world.query(f"drop owned by {name}")
    world.query(f"drop role {name}")


def lose_all_connections(world: World, role: str) -> None:
    world.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", role)


def test_role_without_free_connections__runs_jobs_again_when_connections_are_free(
    world: World, fleet: Fleet, limited_role: str
) -> None:
    """A job runs meanwhile. Its result is stored and the lease holds, although the worker gets no new connections."""
    environment = environment_for(make_conninfo(world.url, user=limited_role), world.url)
    worker = fleet.start("-j", "2", environment=environment, settings={"WORKER_TIMEOUT": 60.0})
    running = world.add("until", {"word": "go"})
    world.wait_for("start")
    world.query(f"alter role {limited_role} connection limit 0")
    lose_all_connections(world, limited_role)
    worker.wait_for("failed, next try in .*too many connections for role")
    world.continue_jobs("go")
    world.wait_for("end")
    waiting = world.add("quick")
    world.query(f"alter role {limited_role} connection limit -1")
    world.wait_until_empty()
    assert [run.job_id for run in world.executions()] == [running, waiting], "each started once"
    assert not worker.has_written("lost its lease")
    world.check()
    assert worker.stop() == 0


def test_django_pool_without_free_connections__fails_only_jobs_that_need_one(world: World, fleet: Fleet) -> None:
    """A task keeps the only connection of the pool. The worker's own connections are not in the pool."""
    pool = {"OPTIONS": {"pool": {"min_size": 0, "max_size": 1, "timeout": 2.0}}}
    options = {"FAULT_DATABASE_OPTIONS": json.dumps(pool)}
    worker = fleet.start("-j", "4", environment=options)
    world.add("keeps_its_connection", {"word": "go"})
    world.wait_for("start")
    starved = world.add("uses_the_orm_connection", max_attempts=1)
    world.add_many(20)
    world.wait_for("end", 20)
    world.wait_until(lambda: "PoolTimeout" in (world.job(starved).last_error or ""))
    assert not worker.has_written("lost its lease")
    world.continue_jobs("go")
    world.wait_until(lambda: world.count() == 1)
    again = world.add("uses_the_orm_connection", max_attempts=1)
    world.wait_until(lambda: world.job(again) is None)
    world.job_ids.remove(starved)
    assert worker.stop() == 0
