"""Alerts of real workers: one message for all of them, and at least one if they are killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.processes import Fleet
from tests.faults.world import World
from tests.support.webhooks import Webhook, webhook


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


def alerts(hook: Webhook) -> dict[str, Any]:
    return {"ALERTS": {"TO": hook.url, "INTERVAL": 1, "OLDEST_READY": None}}


def fail_many(world: World) -> None:
    columns = "attempts, max_attempts, last_error"
    world.query("insert into {schema}._private_tasks (identifier) values ('send') on conflict do nothing")
    world.query(
        f"insert into {{schema}}._private_jobs (task_id, payload, {columns})"
        " select task.id, '{}', 1, 1, 'OSError: refused'"
        " from {schema}._private_tasks as task, generate_series(1, 10000) where identifier = 'send'"
    )


def judged_at(world: World) -> float:
    return float(world.value("select coalesce(max((state ->> 'judged_at')::float8), 0) from {schema}._private_alerts"))


def test_two_workers__tell_ten_thousand_failures_in_one_message(world: World, fleet: Fleet, hook: Webhook) -> None:
    workers = [fleet.start(settings=alerts(hook)) for _ in range(2)]
    world.wait_until(lambda: judged_at(world) > 0)
    fail_many(world)
    world.wait_until(lambda: hook.posted)
    told_at = judged_at(world)
    world.wait_until(lambda: judged_at(world) > told_at + 3)
    assert [each["subject"] for each in hook.posted] == ["10,000 jobs of send failed permanently: OSError"]
    world.query("delete from {schema}._private_jobs")
    world.wait_until(lambda: len(hook.posted) == 2)
    assert hook.posted[1]["subject"] == "Over: 10,000 jobs of send failed permanently: OSError"
    assert [worker.stop() for worker in workers] == [0, 0]


def test_processes_that_live_for_one_job__judge(world: World, fleet: Fleet, hook: Webhook) -> None:
    fail_many(world)
    settings = {"ALERTS": {"TO": hook.url, "INTERVAL": 60, "OLDEST_READY": None}}
    worker = fleet.start(
        "--max-jobs", "1", settings=settings, constants={"worker.maintenance.alerting.FIRST_ROUND": 60}
    )
    world.add("quick")
    world.wait_until(lambda: hook.posted)
    assert hook.posted[0]["subject"] == "10,000 jobs of send failed permanently: OSError"
    assert worker.stop() == 0


def test_worker_that_is_killed_while_it_tells__has_another_tell_again(
    world: World, fleet: Fleet, hook: Webhook
) -> None:
    hook.answers.clear()
    worker = fleet.start(settings=alerts(hook))
    fail_many(world)
    world.wait_until(lambda: hook.posted)
    # A webhook that hangs delays neither jobs nor the end of a worker; this one is killed.
    world.add("quick")
    world.wait_until(lambda: world.value("select count(*) from {schema}._private_jobs where attempts = 0") == 0)
    world.kill(worker)
    hook.answers.set()
    fleet.start(settings=alerts(hook))
    # As if the time of the claim were over.
    world.query("update {schema}._private_alerts set free_at = now()")
    world.wait_until(lambda: len(hook.posted) == 2)
    assert hook.posted[0]["alerts"][0]["text"] == hook.posted[1]["alerts"][0]["text"]


def test_news_that_wait__are_told_after_all_workers_were_restarted(world: World, fleet: Fleet, hook: Webhook) -> None:
    hook.status = 500
    workers = [fleet.start(settings=alerts(hook)) for _ in range(2)]
    fail_many(world)
    world.wait_until(lambda: hook.posted)
    assert [worker.stop() for worker in workers] == [0, 0]
    world.query("delete from {schema}._private_jobs")
    hook.status = 200
    del hook.posted[:]
    fleet.start(settings=alerts(hook))
    # A worker that was stopped while it told has left its claim.
    world.query("update {schema}._private_alerts set free_at = now()")
    world.wait_until(lambda: hook.posted)
    assert hook.posted[0]["alerts"][0]["text"] == "10,000 jobs of send failed permanently: OSError"
    assert hook.posted[0]["alerts"][0]["phase"] == "began"
