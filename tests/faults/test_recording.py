"""Results and history under faults: each attempt that ended is recorded once, and no other."""

from __future__ import annotations

import random

from tests.faults.processes import Fleet
from tests.faults.proxy import Proxy
from tests.faults.world import World

RECORDED = {"KEEP_RESULTS": 3600, "HISTORY": 86_400, "WORKER_TIMEOUT": 4.0}


def check_records(world: World) -> None:
    """Check that each job has one result, a success, and one success in the history, beside its other attempts."""
    jobs = set(world.job_ids)
    results = world.query("select job_id, status, jsonb_array_length(attempts) as told from {schema}._private_results")
    assert {row.job_id for row in results} == jobs
    assert {row.status for row in results} == {1}
    successes = world.query("select job_id from {schema}._private_history where outcome = 1")
    assert sorted(row.job_id for row in successes) == sorted(jobs)
    # Each attempt that the history has, except for interrupted ones, is in the result.
    counted = world.query(
        "select job_id, count(*) as told from {schema}._private_history where outcome <> 4 group by 1"
    )
    assert {row.job_id: row.told for row in counted} == {row.job_id: row.told for row in results}


def test_statements_that_record__survive_a_cut_before_and_after(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    options = ("--no-prepared-statements", "--poll-interval", "0.2", "-j", "4")
    worker = proxied_fleet.start(*options, settings=RECORDED)
    for tag in ("complete-recorded", "fail"):
        for mode in ("cut before", "cut after"):
            rule = proxy.on(tag, mode)
            world.wait_until(lambda: _add_jobs(world) and rule.fired.wait(0.05))  # noqa: B023 - used at once
            assert worker.is_alive
    world.wait_until(world.is_drained)
    assert worker.stop() == 0
    world.check()
    check_records(world)


def _add_jobs(world: World) -> bool:
    if world.count() < 20:
        world.add("quick", queue_name="q")
        world.add("failing", {"delay": 0.0})
        world.add("exactly_once")
    return True


def test_kill_loop__records_each_end_once_and_tells_of_lost_attempts(world: World, fleet: Fleet) -> None:
    fates = random.Random(7)
    world.add_many(60, payload={"seconds": 0.01}, max_attempts=1000)
    world.add_many(20, task="exactly_once", payload={"seconds": 0.01}, max_attempts=1000)
    workers = [fleet.start("-j", "4", "--poll-interval", "0.1", is_ready=False, settings=RECORDED) for _ in range(2)]
    for _ in range(2):
        world.wait_for_progress(5)
        place = fates.randrange(2)
        world.kill(workers[place])
        workers[place] = fleet.start("-j", "4", "--poll-interval", "0.1", is_ready=False, settings=RECORDED)
    # These kills may find idle workers; the last finds a job that runs.
    long = world.add("until", {"word": "end"}, max_attempts=1000)
    world.wait_until(lambda: long in [event.job_id for event in world.events("start")])
    (pid,) = [event.pid for event in world.events("start") if event.job_id == long]
    world.kill(next(worker for worker in workers if worker.pid == pid))
    world.continue_jobs("end")
    world.wait_until(world.is_drained)
    world.check()
    check_records(world)
    lost = world.query("select worker_id, error from {schema}._private_history where outcome = 5")
    assert lost
    assert all(row.worker_id in row.error for row in lost)
