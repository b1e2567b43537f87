/* gw:install */
-- Requests to stop jobs that run. A row is written by the call that cancels the job, in its
-- transaction, and deleted by the statement that ends the claim. It counts only while the
-- job's locked_by is the token stated here; any other row is settled, and is deleted later.
create table :SCHEMA._private_stop_requests (
  job_id bigint not null,
  token text not null,
  -- The worker of the token.
  worker_id text not null,
  reason text not null default '',
  requested_by text not null default '',
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint stop_requests_pkey primary key (job_id, token)
);
alter table :SCHEMA._private_stop_requests enable row level security;
