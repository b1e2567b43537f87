/* gw:install */
-- What identifies a claim, and what marks a claimed job as cancelled.

-- The worker of a lock. A worker of this package writes its id, a slash and the
-- number of its claim statement into locked_by; other workers write what they like.
-- A plain expression, so that PostgreSQL inlines it.
create function :SCHEMA._private_worker_of(locked_by text)
returns text language sql immutable parallel safe
return case
    when pg_catalog.starts_with(locked_by, 'django-worker-') then pg_catalog.split_part(locked_by, '/', 1)
    else locked_by
end;

-- A job that is removed or replaced while a worker holds it stays in its table until
-- the worker ends the claim. The marker says what happened to it. It counts only while
-- the job's locked_by is the one stated here; any other marker is stale and has no effect.
create table :SCHEMA._private_cancellations (
  job_id bigint not null,
  locked_by text not null,
  kind text not null constraint cancellations_kind_check check (kind in ('removed', 'replaced')),
  -- The job's attempts before the cancellation set them to max_attempts.
  attempts smallint not null,
  job_key text,
  cancelled_at timestamptz not null default pg_catalog.now(),
  constraint cancellations_pkey primary key (job_id, locked_by)
);
alter table :SCHEMA._private_cancellations enable row level security;
