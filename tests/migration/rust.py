"""What graphile_worker for Rust adds to a schema: its names, and functions that do nothing."""

from __future__ import annotations

from tests.support.worker_sql import WorkerSql

# Its migration 20: the register of workers, and the recovery.
RECOVERY = """
create table {schema}._private_workers (
  id text primary key, last_heartbeat_at timestamptz not null, started_at timestamptz not null default now(),
  metadata jsonb);
create index on {schema}._private_workers (last_heartbeat_at);
create function {schema}.worker_heartbeat(text, json) returns void language sql as $$ select $$;
create function {schema}.worker_deregister(text) returns void language sql as $$ select $$;
create function {schema}.list_stale_workers(interval) returns setof text language sql as $$ select 'id' $$;
create function {schema}.list_orphan_locked_workers(interval) returns setof text language sql as $$ select 'id' $$;
create function {schema}.recover_dead_worker_jobs(text[], interval) returns integer language sql as $$ select 1 $$;
create function {schema}.delete_stale_workers(text[]) returns void language sql as $$ select $$;
"""
# Its migrations 21 and 22: marks on jobs, and other texts of public functions.
RETIREMENTS = """
create table {schema}._private_job_retirements (
  id bigint primary key references {schema}._private_jobs (id) on delete cascade);
create or replace function {schema}.remove_job(job_key text)
  returns {schema}._private_jobs language plpgsql strict as $$ begin raise 'Rust'; end $$;
create or replace function {schema}.recover_dead_worker_jobs(text[], interval) returns integer
  language sql as $$ select 1 $$;
create function {schema}._private_return_jobs(text, bigint[], bigint, text, boolean) returns void
  language sql as $$ select $$;
insert into {schema}.migrations (id) values (21), (22);
"""
# As the guide lists it.
DROP_RECOVERY = """
drop table {schema}._private_workers;
drop function {schema}.worker_heartbeat, {schema}.worker_deregister, {schema}.list_stale_workers,
  {schema}.list_orphan_locked_workers, {schema}.recover_dead_worker_jobs, {schema}.delete_stale_workers;
"""


def add_recovery(worker: WorkerSql) -> None:
    worker.query(RECOVERY)


def add_retirements(worker: WorkerSql) -> None:
    worker.query(RETIREMENTS)
