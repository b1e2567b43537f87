from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker import signals
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql import crontabs, paused_crontabs
from tests.conftest import RawConnection
from tests.support.cron_world import MINUTE, SECOND, CronWorld

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
EVERY_MINUTE = CronItem("often", "* * * * *")


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> CronWorld:
    return CronWorld(raw_connection, worker_schema, NOON + 30 * SECOND)


def test_a_new_item_is_registered_and_fires_from_the_next_minute_on(world: CronWorld) -> None:
    cron, _ = world.worker([EVERY_MINUTE])
    cron.step()
    assert world.ticks("often") == []
    known = crontabs.known_crontabs(world.connection.cursor(), schema=world.schema)["often"]
    assert (known.known_since, known.last_execution) == (NOON + 30 * SECOND, None)
    world.now = NOON + MINUTE
    cron.step()
    cron.step()
    assert world.ticks("often") == ["12:01"]


def test_the_pause_lasts_until_the_next_minute_but_never_long(world: CronWorld) -> None:
    """After a machine's sleep the rest of a pause goes on: a long one would miss the minute it woke up in."""
    cron, _ = world.worker([EVERY_MINUTE])
    assert cron.step() == 15.0
    world.now = NOON + 58 * SECOND
    assert 1.5 < cron.step() <= 2.0
    world.now = NOON + MINUTE - timedelta(microseconds=1)
    assert cron.step() == 0.001


def test_without_items_there_is_nothing_to_do(world: CronWorld) -> None:
    cron, source = world.worker([])
    assert cron.step() == math.inf
    assert source.statements == []


def test_a_timer_that_fires_early_fires_nothing_twice(world: CronWorld) -> None:
    cron, _ = world.worker([EVERY_MINUTE])
    for offset in (-50, -1, 0, 3, 50):
        for minute in range(1, 4):
            world.now = NOON + minute * MINUTE + timedelta(milliseconds=offset)
            cron.step()
    assert set(world.fired().values()) == {1}


def test_a_minute_without_a_tick_costs_one_cheap_statement(world: CronWorld) -> None:
    cron, source = world.worker([CronItem("daily", "0 4 * * *", backfill_period=timedelta(days=1))])
    cron.step()
    source.statements.clear()
    for minute in range(1, 10):
        world.now = NOON + minute * MINUTE
        cron.step()
    assert source.statements == ["/* gw:cron:clock "] * 9


def test_only_the_items_of_the_minute_are_fired(world: CronWorld) -> None:
    cron, _ = world.worker([EVERY_MINUTE, CronItem("even", "*/2 * * * *"), CronItem("night", "0 0 * * *")])
    for minute in range(5):
        world.now = NOON + minute * MINUTE + SECOND
        cron.step()
    assert (world.ticks("even"), world.ticks("night")) == (["12:02", "12:04"], [])


def test_a_known_item_is_made_up_within_the_ticks_own_minute_after_a_restart(world: CronWorld) -> None:
    world.worker([EVERY_MINUTE])[0].step()
    world.now = NOON + MINUTE + 59 * SECOND
    restarted, _ = world.worker([EVERY_MINUTE])
    restarted.step()
    assert world.ticks("often") == ["12:01"]


def test_without_fill_missed_minutes_are_not_made_up_however_long_the_sleep(world: CronWorld) -> None:
    """One job per missed minute after a night's sleep is what nobody wants unless they ask for it."""
    cron, _ = world.worker([EVERY_MINUTE])
    cron.step()
    world.now = NOON + timedelta(hours=8)
    world.settle(cron)
    assert world.ticks("often") == ["20:00"]


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


def test_fill_reaches_as_far_back_as_it_says_and_no_further(world: CronWorld) -> None:
    item = CronItem("filled", "*/10 * * * *", backfill_period=timedelta(minutes=20))
    world.worker([item])[0].step()
    world.now = NOON + timedelta(hours=3)
    world.settle(world.worker([item])[0])
    assert world.ticks("filled") == ["14:40", "14:50", "15:00"]


def test_a_new_item_has_no_past_to_make_up(world: CronWorld) -> None:
    cron, _ = world.worker([CronItem("filled", "* * * * *", backfill_period="1y")])
    world.settle(cron)
    assert world.ticks("filled") == []


def test_an_item_that_never_fired_is_made_up_since_it_became_known(world: CronWorld) -> None:
    item = CronItem("filled", "*/10 * * * *", backfill_period="1d")
    world.worker([item])[0].step()
    world.now = NOON + 25 * MINUTE
    world.settle(world.worker([item])[0])
    assert world.ticks("filled") == ["12:10", "12:20"]


def test_an_outage_is_made_up_when_the_database_is_back(world: CronWorld) -> None:
    filled = CronItem("filled", "* * * * *", backfill_period="1h")
    workers = [world.worker([filled, EVERY_MINUTE]) for _ in range(2)]
    for cron, _ in workers:
        cron.step()
    for minute in range(1, 7):
        world.now = NOON + minute * MINUTE
        for cron, source in workers:
            source.is_down = 2 <= minute <= 5
            if source.is_down:
                with pytest.raises(psycopg.OperationalError):
                    cron.step()
            else:
                world.settle(cron, most=10)
    assert world.ticks("filled") == ["12:01", "12:02", "12:03", "12:04", "12:05", "12:06"]
    assert world.ticks("often") == ["12:01", "12:06"]


def test_an_outage_within_one_minute_costs_no_tick(world: CronWorld) -> None:
    cron, source = world.worker([EVERY_MINUTE])
    cron.step()
    world.now = NOON + MINUTE
    for statement, after in ((1, False), (2, False), (2, True), (3, False), (3, True)):
        source.fail_at(statement, after=after)
        with pytest.raises(psycopg.OperationalError):
            cron.step()
    world.now += 50 * SECOND
    cron.step()
    assert world.ticks("often") == ["12:01"]


def test_a_long_backlog_is_made_up_in_parts_while_other_items_stay_on_time(world: CronWorld) -> None:
    long = CronItem("long", "* * * * *", backfill_period="1y")
    daily = CronItem("daily", "0 * * * *", backfill_period="1y")
    world.worker([long, daily])[0].step()
    world.now = NOON + timedelta(days=2)
    cron, source = world.worker([long, daily, EVERY_MINUTE], ticks_per_statement=100)
    steps = 0
    while True:
        pause = cron.step()
        steps += 1
        if steps == 5:
            world.now += MINUTE
            source.statements.clear()
        if steps == 6:
            assert source.statements.count("/* gw:cron:schedule ") == 1
            assert f"{world.now:%H:%M}" in world.ticks("often")
        if pause > 0:
            break
    assert 2880 / 100 <= steps < 50
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


def test_two_workers_with_the_same_backlog_make_it_up_once(world: CronWorld) -> None:
    item = CronItem("filled", "* * * * *", backfill_period="1d")
    world.worker([item])[0].step()
    world.now = NOON + timedelta(hours=10)
    workers = [world.worker([item], ticks_per_statement=50)[0] for _ in range(3)]
    for _ in range(60):
        for cron in workers:
            cron.step()
    assert set(world.fired().values()) == {1}
    assert len(world.ticks("filled")) == 600


def test_a_worker_that_pauses_while_another_works_has_nothing_to_make_up(world: CronWorld) -> None:
    item = CronItem("filled", "* * * * *", backfill_period="1d")
    paused, busy = world.worker([item])[0], world.worker([item])[0]
    paused.step()
    for minute in range(1, 20):
        world.now = NOON + minute * MINUTE
        busy.step()
    world.settle(paused)
    assert set(world.fired().values()) == {1}
    assert len(world.ticks("filled")) == 19


def test_a_clock_that_jumps_back_fires_nothing_again_and_a_jump_forward_only_what_fill_allows(
    world: CronWorld,
) -> None:
    items = [EVERY_MINUTE, CronItem("filled", "* * * * *", backfill_period="10m")]
    cron, _ = world.worker(items)
    times = [NOON + SECOND + minute * MINUTE for minute in range(5)]
    times += [moment - timedelta(hours=2) for moment in times]
    times += [NOON + timedelta(days=1), NOON + timedelta(days=1) + MINUTE]
    for moment in times:
        world.now = moment
        world.settle(cron, most=5)
    fired = world.fired()
    assert set(fired.values()) == {1}
    assert len([tick for task, tick in fired if task == "often"]) == 4 + 2
    assert len([tick for task, tick in fired if task == "filled"]) == 4 + 10 + 2


def test_a_time_that_a_wrong_clock_jumped_over_fires_when_the_clock_is_right_again(world: CronWorld) -> None:
    cron, _ = world.worker([CronItem("daily", "0 13 * * *")])
    for moment in (NOON, NOON + timedelta(hours=2), NOON, NOON + timedelta(hours=1)):
        world.now = moment + SECOND
        cron.step()
    assert world.ticks("daily") == ["13:00"]


def test_two_crontabs_keep_out_of_each_others_way(world: CronWorld) -> None:
    first, _ = world.worker([CronItem("shared", "*/2 * * * *"), CronItem("mine", "* * * * *")])
    second, _ = world.worker([CronItem("shared", "*/3 * * * *"), CronItem("yours", "* * * * *")])
    for minute in range(7):
        world.now = NOON + minute * MINUTE + SECOND
        first.step()
        second.step()
    assert world.ticks("shared") == ["12:02", "12:03", "12:04", "12:06"]
    assert world.ticks("mine") == world.ticks("yours") == [f"12:0{minute}" for minute in range(1, 7)]


def test_a_callable_decides_and_is_made_up_like_a_pattern(world: CronWorld) -> None:
    item = CronItem("chosen", lambda moment: moment.minute % 20 == 0, backfill_period="30d")
    world.worker([item])[0].step()
    world.now = NOON + timedelta(days=3)
    steps = world.settle(world.worker([item])[0])
    assert len(world.ticks("chosen")) == 3 * 72
    assert set(world.fired().values()) == {1}
    assert steps <= 8


def test_a_callable_that_fails_is_reported_and_harms_no_other_item(world: CronWorld) -> None:
    def fail(moment: datetime) -> bool:
        raise LookupError("no holidays")

    cron, _ = world.worker([CronItem("broken", fail, backfill_period="1h"), EVERY_MINUTE])
    cron.step()
    world.now = NOON + 5 * MINUTE
    world.settle(cron)
    assert world.ticks("often") == ["12:05"]
    assert {(name, str(error)) for name, error in world.troubles} == {("cron: broken", "no holidays")}


def test_an_item_that_the_database_rejects_costs_no_other_item_its_tick(world: CronWorld) -> None:
    unchecked = CronItem("broken", "* * * * *", queue_name="q" * 129)
    cron, _ = world.worker([EVERY_MINUTE, unchecked, CronItem("last", "* * * * *")])
    cron.step()
    world.now = NOON + MINUTE
    for _ in range(3):
        with pytest.raises(psycopg.Error, match="queue"):
            cron.step()
    assert (world.ticks("often"), world.ticks("last"), world.ticks("broken")) == (["12:01"], ["12:01"], [])


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
    cron, _ = world.worker([item], ticks_per_statement=10)
    cron.step()
    world.now = NOON + 60 * MINUTE
    cron.step()
    world.connection.execute(f"""delete from "{world.schema}"._private_known_crontabs""".encode())
    world.settle(cron)
    assert len(world.ticks("filled")) == 10
    world.now += MINUTE
    world.settle(cron)
    assert world.ticks("filled")[-1] == f"{world.now:%H:%M}"
    assert set(world.fired().values()) == {1}


def test_the_workers_own_clock_decides_when_that_is_asked_for(world: CronWorld) -> None:
    mine = datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC)
    cron, _ = world.worker([EVERY_MINUTE], use_local_time=True, now=lambda: mine)
    cron.step()
    mine += MINUTE
    cron.step()
    assert [tick for _, tick in world.fired()] == [datetime(2030, 1, 1, 0, 1, tzinfo=UTC)]


def test_what_happened_is_sent_as_signals(world: CronWorld) -> None:
    item = CronItem("filled", "* * * * *", backfill_period="1d")
    cron, _ = world.worker([item])
    for minutes in (0, 1, 4):
        world.now = NOON + minutes * MINUTE + SECOND
        world.settle(cron)
    assert world.sent == [
        (signals.cron_started, {"items": (item,)}),
        (signals.cron_scheduled, {"identifiers": ("filled",), "tick": NOON + MINUTE}),
        (
            signals.cron_backfilled,
            {"identifier": "filled", "ticks": tuple(NOON + minute * MINUTE for minute in (2, 3, 4))},
        ),
    ]


def test_a_running_service_fires_on_time(
    world: CronWorld, wait_until: Callable[..., None], raw_connection: Callable[..., RawConnection]
) -> None:
    began: list[float] = []

    def nearly_noon() -> datetime:
        """Stands still until the item is known: a new one fires from the next minute on."""
        if cron._is_registered and not began:
            began.append(time.monotonic())
        passed = time.monotonic() - began[0] if began else 0.0
        return NOON - timedelta(milliseconds=300) + timedelta(seconds=passed)

    cron, _ = world.worker([EVERY_MINUTE], use_local_time=True, now=nearly_noon)
    reader = raw_connection()

    def added_at() -> Any:
        rows: Any = reader.execute(
            f"""select extract(epoch from clock_timestamp() - created_at)
            from "{world.schema}"._private_jobs""".encode()
        )
        return rows.fetchone()

    cron.start()
    try:
        wait_until(added_at)
    finally:
        cron.stop()
        assert cron.join(60)
    assert world.ticks("often")[0] == "12:00"


def test_an_item_that_was_resumed_makes_up_nothing_of_its_pause(world: CronWorld) -> None:
    item = CronItem("filled", "* * * * *", backfill_period="1d")
    running, _ = world.worker([item])
    for minute in range(3):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(running)
    with world.connection.cursor() as cursor:
        assert paused_crontabs.pause(cursor, "filled", schema=world.schema)
        for minute in (3, 4, 90):
            world.now = NOON + minute * MINUTE + SECOND
            world.settle(running)
            world.settle(world.worker([item])[0])
        assert world.ticks("filled") == ["12:01", "12:02"]
        assert paused_crontabs.resume(cursor, "filled", schema=world.schema)
        resumed = f'update "{world.schema}"._private_known_crontabs set known_since = %s'
        cursor.execute(resumed.encode(), [world.now + SECOND])
    for minute in (91, 92):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(running)
        world.settle(world.worker([item])[0])
    assert world.ticks("filled") == ["12:01", "12:02", "13:31", "13:32"]
