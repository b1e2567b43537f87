"""Jobs that are cancelled while workers hold them, and the faults in between."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import psycopg
import pytest

from django_graphile_worker.sql import control
from django_graphile_worker.sql.control import STOPPING, Cancellation
from tests.faults.cluster import Cluster
from tests.faults.processes import Fleet
from tests.faults.world import World


def cancel(world: World, job_ids: Sequence[int]) -> None:
    """Cancel jobs that a worker runs or has claimed, as an operator does."""
    with psycopg.connect(world.url, autocommit=True) as connection, connection.cursor() as cursor:
        by = Cancellation(reason="sent twice", by="maria")
        fates = control.cancel_jobs(cursor, job_ids, by, schema=world.schema)
    assert {fate.fate for fate in fates} == {STOPPING}
    for job_id in job_ids:
        world.job_ids.remove(job_id)


def exists(world: World, job_id: int) -> bool:
    return bool(world.query("select 1 from {schema}._private_jobs where id = %s", job_id))


def test_job_that_is_cancelled_between_claim_and_start__never_begins(world: World, fleet: Fleet) -> None:
    """The worker has read both requests when it has stopped the job that runs."""
    worker = fleet.start("-j", "2", constants={"worker.fetching.fetcher.WAITING_TIMEOUT": 600})
    with world.in_one_transaction():
        world.add_many(1500, "quiet")
        running = world.add("endless_coroutine")
        world.add("until", {"word": "go"})
        waiting = world.add("records_items", [1])
        blocker = world.add("until", {"word": "go"})
    world.wait_for("start", 2)
    world.wait_until(lambda: world.job(waiting).locked_by is not None)
    cancel(world, [waiting])
    cancel(world, [running])
    world.wait_until(lambda: not exists(world, running))
    world.continue_jobs("go")
    world.wait_until_empty()
    assert not exists(world, waiting)
    assert blocker in {run.job_id for run in world.executions()}
    # A job that had begun would be stopped soon, often before it records anything. The log has its start in any case.
    worker.wait_for(f"#{waiting} (cancelled|succeeded|failed)")
    assert not worker.has_written(f"#{waiting} started")
    assert worker.has_written(f"#{waiting} cancelled by maria: sent twice")
    assert world.events("item") == []
    assert worker.stop() == 0
    world.check_nothing_is_held()


def test_job_whose_worker_is_killed_before_it_is_stopped__is_not_revived(world: World, fleet: Fleet) -> None:
    victim = fleet.start()
    job_id = world.add("until", {"word": "go"}, queue_name="q")
    world.wait_for("start")
    victim.signal(signal.SIGSTOP)
    cancel(world, [job_id])
    successor = fleet.start()
    world.kill(victim)
    behind = world.add("quick", queue_name="q")
    world.wait_until_empty()
    assert [run.job_id for run in world.executions()] == [job_id, behind]
    successor.wait_for(f"until #{job_id} cancelled by maria: sent twice")
    assert successor.stop() == 0
    world.check_nothing_is_held()


@pytest.mark.chaos
def test_restart_after_the_commit__loses_no_cancellation(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet
) -> None:
    """The notification is lost with the server's memory: the worker reads the request when it is back."""
    worker = cluster_fleet.start(settings={"HEARTBEAT_INTERVAL": 1.0, "WORKER_TIMEOUT": 60.0})
    job_id = cluster_world.add("endless_coroutine")
    cluster_world.wait_for("start")
    worker.signal(signal.SIGSTOP)
    cancel(cluster_world, [job_id])
    cluster_world.close()
    cluster.restart("immediate")
    worker.signal(signal.SIGCONT)
    cluster_world.wait_until_empty()
    assert cluster_world.count_events("start") == 1
    worker.wait_for(f"#{job_id} cancelled after .* by maria: sent twice")
