"""The server restarts, is stopped for long, or is read-only after a restart."""

from __future__ import annotations

import json

import pytest

from tests.faults.cluster import Cluster
from tests.faults.processes import Fleet, Wait, pause
from tests.faults.world import World


def test_immediate_restart__under_load_loses_nothing(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet
) -> None:
    """The server crashes while jobs of all kinds run. The workers are not restarted."""
    world = cluster_world
    workers = [cluster_fleet.start("-j", "4", settings={"WORKER_TIMEOUT": 20.0}) for _ in range(2)]
    world.add_many(150, payload={"seconds": 0.02})
    for number in range(40):
        world.add("quick", {"seconds": 0.01}, queue_name=f"q{number % 3}")
    world.add_many(30, "exactly_once", {"seconds": 0.02})
    world.wait_for_progress(30)
    cluster.restart("immediate")
    world.close()
    world.wait_until_empty()
    world.check()
    effects = world.value("select count(*) from fault_history.effect")
    assert effects == world.value("select count(distinct job_id) from fault_history.effect") == 30
    assert all(run.attempt == 1 for run in world.executions() if run.queue_name)
    assert [worker.stop() for worker in workers] == [0, 0]


def test_immediate_restart__runs_a_task_that_raised_again_after_it_ended(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet
) -> None:
    """The statement of the task fails, so the run ends, and the next run does not overlap it."""
    world = cluster_world
    worker = cluster_fleet.start("-j", "2", settings={"WORKER_TIMEOUT": 20.0})
    job_id = world.add("waits_in_the_database", {"seconds": 600})
    world.wait_for("start")
    sleeping = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%' and state = 'active'"
    world.wait_until(lambda: world.value(sleeping) == 1)
    world.close()
    cluster.restart("immediate")
    world.wait_for("failed")
    world.wait_until(lambda: world.job(job_id).locked_by is None)
    world.query("update {schema}._private_jobs set payload = '{\"seconds\": 0}', run_at = now()")
    world.wait_until_empty()
    assert [run.outcome for run in world.executions()] == ["failed", "end"]
    world.check()
    assert worker.stop() == 0


@pytest.mark.chaos
def test_long_outage__lets_workers_reconnect_and_keep_their_jobs(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet
) -> None:
    """The outage is longer than the lease. The first worker that reconnects must not declare the others dead."""
    world = cluster_world
    settings = {"HEARTBEAT_INTERVAL": 1.0, "WORKER_TIMEOUT": 4.0}
    workers = [cluster_fleet.start("-j", "2", settings=settings) for _ in range(3)]
    jobs = world.add_many(6, "until", {"word": "go"})
    world.wait_for("start", 6)
    world.close()
    cluster.stop("fast")
    pause(5.0)
    cluster.start()
    world.wait_until(lambda: all(worker.has_written("failed, next try in") for worker in workers))
    added = world.add("quick")
    # More than another lease, in which the other workers would have been declared dead.
    beats = world.value("select max(last_heartbeat_at) from {schema}._private_workers")
    world.wait_until(
        lambda: (
            (world.value("select min(last_heartbeat_at) from {schema}._private_workers") - beats).total_seconds() > 5.0
        ),
    )
    world.continue_jobs("go")
    world.wait_until_empty()
    starts = [run.job_id for run in world.executions() if run.job_id != added]
    assert sorted(starts) == jobs, "each of them started once"
    world.check()
    assert not any(worker.has_written("lost its lease") for worker in workers)
    for worker in workers:
        worker.wait_for("the database answers again after ")
    # A few lines for each part, and not a line for each try.
    assert all(worker.output().count("failed, next try in") < 60 for worker in workers)


def test_read_only_server__is_disconnected_from(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet, wait_until: Wait
) -> None:
    """After a fail-over the old address may lead to a standby. Its sessions stay read-only."""
    world = cluster_world
    worker = cluster_fleet.start("--poll-interval", "0.2", settings={"WORKER_TIMEOUT": 30.0})
    world.query("select pg_backend_pid()")
    cluster.set("default_transaction_read_only", "on")
    worker.wait_for("failed, next try in .*read-only transaction")
    sessions = (
        "select array_agg(pid order by pid) from pg_stat_activity where application_name = 'graphile_worker heartbeat'"
    )
    before = world.value(sessions)
    wait_until(lambda: world.value(sessions) != before)
    cluster.reset_settings()
    world.query("set default_transaction_read_only = off")
    world.add("quick")
    world.wait_until_empty()
    assert worker.stop() == 0


def test_role_with_tight_limits__does_not_stop_a_worker(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet
) -> None:
    """Time limits of a role end the idle sessions of the worker, which reconnects."""
    world = cluster_world
    limits = {
        "statement_timeout": "1s",
        "lock_timeout": "200ms",
        "idle_session_timeout": "400ms",
        "idle_in_transaction_session_timeout": "400ms",
        "default_transaction_isolation": "serializable",
        "search_path": "",
        "datestyle": "German",
        "timezone": "Asia/Kathmandu",
    }
    for name, value in limits.items():
        world.query(f"alter role postgres set {name} = '{value}'")
    try:
        worker = cluster_fleet.start("--poll-interval", "0.6", "-j", "2")
        worker.wait_for("stopped listening")
        world.add_many(40, payload={"seconds": 0.05})
        world.add_many(20, payload={"seconds": 0.01}, queue_name="q")
        world.wait_until_empty()
        world.check()
        assert worker.stop() == 0
    finally:
        world.query("alter role postgres reset all")


def test_django_connections__work_again_after_a_restart(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet
) -> None:
    """CONN_MAX_AGE=None keeps the connection of a thread, but the next job gets a working connection."""
    world = cluster_world
    options = {"FAULT_DATABASE_OPTIONS": json.dumps({"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False})}
    worker = cluster_fleet.start("-j", "1", environment=options, settings={"WORKER_TIMEOUT": 20.0})
    for _ in range(2):
        world.add("uses_the_orm_connection", max_attempts=1)
    world.wait_until_empty()
    kept = {event.note for event in world.events("end")}
    assert len(kept) == 1, "the connection was kept between jobs"
    cluster.restart("immediate")
    world.close()
    world.add("uses_the_orm_connection", max_attempts=1)
    world.wait_for("end", 3)
    world.wait_until_empty()
    world.add("leaves_a_transaction_open", max_attempts=1)
    world.wait_until(lambda: any("transaction open" in (job.last_error or "") for job in world.jobs()))
    world.add("uses_the_orm_connection", max_attempts=1)
    world.wait_for("end", 4)
    assert worker.stop() == 0
