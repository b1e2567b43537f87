"""Jobs, workers and statistics of a shop, for the screenshots and the browser tests."""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from django_graphile_worker import Limit, task
from django_graphile_worker.crontab import occurrences, parse_crontab
from django_graphile_worker.sql.statistics import BUCKETS, Row
from tests.browser import showcase_schedules
from tests.browser.showcase_crontab import CRONTAB
from tests.support.factories import make_failed_job, make_job, make_queue, make_task, minutes_ago
from tests.support.limits import make_key, park_job, run_job
from tests.support.recorded_statistics import append_and_fold, make_row

__all__ = ["CRONTAB", "fill", "fill_events", "register_limited_tasks"]

TRACEBACK = """{summary}

Traceback (most recent call last):
  File "/srv/shop/billing/tasks.py", line 41, in charge_card
    receipt = gateway.charge(order.total, token=card.token)
  File "/srv/venv/lib/python3.13/site-packages/gateway/client.py", line 118, in charge
    return self._post("/charges", json=body)
  File "/srv/venv/lib/python3.13/site-packages/gateway/client.py", line 87, in _post
    raise ConnectionError(str(error)) from error
{summary}"""

TASKS = {
    "send_receipt": (90.0, 0.02, 0.004),
    "charge_card": (25.0, 0.4, 0.06),
    "resize_photo": (14.0, 1.2, 0.0),
    "move_stock": (18.0, 0.1, 0.01),
    "refresh_search_index": (2.0, 6.0, 0.0),
    "fetch_exchange_rates": (1.0, 0.3, 0.1),
}

# By schema: the last minute of the statistics that tests copy.
_copied: dict[str, int] = {}


def register_limited_tasks() -> None:
    """Register the tasks of the shop that have limits."""
    of_account = Limit("account:{account}", concurrency=3, rate="100/m", burst=20, fair=True)
    task("sync_catalogue", limit=of_account)(lambda payload: None)
    task("export_orders", limit=[of_account, Limit("warehouse", concurrency=5)])(lambda payload: None)


def fill(schema: str) -> None:
    """Create jobs and schedules in every state, two workers, and a day of statistics."""
    with transaction.atomic():
        _jobs()
        _limited_jobs()
        _workers(schema)
    _statistics(schema)
    _named_statistics(schema)
    _samples(schema)
    showcase_schedules.fill(schema)


def _jobs() -> None:
    for number in range(37):
        make_job("send_receipt", {"order": 1200 + number, "email": "ada@example.org"}, run_at=minutes_ago(0.1 * number))
    for number in range(12):
        make_job("move_stock", {"shelf": "ABCD"[number % 4]}, queue_name="warehouse", run_at=minutes_ago(number))
    for number in range(8):
        make_job("resize_photo", {"photo": f"ada-{number}.jpg"}, flags={"slow": True}, run_at=minutes_ago(1))
    for number in range(23):
        make_job("ask_for_review", {"order": 1100 + number}, run_at=minutes_ago(-60 * 24 * (number + 1)))
    make_job("refresh_search_index", {}, key="search-index", run_at=minutes_ago(-0.5))
    for number in range(9):
        summary = "ConnectionError: The payment provider hung up."
        make_job(
            "charge_card",
            {"order": 1190 + number, "card": {"brand": "visa", "token": "tok_4242"}, "lines": [{"sku": "A-1", "n": 2}]},
            attempts=3,
            last_error=TRACEBACK.format(summary=summary),
            created_at=minutes_ago(90),
            updated_at=minutes_ago(75 - 9 * number),
            run_at=minutes_ago(-2 - number),
        )
    for number in range(4):
        summary = f"shop.printing.NoPrinter: No printer in room {number + 1}."
        make_failed_job(
            "print_invoice",
            error=summary,
            created_at=minutes_ago(300 + number),
            updated_at=minutes_ago(290 - 11 * number),
            run_at=minutes_ago(60),
        )
    make_failed_job(
        "charge_card",
        payload={"order": 1187, "card": {"brand": "visa", "token": "tok_4000"}},
        error=TRACEBACK.format(summary="KeyError: 'amount'"),
        created_at=minutes_ago(240),
        updated_at=minutes_ago(17),
        run_at=minutes_ago(-340),
    )


def _limited_jobs() -> None:
    for account, waiting, running in ((4711, 14, 3), (1815, 5, 3), (1024, 2, 0)):
        closed_until = minutes_ago(-3) if not running else None
        key = make_key("account:{account}", f"account:{account}", closed_until=closed_until)
        for number in range(running):
            run_job(key, "sync_catalogue", token=f"django-worker-a3f9c1d20e87b/{number}")
        for number in range(waiting):
            task_name = "export_orders" if number % 4 == 3 else "sync_catalogue"
            since = minutes_ago(12 - number / 2)
            park_job(key, task_name, payload={"account": account}, run_at=since, blocked_at=since)


def _workers(schema: str) -> None:
    now = datetime.now(UTC)
    for number, host in enumerate(["worker-a", "worker-b"]):
        worker_id = f"django-worker-{host[-1]}3f9c1d20e87b"
        running = [
            {
                "job_id": make_job(task, {}, locked_by=worker_id, locked_at=now - timedelta(seconds=age), attempts=1),
                "task": task,
                "started_at": (now - timedelta(seconds=age)).timestamp(),
            }
            for task, age in [("resize_photo", 4.0), ("charge_card", 0.6), ("resize_photo", 1.8)][: 3 - number]
        ]
        metadata = {
            "host": host,
            "pid": 4711 + number,
            "version": "1.0",
            "concurrency": 10,
            "tasks": sorted([*TASKS, "ask_for_review", "print_invoice", "count_orders"]),
            "is_listening": True,
            "running": running,
        }
        with connection.cursor() as cursor:
            cursor.execute(
                f'insert into "{schema}"._private_workers (id, started_at, last_heartbeat_at, metadata)'
                " values (%s, now() - interval '3 hours', now() - interval '4 seconds', %s)",
                [worker_id, json.dumps(metadata)],
            )
    make_queue("warehouse", locked_by="django-worker-a3f9c1d20e87b", locked_at=now - timedelta(seconds=2))
    make_task("print_invoice")
    with connection.cursor() as cursor:
        for item in parse_crontab(CRONTAB + "* * * * * count_orders"):
            cursor.execute(
                f'insert into "{schema}"._private_known_crontabs (identifier, known_since, last_execution)'
                " values (%s, now() - interval '90 days', %s)",
                [item.name, [*occurrences(item, now - timedelta(days=40), now)][-1]],
            )


def _statistics(schema: str) -> None:
    """Create the statistics of a day, or copy what an earlier test has created: adding up a day takes seconds."""
    this_minute = int(time.time()) // 60
    with connection.cursor() as cursor:
        if schema in _copied:
            cursor.execute(f'insert into "{schema}"._private_statistics table showcase.statistics')
            _add_up(cursor, schema, range(_copied[schema] + 1, this_minute + 1))
        else:
            _add_up(cursor, schema, range(this_minute - 24 * 60 + 1, this_minute + 1))
            cursor.execute("drop schema if exists showcase cascade; create schema showcase")
            cursor.execute(f'create table showcase.statistics as table "{schema}"._private_statistics')
            _copied[schema] = this_minute


NAMED = {
    ("queue", "warehouse"): "move_stock",
    ("worker", "django-worker-a3f9c1d20e87b"): "",
    ("worker", "django-worker-b3f9c1d20e87b"): "send_receipt",
}


def _named_statistics(schema: str) -> None:
    """Give a queue and two workers the counts of tasks."""
    with connection.cursor() as cursor:
        for (kind, name), task in NAMED.items():
            cursor.execute(
                f'insert into "{schema}"._private_statistics select period_seconds, %s, started_at, %s, counts'
                f" from \"{schema}\"._private_statistics where name = %s and kind in ('all', 'task')",
                [kind, name, task],
            )


def _samples(schema: str) -> None:
    """Create the samples of a day; for seven minutes of the last hour no worker ran."""
    with connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{schema}"._private_backlog_samples'
            " (minute, sampled_at, ready, scheduled, running, retrying, permanently_failed, last_job_id)"
            " select minute, minute + interval '7 seconds', 60 + round(40 * sin(back / 9.0) + 12 * sin(back / 2.3)),"
            " 23, 4 + back % 3, 9 + back % 5, 5, 1000000 - back * 150 + round(90 * sin(back / 6.0))"
            " from (select date_trunc('minute', now()) - back * interval '1 minute' as minute, back"
            " from generate_series(0, 1440) as back where back not between 31 and 37) as each"
        )


def _add_up(cursor: Any, schema: str, minutes: range) -> None:
    chance = random.Random(7)
    rows = [_row(chance, minute, task, *shape) for minute in reversed(minutes) for task, shape in TASKS.items()]
    for start in range(0, len(rows), 2000):
        append_and_fold(cursor, rows[start : start + 2000], schema=schema)


def _row(chance: random.Random, minute: int, task: str, rate: float, duration: float, failing: float) -> Row:
    wave = 0.6 + 0.4 * math.sin(minute / 60 / 24 * 2 * math.pi) + 0.15 * math.sin(minute / 7)
    succeeded = max(0, round(chance.gauss(rate * wave, rate**0.5)))
    failed = sum(chance.random() < failing for _ in range(succeeded))
    durations: Counter[int] = Counter()
    waits: Counter[int] = Counter()
    for _ in range(succeeded):
        durations[_bucket(chance.lognormvariate(math.log(duration), 0.5))] += 1
        waits[_bucket(chance.lognormvariate(math.log(0.003 * (1 + 4 * wave)), 0.9))] += 1
    return make_row(
        task,
        minute * 60,
        succeeded=succeeded,
        failed=failed,
        permanently_failed=int(chance.random() < failing / 4),
        run_microseconds=int(succeeded * duration * 1e6),
        durations=durations,
        waits=waits,
    )


def _bucket(seconds: float) -> int:
    return min(int(seconds * seconds * 2**22).bit_length(), BUCKETS - 1)


NIGHT = (
    (380, "worker_started", 1, "worker-a", "django-worker-a3f9c1d20e87b", {"host": "worker-a", "version": "1.0"}),
    (379, "worker_started", 1, "worker-b", "django-worker-b3f9c1d20e87b", {"host": "worker-b", "version": "1.0"}),
    (
        301,
        "work_paused",
        1,
        "warehouse",
        None,
        {"what": "queue", "name": "warehouse", "by": "ada", "reason": "stocktaking"},
    ),
    (262, "work_resumed", 1, "warehouse", None, {"what": "queue", "name": "warehouse", "by": "ada"}),
    (190, "worker_lost", 3, "worker-c", "django-worker-c0", {"host": "worker-c", "silent_seconds": 62, "jobs": 7}),
    (
        190,
        "jobs_recovered",
        1,
        "worker-c",
        "django-worker-c0",
        {"jobs": 7, "by": "django-worker-b3f9c1d20e87b", "by_host": "worker-b"},
    ),
    (
        188,
        "process_replaced",
        2,
        "worker-c",
        "django-worker-c1",
        {"host": "worker-c", "cause": "ended", "exit_code": -9, "former_pid": 815},
    ),
    (188, "worker_started", 1, "worker-c", "django-worker-c1", {"host": "worker-c"}),
    (140, "schedule_missed", 2, "nightly-index", None, {"name": "nightly-index", "ticks": 1}),
    (75, "database_lost", 2, "", None, {"seconds": 133}),
    (31, "limit_changed", 1, "warehouse", None, {"name": "warehouse", "concurrency": 5, "by": "ada"}),
    (9, "worker_stopped", 1, "worker-c", "django-worker-c1", {"host": "worker-c", "reason": "SIGTERM"}),
)


def fill_events(schema: str) -> None:
    """Create the events of a night."""
    with connection.cursor() as cursor:
        for minutes, kind, severity, subject, worker_id, details in NIGHT:
            moment = minutes_ago(minutes)
            cursor.execute(
                f'insert into "{schema}"._private_events'
                " (kind, severity, subject, worker_id, first_at, last_at, details) values (%s, %s, %s, %s, %s, %s, %s)",
                [kind, severity, subject, worker_id, moment, moment, json.dumps(details)],
            )
