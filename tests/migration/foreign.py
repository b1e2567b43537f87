"""A schema that another program made: graphile-worker's objects, and functions with other texts."""

from __future__ import annotations

from django_graphile_worker.sql.statements import ddl
from tests.support.worker_sql import WorkerSql

FUNCTIONS = """
create function {schema}.add_job(identifier text, payload json default null, queue_name text default null,
  run_at timestamptz default null, max_attempts integer default null, job_key text default null,
  priority integer default null, flags text[] default null, job_key_mode text default 'replace')
  returns {schema}._private_jobs language plpgsql as $$ begin raise 'Not ours: 100%%'; end $$;
create function {schema}.add_jobs(specs {schema}.job_spec[], job_key_preserve_run_at boolean default false)
  returns setof {schema}._private_jobs language plpgsql as $body$ begin raise 'Not "ours"\\'; end $body$;
create function {schema}.remove_job(job_key text)
  returns {schema}._private_jobs language plpgsql strict as $$ begin raise 'Not ours'; end $$;
create function {schema}.complete_jobs(job_ids bigint[])
  returns setof {schema}._private_jobs language sql as $$ select * from {schema}._private_jobs $$;
create function {schema}.permanently_fail_jobs(job_ids bigint[], error_message text default null)
  returns setof {schema}._private_jobs language sql as $$ select * from {schema}._private_jobs $$;
create function {schema}.reschedule_jobs(job_ids bigint[], run_at timestamptz default null,
  priority integer default null, attempts integer default null, max_attempts integer default null)
  returns setof {schema}._private_jobs language sql as $$ select * from {schema}._private_jobs $$;
create function {schema}.force_unlock_workers(worker_ids text[])
  returns void language sql as $$ select $$;
"""


def make_foreign_schema(worker: WorkerSql) -> None:
    """Create the schema as another program leaves it, with a task."""
    worker.query("create schema {schema}")
    worker.connection.execute(ddl("graphile_worker.sql", worker.schema).encode())
    worker.query(FUNCTIONS)
    worker.query("insert into {schema}._private_tasks (identifier) values ('task')")
