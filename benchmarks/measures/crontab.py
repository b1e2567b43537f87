"""Recurring tasks: next times, firing, and the backfill of missed minutes.

The target is a millisecond for the next time of any item.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["DEBUG"] = "0"
django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402

from benchmarks.results import Metric, Row, Table  # noqa: E402
from benchmarks.session import Session  # noqa: E402
from django_graphile_worker import conf  # noqa: E402
from django_graphile_worker.crontab import CronItem, upcoming  # noqa: E402
from django_graphile_worker.crontab.parser import parse_crontab  # noqa: E402
from django_graphile_worker.registry import Registry  # noqa: E402
from django_graphile_worker.worker.scheduling.scheduler import Scheduler  # noqa: E402
from testproject import databases  # noqa: E402

NOW = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)


def microseconds(function: Callable[[], object], rounds: int = 200) -> float:
    durations = []
    for _ in range(rounds):
        started = time.perf_counter()
        function()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations) * 1e6


def pure() -> Iterator[tuple[str, float]]:
    """Yield the median microseconds of what needs no database."""
    text = "\n".join(f"{index % 60} 4 * * * task ?id=item{index}&fill=2d {{n: {index}}}" for index in range(100))
    for pattern in ("* * * * *", "0 9 * * MON-FRI", "0 0 31 12 *", "0 0 29 2 *"):
        item = CronItem("task", pattern, time_zone="Europe/Paris")
        cost = microseconds(lambda item=item: upcoming(item, NOW))  # type: ignore[misc]
        yield f"next time of {pattern}", cost
    yield "read 100 lines with options and payload", microseconds(lambda: parse_crontab(text), 5)


@contextmanager
def scratch_database() -> Iterator[None]:
    databases.ensure_running()
    name = settings.DATABASES["default"]["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


class OneConnection:
    """Django's connection as a source of cursors."""

    def cursor(self) -> Any:
        return connection.cursor()

    def close(self) -> None:
        connection.close()


def worker(items: list[CronItem], moment: Callable[[], datetime]) -> Scheduler:
    ignore = SimpleNamespace(send=lambda signal, **about: None, database_trouble=lambda action, error, retry_in: None)
    parts: Any = SimpleNamespace(
        settings=conf.current(),
        registry=Registry(),
        cron_items=items,
        every={},
        now=moment,
        events=ignore,
        database=lambda part: OneConnection(),
    )
    return Scheduler(parts)


def firing() -> Iterator[tuple[str, float]]:
    """Measure a tick of many items that are all due: the first worker fires it, the second finds it fired."""
    items = [CronItem(f"task{index}", "* * * * *") for index in range(100)]
    now = NOW
    first, second = worker(items, lambda: now), worker(items, lambda: now)
    for cron in (first, second):
        cron.step()
    won, lost = [], []
    for _ in range(30):
        now += timedelta(minutes=1)
        won.append(microseconds(first.step, 1))
        lost.append(microseconds(second.step, 1))
    yield "fire a tick of 100 items", statistics.median(won)
    yield "find a tick of 100 items fired", statistics.median(lost)


def backlog(days: int) -> Row:
    """Measure the backfill of every minute of some days, while another item is due every minute."""
    long, other = CronItem("long", "* * * * *", backfill_period="1y"), CronItem("other", "* * * * *")
    now = NOW
    worker([long], lambda: now).step()
    now += timedelta(days=days)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cron = worker([long, other], lambda: now)
    started = time.perf_counter()
    steps = []
    while True:
        step_started = time.perf_counter()
        pause = cron.step()
        steps.append(time.perf_counter() - step_started)
        if pause > 0:
            break
    elapsed = time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    count = days * 24 * 60
    row = Row("backfill", f"backfill {count:,} minutes")
    row.add({"rate": count / elapsed, "longest": max(steps) * 1000, "memory": grown})
    return row


def measure(session: Session) -> None:
    def timed(found: Iterator[tuple[str, float]]) -> list[Row]:
        return [Row(name, name, {"microseconds": [cost]}) for name, cost in found]

    microsecond = [Metric("microseconds", "µs", 1)]
    session.add(Table("pure", "Next times", microsecond, timed(pure())))
    with scratch_database():
        session.add(Table("firing", "Firing", microsecond, timed(firing())))
        metrics = [
            Metric("rate", "ticks/s"),
            Metric("longest", "ms in the longest step, which delays other items"),
            Metric("memory", "MB more memory", 1),
        ]
        row = backlog(session.options.backlog_days or session.amount(14, 1))
        session.add(Table("backfill", "Backfill of every minute, while another item is due", metrics, [row]))
