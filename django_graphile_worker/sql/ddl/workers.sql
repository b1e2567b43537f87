-- What the worker needs beside the original schema: its register of live
-- processes, a memory of jobs that took their worker down, and the indexes
-- that keep a claim flat under any backlog.

create table :SCHEMA._private_workers (
    id text constraint workers_pkey primary key,
    last_heartbeat_at timestamptz not null default pg_catalog.now(),
    started_at timestamptz not null default pg_catalog.now(),
    metadata jsonb not null default '{}'
);
alter table :SCHEMA._private_workers enable row level security;

-- A row per job that was running when its worker died. Three such deaths and
-- the lost attempt is no longer given back.
create table :SCHEMA._private_job_recoveries (
    job_id bigint constraint job_recoveries_pkey primary key,
    recoveries smallint not null default 1,
    last_recovered_at timestamptz not null default pg_catalog.now()
);
alter table :SCHEMA._private_job_recoveries enable row level security;

-- Led by the task, so that tasks nobody here knows cost nothing; then the order
-- of the claim, so that future jobs lie beyond the end of the range.
create index jobs_unqueued_index on :SCHEMA._private_jobs (task_id, priority, run_at, id)
    where is_available and job_queue_id is null and flags is null;

-- Flagged jobs live apart: unflagged ones, the many, pay nothing for them, and a
-- worker that forbids a flag steps over a whole flag set at once.
create index jobs_flagged_index on :SCHEMA._private_jobs (task_id, priority, run_at, id)
    where is_available and job_queue_id is null and flags is not null;
create index jobs_flag_sets_index on :SCHEMA._private_jobs (task_id, flags, priority, run_at, id)
    where is_available and job_queue_id is null and flags is not null;

-- Queued jobs twice: by due time, to find the queues whose turn it is, and by
-- queue, to run a stretch of one or to step over those that are busy.
create index jobs_queued_index on :SCHEMA._private_jobs (task_id, priority, run_at, id) include (job_queue_id)
    where is_available and job_queue_id is not null;
create index jobs_by_queue_index on :SCHEMA._private_jobs (task_id, job_queue_id, priority, run_at, id)
    where is_available and job_queue_id is not null;

-- The rows in hand, oldest first: for the sweep and the admin. Led by the time,
-- because all rows of one claim share it and the index stays small and cheap.
create index jobs_locked_index on :SCHEMA._private_jobs (locked_at)
    where locked_at is not null;
create index job_queues_locked_index on :SCHEMA._private_job_queues (locked_at)
    where locked_at is not null;
