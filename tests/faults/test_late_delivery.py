"""Statements that a network delivers late, after newer claims of the same jobs.

The client has lost its connection before, and has continued on another.
"""

from __future__ import annotations

import pytest

from tests.faults.processes import Fleet
from tests.faults.proxy import Proxy
from tests.faults.world import World

SHORT_LEASE = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 3.0}


def test_return_that_arrives_late__does_not_change_the_next_claim(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    """The worker returns the jobs once more, on another connection, and claims them again."""
    worker = proxied_fleet.start("--no-prepared-statements", "-j", "2")
    late = proxy.on("return", "deliver late", part="releaser")
    with world.in_one_transaction():
        world.add_many(1500, "quiet")
        world.add_many(2, "until", {"word": "first"})
        rest = world.add_many(10, "until", {"word": "second"})
    world.wait_until(late.fired.is_set)
    world.wait_until(lambda: proxy.seen["return"] >= 2)
    world.continue_jobs("first")
    world.wait_for("start", 4)
    running = {run.job_id for run in world.executions() if run.job_id in rest}
    late.release()
    world.wait_until(late.delivered.is_set)
    assert all(world.job(job_id).locked_by is not None for job_id in running)
    fleet.start("-j", "10", "--poll-interval", "0.05")
    world.wait_for("start", 12)
    world.continue_jobs("second")
    world.wait_until_empty()
    world.check()
    assert len(world.executions()) == 12, "each of them started once"
    assert worker.stop() == 0


def test_release_of_a_queue_that_arrives_late__does_not_change_the_next_claim(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    proxied_fleet.start("--no-prepared-statements").wait_for("is listening")
    late = proxy.on("release-queues", "deliver late")
    world.add("quick", queue_name="q")
    world.wait_until(late.fired.is_set)
    world.wait_until(lambda: proxy.seen["release-queues"] >= 2)
    world.add_many(2, "until", {"word": "go"}, queue_name="q")
    world.wait_for("start", 2)
    late.release()
    world.wait_until(late.delivered.is_set)
    assert world.value("select locked_by from {schema}._private_job_queues") is not None
    # This worker polls often, and would claim the second job at once.
    other = fleet.start("--poll-interval", "0.05", "--no-listen")
    world.add("quick")
    world.wait_for("end", 2)
    assert world.count_events("start") == 3, "the queue's second job has not begun"
    world.continue_jobs("go")
    world.wait_until_empty()
    world.check()
    assert other.stop() == 0


@pytest.mark.parametrize("tag", ["complete", "fail"])
def test_result_that_arrives_after_its_worker_died__does_not_change_the_next_run(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet, tag: str
) -> None:
    """The lease expires, another worker runs the job, and then the network delivers the result."""
    victim = proxied_fleet.start("--no-prepared-statements", settings=SHORT_LEASE)
    late = proxy.on(tag, "deliver late")
    # The worker tries again until it is killed, and none of these statements arrives.
    proxy.on(tag, "blackhole", times=100)
    job_id = world.add("failing", {"failures": 1 if tag == "fail" else 0, "delay": 0.0}, queue_name="q")
    world.wait_until(late.fired.is_set)
    victim.kill()
    world.record("death", pid=victim.pid)
    # The next run waits until the test continues it.
    world.query(
        'update {schema}._private_jobs set payload = \'{"word": "go"}\','
        " task_id = (select id from {schema}._private_tasks where identifier = 'until')"
    )
    fleet.start(settings=SHORT_LEASE)
    world.wait_for("start", 2)
    held = world.job(job_id).locked_by
    late.release()
    world.wait_until(late.delivered.is_set)
    assert world.job(job_id).locked_by == held, "the newer claim stands"
    world.continue_jobs("go")
    world.wait_until_empty()
    assert [run.outcome for run in world.executions()][-1] == "end"
    world.check()
