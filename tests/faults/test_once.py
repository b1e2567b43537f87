"""``--once``: run all runnable jobs, then exit with 0."""

from __future__ import annotations

import pytest

from tests.faults.processes import Fleet, pause
from tests.faults.proxy import Proxy
from tests.faults.world import World


def test_once__runs_what_jobs_add_and_whole_queues_then_exits(world: World, fleet: Fleet) -> None:
    world.add("branching", {"children": 3})
    world.add("branching", {"children": 3, "queue_name": "q"}, queue_name="q")
    world.add_many(30, queue_name="other")
    world.add_many(30)
    later = world.add("quick", run_at="2999-01-01")
    worker = fleet.start("--once")
    assert worker.wait() == 0
    assert [job.id for job in world.jobs()] == [later]
    # 1 + 3 + 6 + 6, twice.
    branching = [run for run in world.executions() if run.job_id not in world.job_ids]
    assert len(branching) == 2 * (3 + 6 + 6)
    world.check_nothing_is_held()


def test_once__waits_for_a_queue_that_is_being_released(world: World, proxied_fleet: Fleet, proxy: Proxy) -> None:
    """Between the last job of a work unit and the release of its queue, no job runs, but jobs may be left."""
    holds = [proxy.on("release-queues", "hold") for _ in range(3)]
    world.add_many(6, queue_name="q")
    worker = proxied_fleet.start("--no-prepared-statements", "--once", "-j", "1", "--local-queue-size", "1")
    for hold in holds:
        world.wait_until(lambda: hold.fired.is_set() or not worker.is_alive)  # noqa: B023
        pause(0.2)
        hold.release()
    assert worker.wait() == 0
    assert world.count() == 0


def test_once__stops_at_a_signal(world: World, fleet: Fleet) -> None:
    worker = fleet.start("--once", "-j", "1")
    assert worker.wait() == 0
    world.add("until", {"word": "go"})
    rest = world.add_many(3)
    worker = fleet.start("--once", "-j", "1")
    world.wait_for("start")
    worker.signal(15)
    worker.wait_for("is stopping")
    world.continue_jobs("go")
    assert worker.wait() == 0
    assert [job.id for job in world.jobs()] == rest


def test_once__recovers_the_jobs_of_an_earlier_run_that_was_killed(world: World, fleet: Fleet) -> None:
    """If only cron of the system starts workers, no other worker recovers the jobs."""
    world.add("until", {"word": "go"})
    worker = fleet.start("--once")
    world.wait_for("start")
    world.kill(worker)
    world.query("update {schema}._private_workers set last_heartbeat_at = now() - interval '1 hour'")
    world.continue_jobs("go")
    assert fleet.start("--once").wait() == 0
    assert world.count() == 0
    world.check()


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_no_log_success__keeps_successes_out_of_the_output_and_failures_in(
    world: World, fleet: Fleet, processes: int
) -> None:
    world.add("quick")
    world.add("failing")
    # Spawned children start with a command line of their own.
    worker = fleet.start("--once", "--no-log-success", "--processes", str(processes))
    assert worker.wait() == 0
    assert worker.has_written(r"failing #\d+ failed after")
    assert not worker.has_written("succeeded after")
