"""The job with the best priority starts first, however long the backlog, in a queue or not."""

from __future__ import annotations

from tests.faults.processes import Fleet
from tests.faults.world import World

BACKLOG = 6_000


def test_urgent_job__starts_while_a_backlog_of_short_jobs_is_deep(world: World, fleet: Fleet) -> None:
    world.add_many(BACKLOG, "brief")
    fleet.start("-j", "10", "--poll-interval", "600")
    world.wait_until(lambda: world.count() < BACKLOG - 1_000)
    before = world.count()
    for queue_name in (None, "urgent"):
        world.add("until", {"word": "go"}, priority=-100, queue_name=queue_name)
    world.wait_for("start", 2)
    assert world.count() > before / 2
    world.continue_jobs("go")
