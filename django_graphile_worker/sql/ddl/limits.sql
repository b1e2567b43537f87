/* gw:install */
-- Limits per key: how many jobs of a key run at once, how many start in a time, and which keys take turns.
--
-- A job of a limited task is added like any other job. A worker that has the task sorts it when it is due: it computes
-- the keys of the job, writes a row into _private_limited_jobs, and parks the job: run_at = 'infinity', which no claim
-- reads, neither of this package nor of graphile-worker. The claim of a limited job puts the true run_at back. Whatever
-- else changes a parked job (a replacement under its key, a reschedule, a retry) gives it a finite run_at, and it is
-- sorted again.
--
-- "if not exists" keeps these indexes out of the list of indexes that a later migration builds: their tables are new
-- and empty.

-- A key: the name of a limit, and the text that the payloads of its jobs make.
create table :SCHEMA._private_limit_keys (
  id bigint generated always as identity constraint limit_keys_pkey primary key,
  limit_name text not null,
  key_text text not null,
  -- A task has closed the key until then (LimitedUntil).
  closed_until timestamptz,
  -- How many jobs of the key have started so far: the number of the last row of _private_limit_starts.
  starts bigint not null default 0,
  -- When a job of the key may start again, if lanes wait for that: then a claim makes some of them ready.
  opens_at timestamptz,
  -- When a job last started that took the turn of the key.
  served_at timestamptz,
  created_at timestamptz not null default pg_catalog.now(),
  constraint limit_keys_name_text_key unique (limit_name, key_text)
) with (fillfactor = 50);
alter table :SCHEMA._private_limit_keys enable row level security;
create index if not exists limit_keys_opens_at_index on :SCHEMA._private_limit_keys (opens_at, id)
  where opens_at is not null;

-- A lane: the waiting jobs that have the task, the keys, the queue and the flags in common. Either all of them may be
-- claimed, up to a number, or none.
create table :SCHEMA._private_limit_lanes (
  id bigint generated always as identity constraint limit_lanes_pkey primary key,
  task_id int not null,
  -- A number that stands for the limits of the task in the code that sorted the jobs: other code may need other keys.
  shape int not null,
  -- In ascending order.
  key_ids bigint[] not null,
  -- 0 for no queue.
  queue_id int not null,
  -- An empty object for no flags.
  flags jsonb not null,
  -- The one of its keys that takes turns with others.
  turn_key bigint,
  -- 0: no job waits; 1: ready, a claim may take a job; 2: waits for a place or a start of the key blocked_by;
  -- 3: waits for its queue, or because a row was locked, at the latest until ready_at; 4: waits for the turn of its key,
  -- of which another lane is ready.
  state smallint not null constraint limit_lanes_state_check check (state between 0 and 4),
  blocked_by bigint,
  ready_at timestamptz,
  -- Since when it waits for the key, or for the queue.
  blocked_at timestamptz,
  -- Of the first job.
  priority smallint not null,
  head_run_at timestamptz not null,
  head_id bigint not null,
  -- Which lane of a task and a priority comes first: by the time when its key was last served if keys take turns, else
  -- the due time of the first job.
  turn timestamptz not null,
  -- When a job was last put into it, or its last job was taken.
  sorted_at timestamptz not null
) with (fillfactor = 50);
alter table :SCHEMA._private_limit_lanes enable row level security;
create unique index if not exists limit_lanes_identity_index on :SCHEMA._private_limit_lanes (
  task_id, shape, key_ids, queue_id, pg_catalog.md5(flags::pg_catalog.text));
create index if not exists limit_lanes_ready_index on :SCHEMA._private_limit_lanes (
  task_id, shape, priority, turn, id) where state = 1;
-- For workers with forbidden flags: they pass all lanes of a set of flags in one step.
create index if not exists limit_lanes_flags_index on :SCHEMA._private_limit_lanes (
  task_id, shape, flags, priority, turn, id) where state = 1;
create index if not exists limit_lanes_blocked_index on :SCHEMA._private_limit_lanes (
  blocked_by, task_id, priority, turn, id) where state = 2;
create index if not exists limit_lanes_ready_at_index on :SCHEMA._private_limit_lanes (ready_at, id) where state = 3;
-- The lanes of a queue from which a job could start if the queue were free.
create index if not exists limit_lanes_queue_index on :SCHEMA._private_limit_lanes (
  queue_id, task_id, shape, flags, priority, head_run_at, head_id) where queue_id > 0 and state in (1, 3, 4);
create index if not exists limit_lanes_turn_index on :SCHEMA._private_limit_lanes (
  turn_key, task_id, shape, flags, state, priority, head_run_at, head_id)
  where turn_key is not null and state in (1, 4);
create index if not exists limit_lanes_empty_index on :SCHEMA._private_limit_lanes (sorted_at, id) where state = 0;

-- Which lanes have a key: a key that no lane has can be deleted.
create table :SCHEMA._private_limit_lane_keys (
  key_id bigint not null,
  lane_id bigint not null,
  constraint limit_lane_keys_pkey primary key (key_id, lane_id)
);
alter table :SCHEMA._private_limit_lane_keys enable row level security;

-- A parked job: its row in _private_jobs has run_at = 'infinity'.
create table :SCHEMA._private_limited_jobs (
  job_id bigint constraint limited_jobs_pkey primary key,
  lane_id bigint not null,
  task_id int not null,
  priority smallint not null,
  -- The true one.
  run_at timestamptz not null,
  -- Of the job when its keys were computed: another revision may have other keys.
  revision int not null,
  -- When the job expires by its own flag; infinity if it has been started before. Null if that is up to its task.
  expires_at timestamptz,
  parked_at timestamptz not null default pg_catalog.clock_timestamp()
);
alter table :SCHEMA._private_limited_jobs enable row level security;
create index if not exists limited_jobs_lane_index on :SCHEMA._private_limited_jobs (lane_id, priority, run_at, job_id);
create index if not exists limited_jobs_task_index on :SCHEMA._private_limited_jobs (task_id, job_id);

-- A place of a key with a limit of concurrency, taken by the claim of a job. It counts only while the row of the job
-- has the token as its locked_by. So whatever ends the claim frees the place, nothing frees it twice, and no count can
-- drift.
create table :SCHEMA._private_limit_places (
  key_id bigint not null,
  job_id bigint not null,
  token text not null,
  taken_at timestamptz not null,
  constraint limit_places_pkey primary key (key_id, job_id)
);
alter table :SCHEMA._private_limit_places enable row level security;
create index if not exists limit_places_job_index on :SCHEMA._private_limit_places (job_id);

-- The starts of a key with a rate, numbered, as long as they are needed: the next job may start when the window of the
-- start that is so many numbers before it is over.
create table :SCHEMA._private_limit_starts (
  key_id bigint not null,
  number bigint not null,
  started_at timestamptz not null,
  constraint limit_starts_pkey primary key (key_id, number)
);
alter table :SCHEMA._private_limit_starts enable row level security;

-- Whoever may change jobs may also claim limited jobs: the roles that had this right before these tables existed, and
-- the policies are for roles that get it later.
do $do$
declare
  limits_table text;
  role text;
begin
  foreach limits_table in array array[
    '_private_limit_keys', '_private_limit_lanes', '_private_limit_lane_keys', '_private_limited_jobs',
    '_private_limit_places', '_private_limit_starts', '_private_limit_overrides']
  loop
    execute format('create policy %I on :SCHEMA.%I using (true) with check (true)', 'limits_by_grant', limits_table);
    for role in
      select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end
      from pg_class as jobs
        cross join lateral aclexplode(jobs.relacl) as granted
      where jobs.oid = ':SCHEMA._private_jobs'::regclass
        and granted.privilege_type = 'UPDATE'
        and granted.grantee <> jobs.relowner
      group by granted.grantee
    loop
      execute format('grant select, insert, update, delete on :SCHEMA.%I to %s', limits_table, role);
    end loop;
  end loop;
end
$do$;
