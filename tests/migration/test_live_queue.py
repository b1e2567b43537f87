"""A queue that is adopted, and migrated back, while graphile-worker runs its jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connections

from tests.migration.conftest import Site
from tests.migration.foreign import make_foreign_schema
from tests.support.worker_sql import WorkerSql

Wait = Callable[..., None]

# The statements of graphile-worker that claim and complete a job: each locks both tables.
FETCH = """with chosen as (
  select jobs.job_queue_id, jobs.id from {schema}._private_jobs as jobs
  where jobs.is_available and jobs.run_at <= now() and (jobs.job_queue_id is null or jobs.job_queue_id in (
    select id from {schema}._private_job_queues as queues where queues.is_available for update skip locked))
  order by priority, run_at limit 1 for update skip locked
), taken as (
  update {schema}._private_job_queues as queues set locked_by = 'node', locked_at = now()
  from chosen where queues.id = chosen.job_queue_id
)
update {schema}._private_jobs as jobs set attempts = jobs.attempts + 1, locked_by = 'node', locked_at = now()
from chosen where jobs.id = chosen.id returning jobs.id"""
COMPLETE = """with done as (
  delete from {schema}._private_jobs as jobs where jobs.id = %s returning jobs.job_queue_id
)
update {schema}._private_job_queues as queues set locked_by = null, locked_at = null
from done where queues.id = done.job_queue_id and queues.locked_by = 'node'"""
TOUCH = {
    "jobs": "update {schema}._private_jobs set revision = revision",
    "queues": "update {schema}._private_job_queues set locked_at = null",
}


@pytest.fixture
def foreign(worker: WorkerSql) -> WorkerSql:
    """A schema that another program made, with jobs in queues and without."""
    make_foreign_schema(worker)
    worker.query(
        "insert into {schema}._private_job_queues (queue_name) select 'q' || n from generate_series(1, 20) as n"
    )
    worker.query(
        "insert into {schema}._private_jobs (task_id, job_queue_id)"
        " select 1, case when n % 2 = 0 then 1 + n % 20 end from generate_series(1, 4000) as n"
    )
    return worker


@contextmanager
def migrating(site: Site, *target: str) -> Iterator[Future[None]]:
    """Run a migrate in a thread."""

    def migrate() -> None:
        try:
            site.migrate(*target)
        finally:
            connections[site.alias].close()

    with ThreadPoolExecutor() as threads:
        yield threads.submit(migrate)


def deadlocks(worker: WorkerSql) -> int:
    worker.query("select pg_stat_clear_snapshot()")
    return int(worker.value("select deadlocks from pg_stat_database where datname = current_database()"))


@pytest.mark.parametrize("order", [("queues", "jobs"), ("jobs", "queues")], ids=" then ".join)
@pytest.mark.parametrize("target", [(), ("zero",)], ids=["adopt", "migrate back"])
def test_migrations__hold_no_lock_on_a_table_while_they_wait_for_another(
    site: Site, foreign: WorkerSql, wait_until: Wait, order: tuple[str, str], target: tuple[str, ...]
) -> None:
    if target:
        site.migrate()
    with site.connect(autocommit=False) as holder, holder.cursor() as cursor:
        holding = WorkerSql(holder, site.schema)
        cursor.execute("set lock_timeout = '30s'")
        holding.query(TOUCH[order[0]])
        waits = "select exists (select from pg_stat_activity where %s = any(pg_blocking_pids(pid)))"
        with migrating(site, *target) as under_way:
            wait_until(lambda: foreign.value(waits, holder.info.backend_pid) or under_way.done())
            assert not under_way.done()
            holding.query(TOUCH[order[1]])
            holder.commit()
            under_way.result(60)


class NodeLike:
    """A worker that claims and completes jobs with the statements of graphile-worker."""

    def __init__(self, site: Site, stop: threading.Event) -> None:
        self.site = site
        self.stop = stop
        self.errors: list[Exception] = []
        self.completed = 0
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        with self.site.connect(options="-c deadlock_timeout=50ms") as connection:
            worker = WorkerSql(connection, self.site.schema)
            while not self.stop.is_set():
                try:
                    for row in worker.query(FETCH):
                        worker.query(COMPLETE, row["id"])
                        self.completed += 1
                except psycopg.Error as error:
                    self.errors.append(error)


def test_queue_under_load__is_adopted_and_migrated_back_without_a_deadlock(
    site: Site, foreign: WorkerSql, wait_until: Wait
) -> None:
    stop = threading.Event()
    before = deadlocks(foreign)
    workers = [NodeLike(site, stop) for _ in range(3)]
    for each in workers:
        each.thread.start()
    try:
        wait_until(lambda: all(each.completed for each in workers))
        for target in ((), ("zero",), (), ("zero",)):
            site.migrate(*target)
    finally:
        stop.set()
        for each in workers:
            each.thread.join(60)

    assert [error for each in workers for error in each.errors] == []
    assert deadlocks(foreign) == before


ADD_JOB = """create or replace function {schema}.add_job(identifier text, payload json default null,
  queue_name text default null, run_at timestamptz default null, max_attempts integer default null,
  job_key text default null, priority integer default null, flags text[] default null,
  job_key_mode text default 'replace') returns {schema}._private_jobs language sql as $$
  insert into {schema}._private_jobs (task_id, max_attempts) values (1, 1) returning * $$"""


ADD_JOBS = """create or replace function {schema}.add_jobs(specs {schema}.job_spec[],
  job_key_preserve_run_at boolean default false) returns setof {schema}._private_jobs language sql as $$
  insert into {schema}._private_jobs (task_id, max_attempts) values (1, 1) returning * $$"""
ADD_KEYED = "select {schema}.add_jobs(array[('task', null, null, null, null, 'key', null, null)::{schema}.job_spec])"


class Adder:
    """A session that adds jobs with the SQL functions, with keys and without, several in each transaction."""

    def __init__(self, site: Site, stop: threading.Event) -> None:
        self.site = site
        self.stop = stop
        self.errors: list[Exception] = []
        self.added = 0
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        with self.site.connect() as connection:
            worker = WorkerSql(connection, self.site.schema)
            while not self.stop.is_set():
                try:
                    with connection.transaction():
                        for key in (None, None, "key"):
                            worker.query("select {schema}.add_job('task', job_key => %s)", key)
                except psycopg.Error as error:
                    self.errors.append(error)
                self.added += 1


def test_sessions_that_add_jobs__have_no_error_while_the_queue_is_migrated_back(
    site: Site, foreign: WorkerSql, wait_until: Wait
) -> None:
    foreign.query(ADD_JOB)
    stop = threading.Event()
    adders = [Adder(site, stop) for _ in range(4)]
    site.migrate()
    for each in adders:
        each.thread.start()
    try:
        wait_until(lambda: all(each.added for each in adders))
        site.migrate("zero")
        added = [each.added for each in adders]
        wait_until(lambda: all(each.added > number for each, number in zip(adders, added, strict=True)))
    finally:
        stop.set()
        for each in adders:
            each.thread.join(60)

    assert [str(error) for each in adders for error in each.errors] == []


@pytest.mark.parametrize(
    "first", ["add_job('task')", pytest.param("remove_job('no such key')", marks=pytest.mark.chaos)]
)
def test_transaction_that_has_called_a_function__adds_jobs_while_the_queue_is_migrated_back(
    site: Site, foreign: WorkerSql, wait_until: Wait, first: str
) -> None:
    """PostgreSQL may run the texts of functions that a transaction knows until it ends."""
    foreign.query(ADD_JOB)
    foreign.query(ADD_JOBS)
    site.migrate()
    site.migrate("0003")
    with site.connect(autocommit=False) as holder:
        holding = WorkerSql(holder, site.schema)
        holding.query(ADD_KEYED)
        holder.commit()
        holding.query(f"select {{schema}}.{first}")
        waits = "select exists (select from pg_stat_activity where %s = any(pg_blocking_pids(pid)))"
        with migrating(site, "0001") as under_way:
            wait_until(lambda: foreign.value(waits, holder.info.backend_pid) or under_way.done())
            holding.query(ADD_KEYED)
            holder.commit()
            under_way.result(60)
