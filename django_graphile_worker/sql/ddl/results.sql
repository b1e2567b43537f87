/* gw:install */
-- What remains of jobs: results, which a task keeps for a while; history, a row for each
-- attempt; and the sessions that wait for a result.
--
-- "if not exists" keeps these indexes out of the list of indexes that a later migration
-- builds: their tables are new and empty.

-- The row of a job whose result is kept. It is written by the statement that ends an
-- attempt, so that no crash can part the two; no row is written when a job is added or
-- begins. While the job itself exists, the job tells whether it waits, runs or has failed
-- for good; this row tells of its earlier attempts.
create table :SCHEMA._private_results (
  job_id bigint constraint results_pkey primary key,
  task_identifier text not null,
  queue_name text,
  job_key text,
  -- 0: an attempt ended and the job waits for another one; 1: succeeded; 2: failed for
  -- good; 3: removed, it never runs again.
  status smallint not null constraint results_status_check check (status between 0 and 3),
  -- The job's revision: a job that was replaced under its key begins a new list of attempts.
  revision integer not null default 0,
  -- As text of JSON, only of tasks that ask for it.
  payload text,
  added_at timestamptz not null,
  -- Null if no worker told of a start: the job never ran, or its worker died.
  first_started_at timestamptz,
  last_started_at timestamptz,
  finished_at timestamptz,
  -- What the task returned, as text of JSON; null unless the job succeeded.
  value text,
  -- The attempts that have ended, the latest last: objects with worker_id, started_at,
  -- ended_at (seconds since the epoch), exception_class and traceback.
  attempts jsonb not null default '[]',
  expires_at timestamptz not null
);
alter table :SCHEMA._private_results enable row level security;
create index if not exists results_expires_at_index on :SCHEMA._private_results (expires_at);

-- Who waits for which result: the statement that ends a job for good notifies only of the
-- jobs in this table. A waiter commits its row before it reads the status.
create table :SCHEMA._private_waiters (
  job_id bigint not null,
  waiter text not null,
  -- A waiter that died leaves its row behind.
  expires_at timestamptz not null,
  constraint waiters_pkey primary key (job_id, waiter)
);
alter table :SCHEMA._private_waiters enable row level security;

-- One row for each attempt, written when it ends and never changed. A day is a partition,
-- and goes as a whole. Rows for which there is no partition go into the default partition,
-- so that a missing partition never keeps a job from ending.
create table :SCHEMA._private_history (
  ended_at timestamptz not null,
  -- Null if no worker told of it: the worker died, or an operator ended the job.
  started_at timestamptz,
  added_at timestamptz not null,
  run_at timestamptz not null,
  job_id bigint not null,
  attempt smallint not null,
  -- 1: succeeded; 2: failed, and is tried again; 3: failed for good; 4: interrupted by its
  -- worker, and returned; 5: lost with its worker; 6: removed or completed by an operator;
  -- 7: failed by an operator.
  outcome smallint not null,
  task_identifier text collate "C" not null,
  worker_id text collate "C",
  queue_name text collate "C",
  job_key text collate "C",
  error text,
  -- Text of JSON without secrets, only if the setting HISTORY_PAYLOADS asks for it.
  payload text
) partition by range (ended_at);
alter table :SCHEMA._private_history enable row level security;

-- While a day is written, this index of a few pages stands for the days, the ids and the
-- tasks of many rows together: nearly all ids grow with the time. It costs the writer next
-- to nothing, as a B-tree would cost as much as the row. The days that are over get
-- B-trees by job and by task, see history_partitions.sql.
create index if not exists history_ranges_index on :SCHEMA._private_history
  using brin (ended_at, job_id, task_identifier text_bloom_ops (n_distinct_per_range = 100)) with (pages_per_range = 32);
-- Jobs without a key or a queue, and successes, the many, pay nothing for these.
create index if not exists history_job_key_index on :SCHEMA._private_history (job_key, ended_at) where job_key is not null;
create index if not exists history_queue_index on :SCHEMA._private_history (queue_name, ended_at) where queue_name is not null;
create index if not exists history_trouble_index on :SCHEMA._private_history (ended_at) where outcome <> 1;

create table :SCHEMA._private_history_default partition of :SCHEMA._private_history default;
alter table :SCHEMA._private_history_default enable row level security;
