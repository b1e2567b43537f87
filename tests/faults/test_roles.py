"""Roles with only the rights that ``manage.py graphile_worker grants`` gives them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from django_graphile_worker.sql.install import privileges
from tests.faults.conftest import environment_for
from tests.faults.processes import CHECKOUT, MANAGE, Fleet
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


def operate(world: World, role: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, MANAGE, "graphile_worker", *arguments],
        cwd=CHECKOUT,
        env=environment_for(world.url) | as_role(role),
        capture_output=True,
        text=True,
        check=False,
    )


def test_worker_role__has_all_rights_that_a_worker_needs(world: World, fleet: Fleet, role: str) -> None:
    """From the start to the end: tasks, queues, failures, keys, statistics, a dead worker."""
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
    assert operate(world, role, "add", "quick", "--key", "a key").returncode == 0
    world.wait_until_empty()
    assert worker.stop() == 0
    assert not worker.has_written("permission denied|row-level security"), worker.output()


def test_adder_role__adds_jobs_through_django_and_nothing_else(world: World, fleet: Fleet, role: str) -> None:
    world.query(privileges.grants_script("adder", role, schema=world.schema))
    added = operate(world, role, "add", "quick", "{}")
    assert added.returncode == 0, added.stderr
    (job,) = world.jobs()
    assert str(job.id) not in operate(world, role, "jobs", "--json").stdout
    assert operate(world, role, "delete", str(job.id)).returncode == 1
    assert world.count() == 1
    world.job_ids.append(job.id)
    fleet.start()
    world.wait_until_empty()


def test_viewer_role__sees_the_queue_and_changes_nothing(world: World, role: str) -> None:
    world.query(privileges.grants_script("viewer", role, schema=world.schema))
    job = world.add("quick")
    seen = operate(world, role, "jobs", "--json")
    assert seen.returncode == 0, seen.stderr
    assert f'"id": {job}' in seen.stdout
    assert operate(world, role, "delete", "--key", str(job)).returncode == 1
    assert world.count() == 1
