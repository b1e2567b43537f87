"""Changes of schedules near their ticks: what was due before is fired or noted as missed, and nothing twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker.schedules.times import Definition, times_after
from django_graphile_worker.sql.schedules.changes import FOREVER
from tests.conftest import RawConnection
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld

MILLISECOND = timedelta(milliseconds=1)
ALL = {"missed": "all", "missed_within": timedelta(days=1)}


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    return ScheduleWorld(raw_connection, worker_schema, NOON)


def change(world: ScheduleWorld, **columns: Any) -> None:
    assigned = ", ".join(f'"{column}" = %s' for column in columns)
    world.execute(f"update :S._private_schedules set {assigned}", *columns.values())


CHANGES: dict[str, Callable[[datetime], dict[str, Any]]] = {
    "ends_at": lambda now: {"ends_at": now + timedelta(days=1)},
    "time_zone": lambda now: {"time_zone": "Europe/Berlin"},
    "starts_at": lambda now: {"starts_at": now + 10 * MINUTE},
    "cron": lambda now: {"cron": "30 * * * *"},
    "interval": lambda now: {"cron": None, "interval": timedelta(hours=1)},
    "run_at": lambda now: {"cron": None, "run_at": now + timedelta(hours=1)},
    "payload": lambda now: {"payload": "{}", "priority": 3},
    "ended": lambda now: {"ends_at": now - timedelta(days=1)},
}


@pytest.mark.parametrize("change_of", CHANGES.values(), ids=CHANGES)
def test_a_change_just_after_a_tick__fires_the_tick(
    world: ScheduleWorld, change_of: Callable[[datetime], dict[str, Any]]
) -> None:
    world.add("often", cron="* * * * *")
    scheduler, _ = world.worker()
    world.settle(scheduler)
    world.now = NOON + MINUTE + 3 * MILLISECOND
    change(world, **change_of(world.now))
    world.settle(scheduler)
    world.settle(scheduler)
    assert (world.ticks("often"), world.runs("often")) == (["12:01:00"], [("on_time", "12:01:00", 1)])
    assert world.row("often")["former_times"] == []


@pytest.mark.parametrize("change_of", CHANGES.values(), ids=CHANGES)
def test_a_change_while_no_worker_runs__has_what_was_due_made_up(
    world: ScheduleWorld, change_of: Callable[[datetime], dict[str, Any]]
) -> None:
    world.add("often", cron="* * * * *", **ALL)
    world.now = NOON + 3 * MINUTE + 30 * SECOND
    change(world, **change_of(world.now))
    world.settle(world.worker()[0])
    assert world.ticks("often") == ["12:01:00", "12:02:00", "12:03:00"]


def test_a_change_while_no_worker_runs__has_what_was_due_noted_as_missed(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *")
    world.now = NOON + 3 * MINUTE + 30 * SECOND
    change(world, cron="0 * * * *")
    world.now = NOON + 10 * MINUTE
    world.settle(world.worker()[0])
    assert (world.ticks("often"), world.runs("often")) == ([], [("missed", "12:03:00", 3)])
    assert world.events() == [("schedule_missed", "often", 3)]


def test_several_changes_while_no_worker_runs__have_each_time_made_up_once(world: ScheduleWorld) -> None:
    world.add("often", cron="*/2 * * * *", **ALL)
    world.now = NOON + 5 * MINUTE
    change(world, cron="*/3 * * * *")
    world.now = NOON + 6 * MINUTE
    change(world, time_zone="Europe/Berlin")
    world.now = NOON + 7 * MINUTE
    change(world, cron=None, interval=timedelta(seconds=30))
    world.now = NOON + 8 * MINUTE
    world.settle(world.worker()[0])
    assert world.ticks("often") == ["12:02:00", "12:04:00", "12:06:00", "12:07:30", "12:08:00"]


def test_a_long_series_that_is_made_up__survives_a_change_and_a_pause_in_between(world: ScheduleWorld) -> None:
    world.add("often", interval=SECOND, **ALL)
    world.now = NOON + 700 * SECOND
    change(world, ends_at=NOON + timedelta(days=1))
    scheduler, _ = world.worker()
    scheduler.fire_due()
    assert len(world.ticks("often")) == 200
    change(world, paused_until=world.now + MINUTE)
    world.settle(scheduler)
    assert len(world.ticks("often")) == 200, "nothing is fired in a pause"
    world.now += 2 * MINUTE
    world.settle(scheduler)
    ticks = [job["run_at"] for job in world.jobs("often")]
    expected = [*range(1, 701), *range(760, 821)]
    assert ticks == [(NOON + number * SECOND).isoformat() for number in expected]


@pytest.mark.parametrize("until", [NOON + 5 * MINUTE, FOREVER], ids=["pause", "pause forever"])
@pytest.mark.parametrize("when", [{"cron": "* * * * *"}, {"run_at": NOON + MINUTE}], ids=["cron", "once"])
def test_what_was_due_before_a_pause__is_made_up_after_it(
    world: ScheduleWorld, until: datetime, when: dict[str, Any]
) -> None:
    world.add("often", **when, **ALL)
    world.now = NOON + MINUTE + MILLISECOND
    change(world, paused_until=until)
    scheduler, _ = world.worker()
    for minute in (2, 4):
        world.now = NOON + minute * MINUTE
        world.settle(scheduler)
        assert world.jobs("often") == []
    world.now = NOON + 5 * MINUTE + SECOND
    if until == FOREVER:
        change(world, paused_until=None)
    world.settle(scheduler)
    own = ["12:05:00"] if "cron" in when and until != FOREVER else []
    assert world.ticks("often") == ["12:01:00", *own]


def test_what_was_due_before_a_schedule_was_disabled__is_noted_when_it_is_enabled(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *")
    scheduler, _ = world.worker()
    world.settle(scheduler)
    world.now = NOON + MINUTE + MILLISECOND
    change(world, is_enabled=False)
    for minute in (3, 4):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(scheduler)
    assert world.runs("often") == []
    change(world, is_enabled=True)
    world.settle(scheduler)
    assert world.runs("often") == [("missed", "12:01:00", 1)]


def test_a_single_time_that_is_moved__is_missed_and_not_fired_beside_the_new_one(world: ScheduleWorld) -> None:
    world.add("launch", run_at=NOON + MINUTE, missed="once")
    world.now = NOON + MINUTE + MILLISECOND
    change(world, ends_at=NOON + timedelta(days=2))
    change(world, run_at=NOON + 3 * MINUTE)
    scheduler, _ = world.worker()
    for minute in (2, 4):
        world.now = NOON + minute * MINUTE
        world.settle(scheduler)
    assert world.ticks("launch") == ["12:03:00"]
    assert world.runs("launch") == [("missed", "12:01:00", 1), ("on_time", "12:03:00", 1)]
    assert world.events() == [("schedule_missed", "launch", 1)]


def test_a_task_that_no_worker_knows__keeps_what_was_due_before_a_change(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *", **ALL)
    world.now = NOON + MINUTE + 30 * SECOND
    change(world, cron="0 * * * *")
    stranger, _ = world.worker("other")
    stranger.fire_due()
    stranger.fire_due()
    world.settle(world.worker()[0])
    assert world.ticks("often") == ["12:01:00"]


def test_very_many_changes_that_no_worker_has_seen__are_bounded(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *", **ALL)
    for number in range(150):
        world.now = NOON + number * SECOND
        change(world, ends_at=NOON + timedelta(days=1, seconds=number))
    assert len(world.row("often")["former_times"]) == 100
    world.settle(world.worker()[0])
    assert world.ticks("often") == ["12:01:00", "12:02:00"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in (1, 2, 3))])
def test_random_changes_and_workers__handle_each_tick_once(
    versioned_connection: RawConnection, worker_schema: str, seed: int
) -> None:
    """A tick belongs to the definition of its moment; it is fired once, by whichever worker comes next."""
    world = ScheduleWorld(lambda **options: versioned_connection, worker_schema, NOON)
    chance = random.Random(seed)
    world.add("often", cron="* * * * *", **ALL)
    workers = [world.worker()[0] for _ in range(2)]
    expected: list[datetime] = []
    changed_at = world.now
    for _ in range(60):
        row = world.row("often")
        world.now += chance.choice([MILLISECOND, SECOND, 20 * SECOND, 3 * MINUTE, MINUTE - timedelta(microseconds=1)])
        if chance.random() < 0.5:
            expected += _ticks_of(row, changed_at, world.now)
            changed_at = world.now
            change(world, **_random_change(chance, world.now))
        if chance.random() < 0.4:
            world.settle(chance.choice(workers))
    expected += _ticks_of(world.row("often"), changed_at, world.now)
    change(world, is_enabled=True, paused_until=None)
    world.settle(workers[0])
    assert [job["run_at"] for job in world.jobs("often")] == [tick.isoformat() for tick in expected]


def _random_change(chance: random.Random, now: datetime) -> dict[str, Any]:
    times: list[dict[str, Any]] = [
        {"cron": "* * * * *", "interval": None},
        {"cron": "*/2 * * * *", "interval": None},
        {"cron": None, "interval": timedelta(seconds=chance.choice([7, 30, 61]))},
        {"time_zone": chance.choice(["UTC", "Asia/Kathmandu"])},
        {"ends_at": chance.choice([None, now + 2 * MINUTE])},
        {"is_enabled": chance.random() < 0.7},
        {"paused_until": chance.choice([None, now + MINUTE, now, FOREVER])},
    ]
    return chance.choice(times)


def _ticks_of(row: dict[str, Any], after: datetime, until: datetime) -> list[datetime]:
    """Return the ticks of a definition as long as it was in force."""
    if not row["is_enabled"]:
        return []
    moments: dict[str, Any] = {
        name: row[name] and datetime.fromisoformat(row[name]) for name in ("ends_at", "anchor_at", "starts_at")
    }
    interval = row["interval"] and timedelta(
        seconds=sum(int(part) * unit for part, unit in zip(row["interval"].split(":"), (3600, 60, 1), strict=True))
    )
    definition = Definition(cron=row["cron"], interval=interval, time_zone=row["time_zone"], **moments)
    if row["paused_until"] is not None:
        after = max(after, datetime.fromisoformat(row["paused_until"]) - timedelta(microseconds=1))
    return list(itertools.takewhile(lambda tick: tick <= until, times_after(definition, after)))
