"""Missed ticks of items with a backfill period: which are fired later, in what portions, and only once."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql.schedules import from_code
from tests.conftest import RawConnection
from tests.support.cron_world import MINUTE, SECOND, CronWorld

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
EVERY_MINUTE = CronItem("often", "* * * * *")


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> CronWorld:
    return CronWorld(raw_connection, worker_schema, NOON + 30 * SECOND)


def test_with_fill_exactly_what_was_missed_is_made_up(world: CronWorld) -> None:
    item = CronItem("filled", "*/10 * * * *", backfill_period="1h")
    cron, _ = world.worker([item])
    cron.step()
    world.now = NOON + 10 * MINUTE
    cron.step()
    world.now = NOON + 40 * MINUTE + SECOND
    restarted, _ = world.worker([item])
    world.settle(restarted)
    assert world.backfilled("filled") == {"12:10": False, "12:20": True, "12:30": True, "12:40": False}


def test_a_long_backlog_is_made_up_in_parts_while_other_items_stay_on_time(world: CronWorld) -> None:
    long = CronItem("long", "* * * * *", backfill_period="1y")
    daily = CronItem("daily", "0 * * * *", backfill_period="1y")
    world.worker([long, daily])[0].step()
    world.now = NOON + timedelta(days=2)
    cron, source = world.worker([long, daily, EVERY_MINUTE])
    steps = 0
    while True:
        pause = cron.step()
        steps += 1
        if steps == 5:
            world.now += MINUTE
            source.statements.clear()
        if steps == 6:
            assert source.statements.count("/* gw:fire-crontab ") == 1
            assert f"{world.now:%H:%M}" in world.ticks("often")
        if pause > 0:
            break
    assert 2880 / 200 <= steps < 20
    fired = world.fired()
    assert set(fired.values()) == {1}
    expected = [NOON + minute * MINUTE for minute in range(1, 2 * 24 * 60 + 2)]
    assert sorted(tick for task, tick in fired if task == "long") == expected
    assert sorted(tick for task, tick in fired if task == "daily") == [tick for tick in expected if tick.minute == 0]


def test_a_year_of_every_minute_starts_at_once_and_can_be_stopped(world: CronWorld) -> None:
    item = CronItem("long", "* * * * *", backfill_period="1y")
    world.worker([item])[0].step()
    world.now = NOON + timedelta(days=365)
    cron, _ = world.worker([item, EVERY_MINUTE])
    began = time.monotonic()
    assert cron.step() == 0.0
    # All of it at once would be half a million jobs: many minutes.
    assert time.monotonic() - began < 60
    assert len(world.ticks("long")) <= 200
    cron.start()
    cron.stop()
    assert cron.join(60)


def test_a_large_payload_makes_the_parts_smaller(world: CronWorld) -> None:
    item = CronItem("large", "* * * * *", payload={"text": "x" * 1_500_000}, backfill_period="1d")
    world.worker([item])[0].step()
    world.now = NOON + 10 * MINUTE
    cron, _ = world.worker([item])
    cron.step()
    assert len(world.ticks("large")) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_backlog_that_the_database_rejects_delays_no_other(world: CronWorld, order: int) -> None:
    unchecked = CronItem("broken", "* * * * *", queue_name="q" * 129, backfill_period="1h")
    filled = CronItem("filled", "* * * * *", backfill_period="1h")
    items = [unchecked, filled][::order]
    world.worker(items)[0].step()
    world.now = NOON + 5 * MINUTE
    cron, _ = world.worker(items)
    for _ in range(4):
        try:
            cron.step()
        except psycopg.Error:
            continue
    assert world.ticks("filled") == ["12:01", "12:02", "12:03", "12:04", "12:05"]


def test_a_forgotten_item_is_new_again(world: CronWorld) -> None:
    item = CronItem("filled", "* * * * *", backfill_period="1d")
    cron, _ = world.worker([item])
    cron.step()
    world.now = NOON + 600 * MINUTE + SECOND
    cron.step()
    world.connection.execute(f"""delete from "{world.schema}"._private_known_crontabs""".encode())
    world.settle(cron)
    assert len(world.ticks("filled")) == 200
    world.now += MINUTE
    world.settle(cron)
    assert ("filled", world.now - SECOND) in world.fired()
    assert set(world.fired().values()) == {1}


def test_an_item_that_was_resumed_makes_up_nothing_of_its_pause(world: CronWorld) -> None:
    item = CronItem("filled", "* * * * *", backfill_period="1d")
    running, _ = world.worker([item])
    for minute in range(3):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(running)
    with world.connection.cursor() as cursor:
        assert from_code.pause(cursor, "filled", schema=world.schema)
        for minute in (3, 4, 90):
            world.now = NOON + minute * MINUTE + SECOND
            world.settle(running)
            world.settle(world.worker([item])[0])
        assert world.ticks("filled") == ["12:01", "12:02"]
        assert from_code.resume(cursor, "filled", schema=world.schema)
        resumed = f'update "{world.schema}"._private_known_crontabs set known_since = %s'
        cursor.execute(resumed.encode(), [world.now + SECOND])
    for minute in (91, 92):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(running)
        world.settle(world.worker([item])[0])
    assert world.ticks("filled") == ["12:01", "12:02", "13:31", "13:32"]
