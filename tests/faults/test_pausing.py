"""Paused work, and the faults while it is paused: nothing of it begins, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.sql.control import PauseKind
from tests.faults.cluster import Cluster
from tests.faults.operators import pause, resume
from tests.faults.processes import Fleet
from tests.faults.world import World


def versions(world: World, *job_ids: int) -> list[Any]:
    """Return the versions of the rows of jobs: a claim that is returned leaves another version."""
    rows = world.query("select id, xmin::text from {schema}._private_jobs where id = any (%s) order by id", [*job_ids])
    assert len(rows) == len(job_ids)
    return rows


def test_paused_work__is_not_claimed_by_an_idle_worker(world: World, fleet: Fleet) -> None:
    """A worker that is notified of a few jobs claims them with a statement of its own."""
    pause(world, PauseKind.TASK, "quick")
    pause(world, PauseKind.FLAG, "bulk")
    worker = fleet.start()
    worker.wait_for("is listening")
    of_task, of_flag = world.add("quick"), world.add("failing", flags=["bulk"])
    before = versions(world, of_task, of_flag)
    for number in range(1, 4):
        world.add("records_items", [number])
        world.wait_for("end", number)
    assert versions(world, of_task, of_flag) == before
    resume(world, PauseKind.TASK, "quick")
    resume(world, PauseKind.FLAG, "bulk")
    world.wait_until_empty()
    world.check()
    assert worker.stop() == 0


def test_kill_of_the_worker_of_a_paused_queue__leaves_it_paused_and_loses_no_job(world: World, fleet: Fleet) -> None:
    victim = fleet.start()
    first = world.add("until", {"word": "go"}, queue_name="mail")
    world.wait_for("start")
    behind = world.add("quick", queue_name="mail")
    pause(world, PauseKind.QUEUE, "mail")
    version = "select xmin::text from {schema}._private_job_queues where queue_name = 'mail'"
    locked = world.value(version)
    world.kill(victim)
    successor = fleet.start()
    successor.wait_for(f"recovered the jobs {first} of dead workers")
    other = world.add("quick")
    world.wait_until(lambda: world.job(other) is None)
    assert world.value(version) == locked, "the queue was unlocked in between"
    assert [world.job(first).locked_by, world.job(behind).locked_by] == [None, None]
    resume(world, PauseKind.QUEUE, "mail")
    world.continue_jobs("go")
    world.wait_until_empty()
    assert [run.job_id for run in world.executions() if run.outcome == "end"] == [other, first, behind]
    world.check()
    assert successor.stop() == 0
    world.check_nothing_is_held()


@pytest.mark.chaos
def test_restart__leaves_paused_work_paused(cluster: Cluster, cluster_world: World, cluster_fleet: Fleet) -> None:
    """The notification of the resumption reaches a worker that has connected again."""
    world = cluster_world
    worker = cluster_fleet.start(settings={"HEARTBEAT_INTERVAL": 1.0, "WORKER_TIMEOUT": 60.0})
    pause(world, PauseKind.TASK, "quick")
    world.add("until", {"word": "go"}, queue_name="mail")
    world.wait_for("start")
    pause(world, PauseKind.QUEUE, "mail")
    paused = [world.add("quick"), world.add("records_items", [1], queue_name="mail")]
    world.close()
    cluster.restart("immediate")
    world.continue_jobs("go")
    world.wait_for("end")
    other = world.add("records_items", [2])
    world.wait_until(lambda: world.job(other) is None)
    assert {run.job_id for run in world.executions()}.isdisjoint(paused)
    resume(world, PauseKind.QUEUE, "mail")
    resume(world, PauseKind.TASK, "quick")
    world.wait_until_empty()
    world.check()
    assert worker.stop() == 0
    world.check_nothing_is_held()
