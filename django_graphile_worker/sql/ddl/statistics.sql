/* gw:install */
-- What the dashboard needs beside the queue itself: a small memory of what
-- workers have done, and two indexes over the jobs that have failed at least
-- once. A job that succeeds at its first attempt never enters either of them.

-- Per task and stretch of time, and under an empty name all tasks together. The
-- same jobs are in four resolutions (a minute, ten minutes, an hour, a day), of
-- which the finer ones are forgotten sooner: so a week's chart reads as few rows
-- as an hour's.
create table :SCHEMA._private_statistics (
  period_seconds integer not null,
  started_at timestamptz not null,
  task_identifier text not null,
  succeeded bigint not null default 0,
  failed bigint not null default 0,
  permanently_failed bigint not null default 0,
  interrupted bigint not null default 0,
  duration_seconds double precision not null default 0,
  wait_seconds double precision not null default 0,
  durations integer[] not null,
  waits integer[] not null,
  constraint statistics_pkey primary key (period_seconds, started_at, task_identifier)
) with (fillfactor = 60);
alter table :SCHEMA._private_statistics enable row level security;

-- What an error is called, without what differs from one job to the next: the
-- exception's name in Python, the beginning of the message elsewhere.
create function :SCHEMA._private_error_name(error text)
returns text language sql immutable parallel safe
return pg_catalog."left"(pg_catalog.regexp_replace(
    pg_catalog.split_part(pg_catalog.split_part(error, E'\n', 1), ':', 1), '[0-9]+', '#', 'g'), 120);

create index jobs_retried_index on :SCHEMA._private_jobs (task_id, is_available, run_at, id)
  where locked_at is null and attempts > 0;

-- When a job was changed last is when it failed, as long as nobody edits it after that.
create index jobs_failed_index on :SCHEMA._private_jobs (task_id, updated_at, id)
  where locked_at is null and attempts > 0 and not is_available;

create index jobs_errors_index on :SCHEMA._private_jobs (
  task_id, is_available, :SCHEMA._private_error_name(last_error), updated_at, id)
  where locked_at is null and attempts > 0;
