"""Jobs that their worker process cannot stop at their deadline: the process is replaced."""

from __future__ import annotations

import pytest

from tests.faults.processes import Fleet, Wait
from tests.faults.world import World

LIMITS = {"TIMEOUT": 1.0, "STOP_GRACE": 0.2}


def test_thread_that_does_not_stop__has_its_process_replaced(world: World, fleet: Fleet, wait_until: Wait) -> None:
    # One process, which has a supervisor because of the time limit.
    supervisor = fleet.start("-j", "2", settings=LIMITS)
    (first,) = world.workers()
    neighbour = world.add("unlimited_until", {"word": "go"})
    world.wait_for("start")
    stuck = world.add("never_ends", max_attempts=1)
    world.wait_for("start", 2)
    # The worker that follows runs them, while the neighbour still runs in the process that retires.
    supervisor.wait_for("has a job that does not stop; replacing it")
    wait_until(lambda: len(world.workers()) == 2)
    others = world.add_many(3)
    wait_until(lambda: all(world.job(other) is None for other in others))
    assert world.worker_id_of(neighbour) == first
    assert world.job(stuck).last_error.startswith("django_graphile_worker.exceptions.TaskTimeout")
    assert "_never.wait()" in world.job(stuck).last_error
    world.continue_jobs("go")
    wait_until(lambda: world.job(neighbour) is None)
    wait_until(lambda: first not in world.workers())
    assert supervisor.stop() == 0
    assert "Traceback" not in supervisor.output().replace("Traceback (most recent call last):\n  File", "")


@pytest.mark.chaos
def test_kill_while_jobs_are_stopped__loses_no_job(world: World, fleet: Fleet, wait_until: Wait) -> None:
    workers = [fleet.start("-j", "4", settings=LIMITS, is_forked=False) for _ in range(2)]
    jobs = world.add_many(8, "waits_in_the_database", {"seconds": 60}, max_attempts=1)
    world.wait_for("start", 8)
    for child in workers[0].children():
        child.kill()
    # A job of the killed process has the note about its death as its error, until it has run again.
    timeout = "django_graphile_worker.exceptions.TaskTimeout"
    wait_until(lambda: all((world.job(job).last_error or "").startswith(timeout) for job in jobs))
    for worker in workers:
        worker.stop()
