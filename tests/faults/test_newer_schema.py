"""A newer graphile-worker, or a later release of this package, changes the schema while workers run."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.faults.processes import Fleet, Wait
from tests.faults.world import World

SENTENCE = r"for Rust: its breaking migration 21 came after 20\. Upgrade"
REFUSED = 57


@pytest.fixture(autouse=True)
def _ledger_as_it_was(world: World) -> Iterator[None]:
    yield
    world.query("delete from {schema}.migrations where id > 20")


def migrate(world: World, *, breaking: bool, notify: bool = True) -> None:
    """Insert the row and send the notification in one transaction, as graphile-worker does."""
    world.query("insert into {schema}.migrations (id, breaking) values (21, %s)", breaking)
    if notify:
        send_notification(world, breaking=breaking)


def send_notification(world: World, *, breaking: bool) -> None:
    world.query("select pg_notify('worker:migrate', %s)", json.dumps({"migrationNumber": 21, "breaking": breaking}))


def test_worker_that_is_notified_of_a_breaking_migration__finishes_its_job_and_stops(
    world: World, fleet: Fleet
) -> None:
    worker = fleet.start()
    job = world.add("until", {"word": "go"})
    world.wait_for("start", 1)
    migrate(world, breaking=True)
    worker.wait_for(rf"stops: BreakingMigrationError: .*{SENTENCE}")
    worker.wait_for("is stopping: the schema is too new")
    waiting = world.add("quick")
    world.continue_jobs("go")
    assert worker.wait() == REFUSED
    assert [row.id for row in world.query("select id from {schema}._private_jobs")] == [waiting]
    assert job != waiting
    assert world.workers() == []


def test_worker_that_does_not_listen__detects_a_breaking_migration(world: World, fleet: Fleet) -> None:
    worker = fleet.start("--no-listen", settings={"HEARTBEAT_INTERVAL": 0.2, "WORKER_TIMEOUT": 2})
    migrate(world, breaking=True, notify=False)
    worker.wait_for(SENTENCE)
    assert worker.wait() == REFUSED


def test_worker_of_an_earlier_release__finishes_its_job_and_stops(world: World, fleet: Fleet) -> None:
    """STOP_OLDER_WORKERS lets such a migration run beside it."""
    sentence = r"releases before 999\.1 cannot work with it, and this is .*\. Upgrade"
    worker = fleet.start()
    job = world.add("until", {"word": "go"})
    world.wait_for("start", 1)
    try:
        world.query("update {schema}._private_installation set breaks_before = '999.1' where part = 'tables'")
        send_notification(world, breaking=False)
        worker.wait_for(rf"stops: BreakingMigrationError: .*{sentence}")
        waiting = world.add("quick")
        world.continue_jobs("go")
        assert worker.wait() == REFUSED
        later = fleet.start(is_ready=False)
        assert later.wait() == REFUSED
        assert later.has_written(sentence)
    finally:
        world.query("update {schema}._private_installation set breaks_before = null")
    assert [row.id for row in world.query("select id from {schema}._private_jobs")] == [waiting]
    assert job != waiting
    assert world.workers() == []


def test_worker_of_a_later_release__does_not_start_before_the_migration(world: World, fleet: Fleet) -> None:
    job = world.add("quick")
    found = world.query("delete from {schema}._private_installation where part = 'functions' returning part")
    try:
        worker = fleet.start(is_ready=False)
        assert worker.wait() not in (0, REFUSED)
        assert worker.has_written(
            r"earlier release .*, without functions\. Run \"manage\.py migrate graphile_worker\", then"
        )
    finally:
        world.query("insert into {schema}._private_installation (part) values (%s)", *found[0])
    assert [(row.id, row.attempts, row.locked_by) for row in world.jobs()] == [(job, 0, None)]


def test_worker__ignores_a_notification_that_the_ledger_does_not_confirm(world: World, fleet: Fleet) -> None:
    """Any role that can connect may send the notification."""
    worker = fleet.start()
    send_notification(world, breaking=True)
    world.add("quick")
    world.wait_for("end", 1)
    assert worker.stop() == 0


def test_supervisor__stops_with_all_its_children_and_replaces_none(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = fleet.start("--processes", "2", is_ready=False)
    wait_until(lambda: supervisor.count_in_output("worker django-worker-.* started") == 2)
    migrate(world, breaking=True)
    assert supervisor.wait() == REFUSED
    assert not supervisor.has_written("replacing it")
