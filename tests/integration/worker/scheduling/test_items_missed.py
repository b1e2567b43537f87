"""Ticks that no worker fired: found by the next worker, and told once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import signals
from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.sql.schedules import runs
from django_graphile_worker.sql.schedules.runs import RunOutcome
from tests.support.cron_world import CronWorld

START = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
ITEMS = list(parse_crontab("*/10 * * * * plain\n*/10 * * * * filled ?fill=25m\n"))


@pytest.fixture
def world(raw_connection: Callable[..., Any], worker_schema: str) -> CronWorld:
    return CronWorld(raw_connection, worker_schema, START)


def told(world: CronWorld) -> list[tuple[str, str, int]]:
    rows = world.connection.execute(
        f"select kind, subject, (details ->> 'ticks')::int as number from \"{world.schema}\"._private_events"
        " order by kind, subject"
    )
    return [tuple(row) for row in rows.fetchall()]


def test_ticks_without_a_worker__are_missed_or_backfilled(world: CronWorld) -> None:
    sent: list[tuple[Any, dict[str, Any]]] = []
    first, _ = world.worker(ITEMS)
    world.settle(first)
    assert told(world) == []
    world.now += timedelta(hours=1, minutes=5)
    for _ in range(2):
        later, _ = world.worker(ITEMS, send=lambda signal, **about: sent.append((signal, about)))
        world.settle(later)
    # 12:10 to 13:00 are missed. The last 25 minutes are backfilled: 12:50 and 13:00.
    assert told(world) == [
        ("schedule_backfilled", "filled", 2),
        ("schedule_missed", "filled", 4),
        ("schedule_missed", "plain", 6),
    ]
    missed = {about["identifier"]: about for signal, about in sent if signal is signals.cron_missed}
    assert missed["plain"]["number"] == 6
    assert missed["plain"]["last_tick"] == datetime(2026, 1, 1, 13, 0, tzinfo=UTC)
    with world.connection.cursor() as cursor:
        found = runs.runs_of_crontabs(cursor, ["plain", "filled"], schema=world.schema)
    assert [(run.outcome, run.number, run.tick) for run in found["plain"]] == [
        (RunOutcome.MISSED, 6, datetime(2026, 1, 1, 13, 0, tzinfo=UTC))
    ]
    assert [(run.kind, run.number) for run in found["filled"]] == [("late", 1), ("late", 1), ("missed", 4)]
