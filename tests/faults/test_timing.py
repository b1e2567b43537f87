"""Jobs start when they are due, not at the next poll."""

from __future__ import annotations

from datetime import timedelta

from tests.faults.processes import Fleet
from tests.faults.world import World

# The delay is about 5 ms on an idle machine, which the benchmarks measure. A worker that is not woken finds the job at
# the next poll, ten seconds later. The limit is between the two, also for slow machines.
ON_TIME = 5.0
NO_POLL = ("--poll-interval", "600")


def late(world: World, job_id: int) -> float:
    """Return the seconds from the time at which a job was due to its start."""
    starts = [run for run in world.executions() if run.job_id == job_id]
    (planned,) = world.query("select at from fault_history.event where kind = 'planned' and note = %s", str(job_id))
    return float((starts[-1].started_at - planned.at).total_seconds())


def plan(world: World, seconds: float, **options: object) -> int:
    """Add a job that is due in some seconds, and record the time."""
    run_at = world.value("select clock_timestamp() + %s", timedelta(seconds=seconds))
    job_id = world.add("quick", run_at=run_at, **options)
    world.query(
        "insert into fault_history.event (kind, pid, note, at) values ('planned', 0, %s, %s)", str(job_id), run_at
    )
    return job_id


def test_scheduled_job__starts_at_its_time(world: World, fleet: Fleet) -> None:
    fleet.start(*NO_POLL).wait_for("is listening")
    job_ids = [plan(world, 0.4), plan(world, 0.8, queue_name="q"), plan(world, 1.2, priority=5)]
    world.wait_until_empty()
    delays = [late(world, job_id) for job_id in job_ids]
    assert all(0 <= delay < ON_TIME for delay in delays), delays


def test_scheduled_job__starts_at_its_time_beside_a_due_job(world: World, fleet: Fleet) -> None:
    fleet.start(*NO_POLL).wait_for("is listening")
    # The first claim of a worker differs from the following.
    world.add("quick")
    world.wait_until_empty()
    for _ in range(2):
        with world.in_one_transaction():
            job_id = plan(world, 0.4)
            world.add("quick")
        world.wait_until_empty()
        assert 0 <= late(world, job_id) < ON_TIME


def test_retry__starts_at_its_time(world: World, fleet: Fleet) -> None:
    fleet.start(*NO_POLL).wait_for("is listening")
    world.add("failing", {"delay": 0.5})
    world.wait_until_empty()
    (failed,) = world.events("failed")
    second = world.executions()[-1]
    delay = (second.started_at - failed.at).total_seconds()
    assert 0.5 <= delay < 0.5 + ON_TIME


def test_notification__wakes_an_idle_worker(world: World, fleet: Fleet) -> None:
    fleet.start(*NO_POLL).wait_for("is listening")
    for _ in range(5):
        added_at = world.value("select clock_timestamp()")
        world.add("quick")
        world.wait_until_empty()
        delay = (world.executions()[-1].started_at - added_at).total_seconds()
        assert delay < ON_TIME


def test_without_listening__polling_finds_jobs(world: World, fleet: Fleet) -> None:
    worker = fleet.start("--no-listen", "--poll-interval", "0.2")
    world.add("quick")
    world.wait_until_empty()
    assert worker.stop() == 0
    assert not worker.has_written("is listening")


def test_without_notifications__polling_finds_jobs(world: World, fleet: Fleet) -> None:
    fleet.start("--poll-interval", "0.2").wait_for("is listening")
    world.query("set graphile_worker.notify = 'off'")
    world.add("quick")
    world.wait_until_empty()
