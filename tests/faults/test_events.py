"""Events of real workers: what an operator sees after a worker died."""

from __future__ import annotations

from typing import Any

from tests.faults.processes import Fleet, Wait
from tests.faults.world import World

# A lease that expires while the test waits.
SHORT_LEASE = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 3.0}


def told(world: World, *kinds: str) -> list[Any]:
    return world.query(
        "select kind, number, worker_id, details from {schema}._private_events where kind = any(%s) order by id",
        list(kinds),
    )


def test_killed_worker__is_lost_once_and_recovered_once(world: World, fleet: Fleet, wait_until: Wait) -> None:
    """Two workers look for dead workers at the same time."""
    victim = fleet.start("-j", "3", settings=SHORT_LEASE)
    for _ in range(3):
        world.add("until", {"word": "go"})
    world.wait_for("start", 3)
    others = [fleet.start(settings=SHORT_LEASE) for _ in range(2)]
    (dead,) = victim.worker_ids()
    world.kill(victim)
    wait_until(lambda: told(world, "jobs_recovered") != [])
    world.continue_jobs("go")
    world.wait_until_empty()
    lost, recovered = told(world, "worker_lost", "jobs_recovered")
    assert (lost.kind, lost.number, lost.worker_id, lost.details["jobs"]) == ("worker_lost", 1, dead, 3)
    assert lost.details["silent_seconds"] >= 3
    assert (recovered.kind, recovered.worker_id, recovered.details["jobs"]) == ("jobs_recovered", dead, 3)
    assert recovered.details["by"] in [worker.worker_ids()[0] for worker in others]
    assert len(told(world, "worker_started")) == 3
    others[0].stop()
    wait_until(lambda: len(told(world, "worker_stopped")) == 1)
    world.check()
