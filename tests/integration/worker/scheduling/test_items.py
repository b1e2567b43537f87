"""Ticks at the time of each minute: which items fire, what they cost, and what is reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import sql

from django_graphile_worker import signals
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.sql.schedules import from_code
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
    known = from_code.known_crontabs(world.connection.cursor(), schema=world.schema)["often"]
    assert (known.known_since, known.last_execution) == (NOON + 30 * SECOND, None)
    world.now = NOON + MINUTE
    cron.step()
    cron.step()
    assert world.ticks("often") == ["12:01"]


def test_without_items__the_worker_reads_nothing_of_a_crontab(world: CronWorld) -> None:
    cron, source = world.worker([])
    assert not cron.has_own_work
    cron.step()
    assert source.statements == ["/* gw:schedule-tasks ", "/* gw:due-schedules "]


def test_a_minute_without_a_tick_costs_one_cheap_statement(world: CronWorld) -> None:
    cron, source = world.worker([CronItem("daily", "0 4 * * *", backfill_period=timedelta(days=1))])
    cron.step()
    source.statements.clear()
    for minute in range(1, 10):
        world.now = NOON + minute * MINUTE
        cron.step()
    assert source.statements == ["/* gw:due-schedules "] * 9


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
        cron.step()
    assert (world.ticks("often"), world.ticks("last"), world.ticks("broken")) == (["12:01"], ["12:01"], [])
    ((name, error),) = world.troubles
    assert (name, "queue" in str(error)) == ("cron: broken", True)


def test_the_workers_own_clock_decides_when_that_is_asked_for(world: CronWorld) -> None:
    mine = datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC)
    cron, _ = world.worker([EVERY_MINUTE], now=lambda: mine)
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
        if cron.items.has_begun(NOON) and not began:
            began.append(time.monotonic())
        passed = time.monotonic() - began[0] if began else 0.0
        return NOON - timedelta(milliseconds=300) + timedelta(seconds=passed)

    cron, _ = world.worker([EVERY_MINUTE], now=nearly_noon)
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


def test_receivers_of_pre_add_jobs__see_the_jobs_of_the_crontab(world: CronWorld) -> None:
    def add_header(specs: list[JobSpec], **kwargs: Any) -> None:
        specs[:] = [spec.with_headers({"tenant": spec.payload["tenant"]}) for spec in specs]

    cron, _ = world.worker([CronItem("often", "* * * * *", payload={"tenant": "acme"})])
    cron.step()
    signals.pre_add_jobs.connect(add_header)
    try:
        world.now = NOON + MINUTE
        cron.step()
    finally:
        signals.pre_add_jobs.disconnect(add_header)
    (job,) = world.connection.execute(
        sql.SQL("select payload, flags from {}._private_jobs").format(sql.Identifier(world.schema))
    ).fetchall()
    assert job[0]["tenant"] == "acme"
    assert 'headers:{"tenant":"acme"}' in job[1]
