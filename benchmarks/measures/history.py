"""The database time of searches in the history of thirty days, in the admin.

``--rows`` is the number of attempts on each day. With ``--keep`` the database stays, and the next run with the same
name uses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from benchmarks.admin_site import scratch_site
from benchmarks.database import SCHEMA
from benchmarks.measures.admin import ROUNDS, Stopwatch
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session

DAYS = 30
SECONDS_OF_DAY = 86_400
# The tables are new, so that nothing is lost if the server stops while they are filled.
FAST = "set synchronous_commit = off; set maintenance_work_mem = '1GB'; set max_parallel_maintenance_workers = 0"
MAKE = f"select {SCHEMA}._private_make_history_partitions(0, %s)"
INDEX = f"select {SCHEMA}._private_index_history(%s)"
FILL = f"""
insert into {SCHEMA}._private_history (ended_at, started_at, added_at, run_at, job_id, attempt, outcome,
    task_identifier, worker_id, queue_name, job_key, payload)
select moment, moment - interval '2 s', moment - interval '9 s', moment - interval '8 s', %(first)s + n, 1,
    case when n %% 50 = 0 then 3 else 1 end, 'task_' || n %% 60, 'worker-' || n %% 20,
    case when n %% 7 = 0 then 'queue_' || n %% 5000 end, case when n %% 10 = 0 then 'order:' || n end,
    '{{"order": ' || n || ', "customer": "customer_' || n %% 100000 || '"}}'
from (
    select n, %(beginning)s::timestamptz + n * %(seconds)s::float8 * interval '1 s' as moment
    from generate_series(1, %(rows)s) as n) as each"""


def measure(session: Session) -> None:
    rows = session.options.rows or session.amount(50_000, 2_000)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [today - timedelta(days=back) for back in range(DAYS, -1, -1)]
    with scratch_site(session.options.keep) as connection:
        if not connection.execute(f"select 1 from {SCHEMA}._private_history limit 1".encode()).fetchone():
            _load(connection, days, rows)
        table = [_searched(name, query, rows) for name, query in _searches(days, rows)]
    metrics = [Metric("milliseconds", "ms", 1), Metric("found", "attempts found")]
    title = f"Searches in a history of {DAYS} days with {rows:,} attempts each, time of the database"
    session.add(Table("history", title, metrics, table))


def _load(connection: psycopg.Connection[Any], days: list[datetime], rows: int) -> None:
    began = time.perf_counter()
    for day in days:
        connection.execute(MAKE.encode(), [day])

    def fill(number: int) -> None:
        with psycopg.connect(connection.info.dsn, autocommit=True) as own:
            own.execute(FAST.encode())
            # The current day has as many attempts as its seconds so far would have.
            share = min((datetime.now(UTC) - days[number]).total_seconds() / SECONDS_OF_DAY, 1.0)
            parameters = {"first": number * rows, "beginning": days[number], "rows": int(rows * share)}
            own.execute(FILL.encode(), parameters | {"seconds": SECONDS_OF_DAY / (rows + 1)})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fill, range(len(days))))
    connection.execute(FAST.encode())
    while (connection.execute(INDEX.encode(), [datetime.now(UTC)]).fetchone() or (False,))[0]:
        pass
    connection.execute(f"vacuum analyze {SCHEMA}._private_history".encode())
    print(f"{len(days)} days, loaded in {time.perf_counter() - began:.0f} s\n")


def _searches(days: list[datetime], rows: int) -> Iterator[tuple[str, dict[str, str]]]:
    tuesday = next(day for day in reversed(days[:-1]) if day.weekday() == 1).strftime("%Y-%m-%d")
    order = rows // 2 // 10 * 10
    yield "the newest attempts", {}
    yield "an order by its number, on a day", {"q": str(order), "day": tuesday}
    yield "an order by its number", {"q": str(order)}
    yield "an order in payloads, on a day", {"q": f"payload:{order}", "day": tuesday}
    yield "an order in payloads", {"q": f"payload:{order}"}
    yield "a key", {"q": f"key:order:{order}"}
    yield "a key, on a day", {"q": f"key:order:{order}", "day": tuesday}
    yield "a job", {"q": f"id:{rows * 7 + order}"}
    yield "a task", {"q": "task:task_7"}
    yield "failures of a task, on a day", {"q": "task:task_50 outcome:permanently_failed", "day": tuesday}
    yield "a queue", {"q": "queue:queue_7"}
    yield "a word that no attempt has", {"q": "nothing"}
    yield "a day", {"day": tuesday}


def _searched(name: str, query: dict[str, str], rows: int) -> Row:
    # Late import: Django must be set up first.
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client

    client = Client()
    users = get_user_model().objects
    client.force_login(users.get_or_create(username="benchmark", is_staff=True, is_superuser=True)[0])
    row = Row(name, name, settings={"rows": rows})
    for _ in range(ROUNDS):
        watch = Stopwatch()
        with connection.execute_wrapper(watch):
            page = client.get("/admin/graphile_worker/pastattempt/", query)
        assert page.status_code == 200, (name, page.status_code)
        row.add({"milliseconds": watch.seconds * 1000, "found": len((page.context_data or {})["rows"])})
    return row
