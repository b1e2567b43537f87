"""What the admin's pages cost the database on a long table, and what counting costs a worker.

    python -m benchmarks.bench_admin [--jobs=2000000] [--only=pages,actions,statistics] [--keep=NAME]

Each page is opened a few times; the figures are the statements and the database's time of the quickest and of
the median. The table holds jobs of every state, in queues and without, sixty tasks and five thousand queues.
With --keep the database stays, and is used again as it is by the next run with the same name.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from testproject import databases, embedded

SCHEMA = "graphile_worker"
ROUNDS = 7
PAGES = {
    "overview": "overview/",
    "overview, a week": "overview/?span=week",
    "jobs": "job/",
    "jobs, ready": "job/?state=ready",
    "jobs, scheduled": "job/?state=scheduled",
    "jobs, running": "job/?state=running",
    "jobs, retrying": "job/?state=retrying",
    "jobs, failed": "job/?state=failed",
    "jobs, ready, of a task": "job/?state=ready&q=task:task_7",
    "jobs, ready, of a queue": "job/?state=ready&q=queue:queue_30",
    "jobs, failed, of an exception": "job/?state=failed&q=exception:KeyError",
    "jobs, by key (none)": "job/?q=key:nope",
    "jobs, by payload (none)": "job/?state=ready&q=payload.user:nope",
    "jobs, by error text (none)": "job/?state=failed&q=error:nope",
    "a job": "job/{id}/change/",
    "queues": "jobqueue/",
    "recurring": "recurringtask/",
    "workers": "worker/",
    "errors": "errorgroup/",
}

# Numbers that share no factor with the number of tasks, so that every task has jobs of every kind.
LOAD = f"""
insert into {SCHEMA}._private_tasks (identifier) select 'task_' || n from generate_series(1, 60) as n;
insert into {SCHEMA}._private_job_queues (queue_name) select 'queue_' || n from generate_series(1, 5000) as n;
create temporary table task as select id, row_number() over (order by id) as number from {SCHEMA}._private_tasks;
create temporary table queue as select id, row_number() over (order by id) as number
    from {SCHEMA}._private_job_queues;
insert into {SCHEMA}._private_jobs (
    task_id, job_queue_id, payload, priority, run_at, attempts, max_attempts, last_error, created_at, key, flags)
select task.id, case when n %% 7 = 0 then queue.id end,
    json_build_object('user', n, 'token', 'secret', 'pad', repeat('x', 100)), n %% 3,
    case when n %% 11 < 3 then now() - random() * interval '1 day'
        when n %% 11 < 6 then date_trunc('day', now()) else now() + random() * interval '30 days' end,
    case when n %% 23 = 7 then 25 when n %% 23 = 8 then 3 else 0 end, 25,
    case when n %% 23 in (7, 8) then
        (array['ValueError', 'KeyError', 'shop.Refused', 'ConnectionError'])[1 + n %% 4] || ': order ' || n
        || E'\\n\\nTraceback (most recent call last):\\n' || repeat(E'  File "x.py", line 1, in f\\n', 20) end,
    now() - random() * interval '2 days', case when n %% 53 = 0 then 'key-' || n end,
    case when n %% 41 = 1 then '{{"slow": true}}'::jsonb end
from generate_series(1, %s) as n
join task on task.number = 1 + n %% (select count(*) from task)
join queue on queue.number = 1 + n %% 5000;
update {SCHEMA}._private_jobs set locked_at = now() - random() * interval '1 hour', locked_by = 'worker-' || id %% 20
where id in (select id from {SCHEMA}._private_jobs where is_available and run_at < now() limit 1000);
insert into {SCHEMA}._private_statistics
select period, to_timestamp(floor(extract(epoch from now()) / period) * period - period * back), 'task_' || number,
    100, 3, 1, 0, 10, 1, array_fill(5, array[48]), array_fill(5, array[48])
from (values (60, 120), (600, 156), (3600, 192)) as resolution (period, kept),
    generate_series(0, kept - 1) as back, generate_series(1, 60) as number;
"""


@contextmanager
def scratch_site(kept: str | None) -> Iterator[psycopg.Connection[Any]]:
    """A database of the demo site's, made for this and, unless it is to be kept, dropped afterwards."""
    databases.ensure_running()
    server = os.environ.get("DATABASE_URL") or embedded.conninfo()
    name = kept or f"benchmark_admin_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as maintenance:
        if not maintenance.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
            maintenance.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        try:
            url = make_conninfo(server, dbname=name)
            os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "testproject.settings", "DEBUG": "0"}
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            with psycopg.connect(url, autocommit=True) as connection:
                yield connection
        finally:
            if not kept:
                maintenance.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


INDEXES = f"""select indexname, indexdef from pg_indexes
where schemaname = '{SCHEMA}' and tablename = '_private_jobs' and indexdef not like 'CREATE UNIQUE%'"""


def load(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Fill the tables, the indexes afterwards: all in one transaction, so that nothing of it is logged twice."""
    began = time.perf_counter()
    with connection.transaction():
        indexes = connection.execute(INDEXES.encode()).fetchall()
        for name, _ in indexes:
            connection.execute(f"drop index {SCHEMA}.{name}".encode())
        for statement in LOAD.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode(), [jobs] if "%s" in statement else [])
        for _, definition in indexes:
            connection.execute(definition.encode())
    connection.execute(f"vacuum analyze {SCHEMA}._private_jobs".encode())
    row = connection.execute(f"select pg_total_relation_size('{SCHEMA}._private_jobs')".encode()).fetchone()
    print(f"{jobs:,} jobs, {row[0] / 2**20:,.0f} MB, loaded in {time.perf_counter() - began:.0f} s\n" if row else "")


class Stopwatch:
    """Counts statements, and the seconds that the database took for them."""

    def __init__(self) -> None:
        self.statements, self.seconds = 0, 0.0

    def __call__(self, execute: Any, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            self.statements += 1
            self.seconds += time.perf_counter() - began


def measure_pages(job_id: int) -> None:
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client

    client = Client()
    client.force_login(
        get_user_model().objects.get_or_create(username="benchmark", is_staff=True, is_superuser=True)[0]
    )
    print(f"{'page':32}{'statements':>11}{'best':>10}{'median':>10}")
    for name, path in PAGES.items():
        watches = []
        for _ in range(ROUNDS):
            watches.append(Stopwatch())
            with connection.execute_wrapper(watches[-1]):
                response = client.get("/admin/graphile_worker/" + path.format(id=job_id))
            assert response.status_code == 200, (name, response.status_code)
        seconds = sorted(watch.seconds for watch in watches)
        best, median = seconds[0] * 1000, statistics.median(seconds) * 1000
        print(f"{name:32}{watches[-1].statements:>11}{best:>7.1f} ms{median:>7.1f} ms", flush=True)


ACTIONS = {
    "run all that failed": ("run", "failed", ""),
    "priority of all that are ready": ("reschedule", "ready", ""),
    "fail all ready ones of a task": ("fail", "ready", "task:task_7"),
    "remove all that are scheduled": ("remove", "scheduled", ""),
    "remove all the rest": ("remove", "all", ""),
}


def measure_actions() -> None:
    """Actions on all that match, one after the other, as a person who goes on when asked."""
    from django.contrib.auth import get_user_model
    from django.contrib.messages import get_messages
    from django.test import Client

    client = Client()
    users = get_user_model().objects
    client.force_login(users.get_or_create(username="benchmark", is_staff=True, is_superuser=True)[0])
    print(f"\n{'action on all that match':32}{'requests':>9}{'steps':>7}{'longest':>11}{'all':>9}")
    for name, (action, state, query) in ACTIONS.items():
        steps: list[float] = []
        fields = {"action": action, "state": state, "q": query, "all": "1", "confirmed": "1", "priority": "7"}
        began, requests = time.perf_counter(), 1
        with timed_steps(steps):
            page = client.post("/admin/graphile_worker/job/act/", fields)
            while page.status_code == 200:
                requests += 1
                page = client.post("/admin/graphile_worker/job/act/", dict(page.context_data["hidden"]))
        seconds = time.perf_counter() - began
        told = "; ".join(str(message) for message in get_messages(page.wsgi_request))
        print(f"{name:32}{requests:>9}{len(steps):>7}{max(steps) * 1000:>8.0f} ms{seconds:>7.1f} s  {told}", flush=True)
        client.get("/admin/graphile_worker/recurringtask/")


@contextmanager
def timed_steps(steps: list[float]) -> Iterator[None]:
    from django.db import connection

    def watch(execute: Any, statement: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(statement, *arguments)
        finally:
            if "-all */" in statement:
                steps.append(time.perf_counter() - began)

    with connection.execute_wrapper(watch):
        yield


def measure_statistics_buffer() -> None:
    from django_graphile_worker.sql.claims import Claim
    from django_graphile_worker.worker.outcomes import Succeeded
    from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer

    now = time.time()
    print("\ncounting, per job")
    for size in (1, 10, 100, 1000):
        outcomes = [
            Succeeded(Claim(n, n % 5, 1, "{}", None, 0, now, 25, None, 0, None, None, now, now, None), 0.001)
            for n in range(size)
        ]
        buffer = StatisticsBuffer()
        times = []
        for _ in range(max(20_000 // size, 20)):
            began = time.perf_counter()
            buffer.add(outcomes, str)
            times.append(time.perf_counter() - began)
        print(f"  in batches of {size:5} {min(times) / size * 1e6:8.2f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000_000)
    parser.add_argument("--only", default="pages,statistics")
    parser.add_argument("--keep", metavar="NAME")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    with scratch_site(arguments.keep) as connection:
        if not connection.execute(f"select 1 from {SCHEMA}._private_jobs limit 1".encode()).fetchone():
            load(connection, arguments.jobs)
        if "pages" in wanted:
            found = connection.execute(f"select max(id) from {SCHEMA}._private_jobs".encode()).fetchone()
            measure_pages(found[0] if found else 1)
        if "actions" in wanted:
            measure_actions()
    if "statistics" in wanted:
        measure_statistics_buffer()


if __name__ == "__main__":
    main()
