"""Rounds: which ticks of schedules get jobs, and what is noted about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.conftest import RawConnection
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    return ScheduleWorld(raw_connection, worker_schema, NOON + 30 * SECOND)


def test_a_cron_line_fires_at_its_next_minute(world: ScheduleWorld) -> None:
    world.add("nightly", cron="* * * * *", payload={"tenant": 7})
    rounds, _ = world.worker()
    assert world.settle(rounds) == pytest.approx(30, abs=1)
    assert world.jobs() == []
    world.now = NOON + MINUTE
    assert world.settle(rounds) == pytest.approx(60, abs=1)
    (job,) = world.jobs("nightly")
    assert (job["task"], job["run_at"]) == ("report", "2026-11-16T12:01:00+00:00")
    assert job["payload"] == {"tenant": 7, "_cron": {"ts": "2026-11-16T12:01:00.000Z", "backfilled": False}}
    assert world.runs("nightly") == [("on_time", "12:01:00", 1)]
    row = world.row("nightly")
    assert (row["last_tick"], row["last_job_id"]) == ("2026-11-16T12:01:00+00:00", job["id"])


def test_an_interval_fires_without_drift(world: ScheduleWorld) -> None:
    world.add("often", interval=timedelta(seconds=10))
    rounds, _ = world.worker()
    for seconds in range(41):
        world.now = NOON + timedelta(seconds=30 + seconds, milliseconds=250 * (seconds % 3))
        world.settle(rounds)
    assert world.ticks("often") == ["12:00:40", "12:00:50", "12:01:00", "12:01:10"]


def test_a_single_time_fires_once(world: ScheduleWorld) -> None:
    world.add("once", run_at=NOON + MINUTE)
    rounds, _ = world.worker()
    for minute in range(4):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(rounds)
    assert world.ticks("once") == ["12:01:00"]
    assert world.row("once")["next_at"] == "infinity"
