"""A database of the demo site with jobs of every state, with and without a queue, of 71 tasks and 5,000 queues.

It also has schedules with twenty runs each. Most runs have succeeded; the last run of one in a hundred has failed for
good, and that of as many waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.database import SCHEMA, server_url

# The number of tasks is prime, so that every task has jobs of every kind, and every queue has jobs of every task. The
# tasks of the demo itself are left out, so that the jobs are the same whatever the demo has.
TASKS = 71
LOAD = f"""
insert into {SCHEMA}._private_tasks (identifier) select 'task_' || n from generate_series(1, {TASKS}) as n;
insert into {SCHEMA}._private_job_queues (queue_name) select 'queue_' || n from generate_series(1, 5000) as n;
create temporary table task as select id, row_number() over (order by id) as number from {SCHEMA}._private_tasks
    where identifier like 'task\\_%%';
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
select period, 'task', to_timestamp(floor(extract(epoch from now()) / period) * period - period * back),
    'task_' || number, array[100, 3, 1, 0, 0, 10, 0, 0, 0, 0] || array_fill(5, array[96])
from (values (60, 120), (600, 156), (3600, 192)) as resolution (period, kept),
    generate_series(0, kept - 1) as back, generate_series(1, {TASKS}) as number;
"""

LOAD_SCHEDULES = f"""
insert into {SCHEMA}._private_schedules (name, task, cron, time_zone, description, is_enabled, paused_until)
select 'Report of tenant ' || n, 'task_' || 1 + n %% 20, n %% 60 || ' ' || n %% 24 || ' * * *',
    (array['UTC', 'Europe/Berlin', 'America/New_York'])[1 + n %% 3], 'For the owner of shop ' || n, n %% 31 > 0,
    case when n %% 37 = 0 then now() + interval '1 day' end
from generate_series(1, %(number)s) as n;
create temporary table schedule as
select id, row_number() over (order by id) as number from {SCHEMA}._private_schedules;
create temporary table last_job as with made as (
    insert into {SCHEMA}._private_jobs (task_id, run_at, attempts, max_attempts, last_error)
    select (select min(id) from {SCHEMA}._private_tasks), now() + interval '1 hour', n %% 2 * 25, 25,
        case when n %% 2 = 1 then 'ValueError: order ' || n end
    from generate_series(1, %(number)s / 50) as n returning id
) select id, row_number() over (order by id) as number from made;
create temporary table run as
select schedule.id as schedule_id, schedule.number, age, last_job.id is not null as is_job,
    now() - age * interval '1 day' as tick,
    coalesce(last_job.id, (select max(id) from last_job) + (20 - age) * %(number)s + schedule.number) as job_id
from generate_series(0, 19) as age cross join schedule
left join last_job on age = 0 and schedule.number = last_job.number * 50
order by age desc, schedule.number;
insert into {SCHEMA}._private_results (
    job_id, task_identifier, status, added_at, first_started_at, last_started_at, finished_at, attempts, expires_at)
select job_id, 'task_1', case when number %% 500 = age then 2 else 1 end, tick, tick, tick, tick + interval '2 s',
    jsonb_build_array(jsonb_build_object('worker_id', 'worker-1', 'started_at', extract(epoch from tick),
        'ended_at', extract(epoch from tick) + 2)), now() + interval '25 days'
from run where not is_job order by job_id;
insert into {SCHEMA}._private_schedule_runs (schedule_id, tick, job_id, kind, added_at)
select schedule_id, tick, job_id, 'on_time', tick from run order by age desc, number;
update {SCHEMA}._private_schedules as schedule
set last_tick = run.tick, last_job_id = run.job_id, next_at = run.tick + interval '1 day',
    last_missed_at = case when number %% 83 = 0 then now() - interval '1 hour' end
from run where run.schedule_id = schedule.id and run.age = 0;
"""


@contextmanager
def scratch_site(kept: str | None) -> Iterator[psycopg.Connection[Any]]:
    """Create a database of the demo site, and drop it afterwards unless it is to be kept."""
    server = server_url()
    name = kept or f"benchmark_admin_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as maintenance:
        if not maintenance.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
            maintenance.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        try:
            url = make_conninfo(server, dbname=name)
            os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "testproject.settings", "DEBUG": "0"}
            # Late import: the settings must be named first.
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
    """Fill the tables, then build the indexes, in one transaction, so that the write-ahead log stays small."""
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


def load_schedules(connection: psycopg.Connection[Any], number: int) -> None:
    """Add schedules that have run for twenty days."""
    with connection.transaction():
        for statement in LOAD_SCHEDULES.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode(), {"number": number} if "%" in statement else None)
    for table in ("schedules", "schedule_runs", "results"):
        connection.execute(f"vacuum analyze {SCHEMA}._private_{table}".encode())
