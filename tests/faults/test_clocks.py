"""Clocks that are wrong, and clocks that are set while jobs run.

A preloaded library shifts the time of day of the server or of a worker. The clock of the server decides which jobs are
due; no time of day decides which workers are dead.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults.clocks import IS_POSSIBLE, ShiftedClock
from tests.faults.cluster import Cluster
from tests.faults.conftest import Migrate, environment_for
from tests.faults.processes import CHECKOUT, MANAGE, Fleet, Wait, Zygote
from tests.faults.world import World

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not IS_POSSIBLE, reason="needs Linux and a C compiler"),
]

LEASES = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 3.0}
LONG_AGO = "2020-01-01"


@pytest.fixture
def clock() -> Iterator[ShiftedClock]:
    with ShiftedClock.create() as clock:
        yield clock


@pytest.fixture
def shifted_world(clock: ShiftedClock, migrate: Migrate, worker_schema: str, wait_until: Wait) -> Iterator[World]:
    """A world on a server whose clock the test can set."""
    with Cluster.create(clock.environment) as cluster:
        migrate(cluster.url())
        with World.open(cluster.url(), worker_schema, wait_until) as world:
            yield world


@pytest.fixture
def shifted_fleet(shifted_world: World, zygote: Zygote, tmp_path: Path, wait_until: Wait) -> Iterator[Fleet]:
    with closing(Fleet(zygote, tmp_path, environment_for(shifted_world.url), wait_until)) as fleet:
        yield fleet


def wait_for_heartbeats(world: World, beats: int, workers: int) -> None:
    """Wait for a number of heartbeats of each worker, by the versions of their rows and not by a clock."""
    versions = "select array_agg(xmin::text) from {schema}._private_workers"
    for _ in range(beats):
        seen = set(world.value(versions))
        world.wait_until(lambda: not seen & set(world.value(versions)))  # noqa: B023
        assert len(world.workers()) == workers


def starts_of(world: World, job_id: int) -> list[Any]:
    return [event for event in world.events("start") if event.job_id == job_id]


@pytest.mark.parametrize("hours", [24, -24], ids=["ahead", "back"])
def test_server_clock_that_is_set__ends_no_lease_and_loses_no_job(
    clock: ShiftedClock, shifted_world: World, shifted_fleet: Fleet, hours: int
) -> None:
    """The clock is set while jobs run on three workers. A worker that dies at that moment is declared dead later."""
    world = shifted_world
    workers = [shifted_fleet.start("-j", "2", "--poll-interval", "0.2", settings=LEASES) for _ in range(3)]
    world.add_many(6, "until", {"word": "go"})
    world.wait_for("start", 6)
    # Each worker has now compared the clock of the server with its own for a whole timeout.
    wait_for_heartbeats(world, 8, 3)
    clock.set(hours=hours)
    wait_for_heartbeats(world, 10, 3)
    world.continue_jobs("go")
    world.wait_for("end", 6)
    world.wait_until_empty()
    assert sorted(run.job_id for run in world.executions()) == sorted(world.job_ids), "each of them started once"
    assert not any(worker.has_written("lost its lease") for worker in workers)
    orphan = world.add("until", {"word": "again"}, run_at=LONG_AGO)
    world.wait_for("start", 7)
    (victim,) = [worker for worker in workers if worker.pid == starts_of(world, orphan)[0].pid]
    clock.set(hours=hours)
    victim.kill()
    world.wait_until(lambda: len(starts_of(world, orphan)) == 2)
    world.continue_jobs("again")
    world.wait_until_empty()
    assert not any(worker.has_written("lost its lease") for worker in workers)


def test_server_clock_that_was_just_set__makes_sweep_declare_no_living_worker_dead(
    clock: ShiftedClock, shifted_world: World, shifted_fleet: Fleet
) -> None:
    world, leases = shifted_world, {"HEARTBEAT_INTERVAL": 2.0, "WORKER_TIMEOUT": 6.0}
    workers = [shifted_fleet.start("-j", "2", settings=leases) for _ in range(3)]
    world.add_many(6, "until", {"word": "go"})
    world.wait_for("start", 6)
    # The workers have seen the clock of the server before; the process of the command has not.
    wait_for_heartbeats(world, 3, 3)
    clock.set(hours=24)
    environment = shifted_fleet.environment | {"FAULT_WORKER_SETTINGS": json.dumps(leases)}
    command = [sys.executable, MANAGE, "graphile_worker", "sweep"]
    finished = subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, timeout=100, capture_output=True)
    assert b"Nothing to unlock" in finished.stdout
    world.continue_jobs("go")
    world.wait_until_empty()
    assert len(world.executions()) == 6, "each of them started once"
    assert not any(worker.has_written("lost its lease") for worker in workers)


@pytest.mark.parametrize("hours", [6, -6], ids=["ahead", "behind"])
def test_worker_clock_that_is_wrong__changes_nothing(
    clock: ShiftedClock, world: World, fleet: Fleet, hours: int
) -> None:
    """Two workers with different clocks do not declare each other dead; jobs are due by the clock of the server."""
    clock.set(hours=hours)
    wrong = fleet.start("-j", "2", is_forked=False, environment=clock.environment, settings=LEASES)
    right = fleet.start("-j", "2", settings=LEASES)
    world.add_many(4, "until", {"word": "go"})
    world.wait_for("start", 4)
    assert {event.pid for event in world.events("start")} == {wrong.pid, right.pid}
    wait_for_heartbeats(world, 10, 2)
    world.continue_jobs("go")
    world.wait_until_empty()
    right.stop()
    due = world.value("select now() + interval '1 second'")
    soon = world.add("quick", run_at=due)
    world.wait_until_empty()
    (run,) = [run for run in world.executions() if run.job_id == soon]
    # The worker does not start the job early although its clock is ahead.
    assert run.started_at >= due
    world.check()
    assert wrong.stop() == 0
