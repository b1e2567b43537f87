"""Roles with only the rights that ``manage.py graphile_worker grants`` gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from django_graphile_worker.sql.install import privileges
from tests.faults.processes import Fleet
from tests.faults.world import World


@pytest.fixture
def role(world: World) -> Iterator[str]:
    name = f"gw_restricted_{world.value('select pg_backend_pid()')}"
    world.query(f"create role {name}")
    yield name
    world.query(f"drop owned by {name}")
    world.query(f"drop role {name}")


def as_role(role: str) -> dict[str, str]:
    """Return an environment in which all connections of Django and of the worker use this role."""
    return {"FAULT_DATABASE_OPTIONS": json.dumps({"OPTIONS": {"assume_role": role}})}


def test_worker_role__has_all_rights_that_a_worker_needs(world: World, fleet: Fleet, role: str) -> None:
    """From the start to the end: tasks, queues, failures, statistics, a dead worker."""
    world.query(privileges.grants_script("worker", role, schema=world.schema))
    # A dead worker, whose job is recovered.
    world.query(
        "insert into {schema}._private_workers (id, last_heartbeat_at) values ('django-worker-dead', '2020-01-01')"
    )
    worker = fleet.start("-j", "2", environment=as_role(role))
    world.add_many(10)
    world.add_many(5, queue_name="q")
    world.add("failing", {"delay": 0.1})
    world.wait_until_empty()
    world.wait_until(lambda: len(world.workers()) == 1)
    world.wait_until(lambda: world.value("select count(*) from {schema}._private_statistics") > 0)
    assert worker.stop() == 0
    assert not worker.has_written("permission denied|row-level security"), worker.output()
