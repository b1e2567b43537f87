from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem
from tests.conftest import RawConnection
from tests.support.cron_world import MINUTE, CronWorld

START = datetime(2026, 3, 28, 23, 0, tzinfo=UTC)
FILLED = [CronItem(f"filled{number}", "* * * * *", backfill_period="2h") for number in range(5)]
PLAIN = [CronItem(f"plain{number}", "* * * * *") for number in range(5)]


@pytest.mark.parametrize(
    ("seed", "minutes"), [(1, 250), *(pytest.param(seed, 1000, marks=pytest.mark.chaos) for seed in (1, 2))]
)
def test_every_tick_fires_exactly_once_whatever_dies_or_drifts(
    raw_connection: Callable[..., RawConnection], worker_schema: str, seed: int, minutes: int
) -> None:
    """Ten ticks a minute; three workers that are killed, cut off mid-statement, early, late and out of order."""
    chance = random.Random(seed)
    world = CronWorld(raw_connection, worker_schema, START + timedelta(seconds=30))
    items = [*FILLED, *PLAIN]
    workers = [world.worker(items) for _ in range(3)]
    workers[0][0].step()
    covered: set[datetime] = set()
    outage = 0
    for count in range(1, minutes + 1):
        minute = START + count * MINUTE
        outage = max(0, outage - 1) or (chance.randint(1, 60) if chance.random() < 0.01 else 0)
        is_covered = False
        for index in chance.sample(range(3), 3):
            # Timers are early and late; the database's clock is what it is.
            world.now = minute + timedelta(milliseconds=chance.randint(-50, 50))
            if chance.random() < 0.1:
                workers[index] = world.worker(items)
            cron, source = workers[index]
            source.is_down = outage > 0
            if chance.random() < 0.2:
                source.fail_at(chance.randint(1, 5), after=chance.random() < 0.5)
            with contextlib.suppress(psycopg.OperationalError):
                world.settle(cron, most=chance.randint(1, 4))
                is_covered |= world.now >= minute
            source.fail_at(0, after=False)
        if is_covered:
            covered.add(minute)
    world.now = START + (minutes + 1) * MINUTE
    workers[0][1].is_down = False
    world.settle(workers[0][0])

    fired = world.fired()
    assert set(fired.values()) == {1}
    everything = {START + count * MINUTE for count in range(1, minutes + 2)}
    for item in FILLED:
        assert {tick for task, tick in fired if task == item.task} == everything
    assert len(covered) > minutes * 0.5
    for item in PLAIN:
        assert {tick for task, tick in fired if task == item.task} >= covered
