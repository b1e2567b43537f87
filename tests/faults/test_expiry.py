"""Jobs that nothing started in time, and workers that die."""

from __future__ import annotations

from tests.faults.processes import Fleet
from tests.faults.world import World

# A time in 2001, as a flag.
OVER = "expires:1000000000"


def test_job_that_has_begun__runs_again_after_its_time_and_its_queue_goes_on_without_late_jobs(
    world: World, fleet: Fleet
) -> None:
    """The time of the first job passes while it runs. Its worker is killed: it was started, so it does not expire."""
    victim = fleet.start()
    first = world.add("until", {"word": "go"}, queue_name="mail")
    late = world.add("quick", queue_name="mail", flags=[OVER])
    behind = world.add("quick", queue_name="mail")
    world.wait_for("start")
    world.query(
        "update {schema}._private_jobs set flags = jsonb_build_object(%s::text, true) where id = %s", OVER, first
    )
    world.kill(victim)
    successor = fleet.start()
    world.wait_for("start", 2)
    world.continue_jobs("go")
    world.wait_until_empty()
    world.job_ids.remove(late)
    assert [run.job_id for run in world.executions() if run.outcome == "end"] == [first, behind]
    successor.wait_for(f"quick #{late} expired: it was not started by 2001-09-09")
    world.check()
    assert successor.stop() == 0
    world.check_nothing_is_held()
