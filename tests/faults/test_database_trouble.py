"""Connections that break, hang or drop notifications: the worker reconnects and logs it."""

from __future__ import annotations

import random
from pathlib import Path

from django_graphile_worker import probe
from tests.faults.processes import Fleet
from tests.faults.proxy import Proxy
from tests.faults.world import World

PLAIN = "--no-prepared-statements"


def test_terminated_backends__lose_no_job(world: World, fleet: Fleet) -> None:
    """Terminate connections of the worker at random while it runs jobs of all kinds."""
    fates = random.Random(11)
    worker = fleet.start("-j", "4", "--poll-interval", "0.2")
    world.add_many(150, payload={"seconds": 0.01})
    for number in range(40):
        world.add("quick", {"seconds": 0.005}, queue_name=f"q{number % 3}")
    for _ in range(20):
        world.add("failing", {"delay": 0.05})
    killed: set[str] = set()
    while world.count() > 30 or len(killed) < 3:
        if world.count() <= 30:
            world.add_many(50, payload={"seconds": 0.01})
        rows = world.query(
            "select pid, application_name as name from pg_stat_activity where datname = current_database()"
            " and application_name like 'graphile_worker %%'"
        )
        if rows:
            victim = fates.choice(rows)
            world.query("select pg_terminate_backend(%s)", victim.pid)
            killed.add(victim.name)
        progress = world.count_events("end") + 8
        world.wait_until(lambda: world.count_events("end") >= progress or world.count() <= 30)  # noqa: B023
    world.wait_until_empty()
    world.check()
    assert worker.is_alive
    assert max(run.attempt for run in world.executions()) <= 2
    assert worker.stop() == 0


def test_listener_that_lost_its_connection__looks_for_jobs_when_it_has_reconnected(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    """Jobs that were added while the worker did not listen are found without a poll."""
    worker = proxied_fleet.start(PLAIN, "--poll-interval", "600")
    worker.wait_for("is listening")
    proxy.refuse("fetcher")
    worker.wait_for("stopped listening")
    world.add("quick")
    proxy.accept()
    world.wait_until_empty()


def test_listener_without_notifications__is_detected_and_logged(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    """LISTEN succeeds and no notification arrives, as with a pooler."""
    worker = proxied_fleet.start(PLAIN, "--poll-interval", "0.3")
    worker.wait_for("is listening")
    proxy.drops_notifications = True
    world.add("quick")
    # The worker finds the job by polling.
    world.wait_until_empty()
    worker.wait_for("stopped listening, next try in .*Expected a notification within")
    listening_before = worker.output().count("is listening")
    proxy.drops_notifications = False
    world.wait_until(lambda: worker.output().count("is listening") > listening_before)
    assert worker.stop() == 0


def test_connection_that_died_without_an_error__is_detected_by_its_silence(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    """An idle connection raises no error: only the missing proof notification shows that it is dead."""
    worker = proxied_fleet.start(PLAIN, "--poll-interval", "600")
    worker.wait_for("is listening")
    proxy.blackhole("fetcher")
    world.add("quick")
    worker.wait_for("stopped listening, next try in .*Expected a notification within", timeout=30)
    proxy.lift_blackhole()
    world.wait_until_empty(timeout=30)
    assert worker.stop() == 0


def test_blackholed_statement__is_ended_at_its_deadline(world: World, proxied_fleet: Fleet, proxy: Proxy) -> None:
    """The connection raises no error, so only the deadline ends the statement."""
    tags = {"fetcher": "claim", "releaser": "complete", "heartbeat": "beat"}
    settings = {"STATEMENT_TIMEOUT": 0.5, "WORKER_TIMEOUT": 20.0}
    worker = proxied_fleet.start(PLAIN, "--poll-interval", "0.5", settings=settings)
    rules = [proxy.on(tag, "blackhole", part=part) for part, tag in tags.items()]
    world.add("quick")
    world.wait_until(lambda: all(rule.fired.is_set() for rule in rules))
    for part in tags:
        worker.wait_for(f"{part} failed, next try in")
    world.wait_until_empty()
    assert world.count_events("start") == 1
    world.check()
    assert worker.stop() == 0


def test_statement_that_waits_for_a_lock__is_cancelled_at_its_deadline(world: World, fleet: Fleet) -> None:
    worker = fleet.start(settings={"STATEMENT_TIMEOUT": 0.5, "POLL_INTERVAL": 0.3})
    world.query("begin")
    world.query("lock table {schema}._private_jobs in access exclusive mode")
    worker.wait_for("fetcher failed, next try in")
    world.query("commit")
    world.add("quick")
    world.wait_until_empty()
    assert worker.stop() == 0


def test_unreachable_database_at_the_start__is_waited_for_by_default(
    world: World, proxied_fleet: Fleet, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.refuse()
    health = str(tmp_path / "health")
    worker = proxied_fleet.start(PLAIN, "--health-file", health, is_ready=False)
    worker.wait_for("start failed, next try in .*OperationalError")
    assert probe.main([health]) == 0, "a worker that waits is alive"
    assert probe.main(["--ready", health]) == 1
    world.add("quick")
    proxy.accept()
    world.wait_until_empty()
    world.wait_until(lambda: probe.main(["--ready", health]) == 0)
    assert worker.stop() == 0
    assert probe.main([health]) == 1


def test_worker_that_waits_for_its_database__can_be_stopped(proxied_fleet: Fleet, proxy: Proxy) -> None:
    proxy.refuse()
    worker = proxied_fleet.start(PLAIN, is_ready=False)
    worker.wait_for("start failed, next try in .*OperationalError")
    assert worker.stop() == 0


def test_connection_that_breaks__loses_no_job_of_a_draining_worker(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    world.add_many(5)
    rules = [proxy.on("claim", "cut before"), proxy.on("complete", "cut after")]
    worker = proxied_fleet.start(PLAIN, "--once")
    assert worker.wait() == 0
    assert all(rule.fired.is_set() for rule in rules)
    assert world.count() == 0
    world.check()
    world.check_nothing_is_held()
