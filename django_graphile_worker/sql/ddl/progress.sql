/* gw:install */
-- How far a task has got, for jobs whose task reports it. Each report overwrites the last one, in place: half of
-- each page stays free for it. A row stays as long as its job, or the result of its job.
create table :SCHEMA._private_progress (
  job_id bigint constraint progress_pkey primary key,
  -- The attempt that reported it: a later attempt begins without progress.
  attempt smallint not null,
  done double precision not null,
  total double precision,
  message text not null,
  updated_at timestamptz not null
) with (fillfactor = 50);
alter table :SCHEMA._private_progress enable row level security;

-- The newest attempts, of all tasks. Rows are appended in the order of time, which costs this index the least.
create index if not exists history_ended_at_index on :SCHEMA._private_history (ended_at);

-- The indexes that days get when they are over, for the rows that have no partition of their own. A search can use
-- those of the days only if every partition that it reads has one.
create index if not exists history_default_job_id_index on :SCHEMA._private_history_default (job_id);
create index if not exists history_default_task_index on :SCHEMA._private_history_default (task_identifier, ended_at);
create index if not exists history_default_payload_index on :SCHEMA._private_history_default
  using gin (pg_catalog.to_tsvector('pg_catalog.simple'::pg_catalog.regconfig, pg_catalog.left(payload, 20000)))
  where payload is not null;
