/* gw:install */
-- The tables of this package beside those of graphile-worker. Row-level security keeps them from roles that have only a
-- grant on all tables of the schema; the policies "by_grant" are for tables that roles may get rights to, see grants.sql.

-- A claim looks for jobs on these terms; see claims.sql.
create type :SCHEMA._private_claim_terms as (
  known_tasks int[],
  limited_tasks int[],
  forbidden_flags text[],
  per_queue int,
  moment timestamptz,
  seen_until timestamptz,
  running xid[],
  max_steps int
);

-- A job that can be claimed; tid is null where it stands for its queue.
create type :SCHEMA._private_candidate as (tid tid, queue_id int, priority int, run_at timestamptz, id bigint);

-- The first jobs of queues that were found otherwise than by their due jobs. Behind which queue steps over held queues
-- go on, null behind the last; whether they are made, or may not be made; and whether they are not enough, because free
-- queues may have jobs behind many with forbidden flags.
create type :SCHEMA._private_steps as (
  heads :SCHEMA._private_candidate[],
  after_queue int,
  are_made boolean,
  are_not_enough boolean
);

-- Behind which job of a priority a claim goes on, and behind which of those in queues.
create type :SCHEMA._private_place as (
  priority int,
  run_at timestamptz,
  id bigint,
  queued_run_at timestamptz,
  queued_id bigint
);

-- Where a claim goes on. "queue": behind which queue steps over held queues go on, 0 for the first; null: none are made.
-- On priorities below seen_priority that have no place here, it goes on at seen_until. "sees_queues": the claims of this
-- pass look behind the first jobs in queues, because steps are not enough.
create type :SCHEMA._private_continuation as (
  places :SCHEMA._private_place[],
  queue int,
  seen_priority int,
  seen_until timestamptz,
  sees_queues boolean
);

-- The processes of workers that are alive.
create table :SCHEMA._private_workers (
  id text constraint workers_pkey primary key,
  last_heartbeat_at timestamptz not null default pg_catalog.now(),
  started_at timestamptz not null default pg_catalog.now(),
  metadata jsonb not null default '{}',
  -- What a worker promises: to beat every heartbeat_seconds, and to be dead if it has not beaten for timeout_seconds.
  -- Null for a worker of graphile_worker for Rust, which beats every 30 seconds and calls others dead after five minutes.
  timeout_seconds float8,
  heartbeat_seconds float8
);

-- A row per job that was running when its worker died. Three such deaths and
-- the lost attempt is no longer given back.
create table :SCHEMA._private_job_recoveries (
  job_id bigint constraint job_recoveries_pkey primary key,
  recoveries smallint not null default 1
);

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

-- How jobs are cancelled. A job that waits is deleted. A job that runs stays until its worker has stopped it: it gets a
-- marker in _private_cancellations and a request in the table below.
--
-- The marker (kind 'removed') is that of remove_job(): the job has lost its key and the attempts that it had left. So
-- no statement that ends its claim, of any version and also of Node.js, lets it run again: a failure is final, and a
-- job that is returned or recovered is deleted. The marker tells no worker to stop.
--
-- The request tells the worker to stop the run, and keeps who asked for it and why. The statements that end claims look
-- for it and then end the job as cancelled, whatever else they were called for.

create table :SCHEMA._private_stop_requests (
  job_id bigint not null,
  -- The request counts only while this is the job's locked_by; any other request is settled, and is deleted later.
  token text not null,
  -- The worker of the token.
  worker_id text not null,
  reason text not null default '',
  requested_by text not null default '',
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint stop_requests_pkey primary key (job_id, token)
);

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

-- What remains of jobs: results, which a task keeps for a while; history, a row for each
-- attempt; and the sessions that wait for a result.

-- The row of a job whose result is kept. It is written by the statement that ends an
-- attempt, so that no crash can part the two; no row is written when a job is added or
-- begins. While the job itself exists, the job tells whether it waits, runs or has failed
-- for good; this row tells of its earlier attempts.
create table :SCHEMA._private_results (
  job_id bigint constraint results_pkey primary key,
  task_identifier text not null,
  queue_name text,
  job_key text,
  -- 0: an attempt ended and the job waits for another one; 1: succeeded; 2: failed for good; 3: removed, it never runs
  -- again; 4: cancelled, "value" then has who cancelled the job and why, as JSON: {"by": text, "reason": text};
  -- 5: it was not started in time.
  status smallint not null constraint results_status_check check (status between 0 and 9),
  -- The job's revision: a job that was replaced under its key begins a new list of attempts.
  revision integer not null default 0,
  -- As text of JSON, only of tasks that ask for it.
  payload text,
  added_at timestamptz not null,
  -- Null if no worker reported a start: the job never ran, or its worker died.
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
create index results_expires_at_index on :SCHEMA._private_results (expires_at);

-- Who waits for which result: the statement that ends a job for good notifies only of the
-- jobs in this table. A waiter commits its row before it reads the status.
create table :SCHEMA._private_waiters (
  job_id bigint not null,
  waiter text not null,
  -- A waiter that died leaves its row behind.
  expires_at timestamptz not null,
  constraint waiters_pkey primary key (job_id, waiter)
);

-- One row for each attempt, written when it ends and never changed. A day is a partition,
-- and goes as a whole. Rows for which there is no partition go into the default partition,
-- so that a missing partition never keeps a job from ending.
create table :SCHEMA._private_history (
  ended_at timestamptz not null,
  -- Null if no worker reported it: the worker died, or an operator ended the job.
  started_at timestamptz,
  added_at timestamptz not null,
  run_at timestamptz not null,
  job_id bigint not null,
  attempt smallint not null,
  -- 1: succeeded; 2: failed, and is tried again; 3: failed for good; 4: interrupted by its
  -- worker, and returned; 5: lost with its worker; 6: removed or completed by an operator;
  -- 7: failed by an operator; 8: cancelled; 9: not started in time.
  outcome smallint not null,
  task_identifier text collate "C" not null,
  worker_id text collate "C",
  queue_name text collate "C",
  job_key text collate "C",
  error text,
  -- Text of JSON without secrets, only if the setting HISTORY_PAYLOADS asks for it.
  payload text
) partition by range (ended_at);

-- While a day is written, this index of a few pages stands for the days, the ids and the
-- tasks of many rows together: nearly all ids grow with the time. It costs the writer next
-- to nothing, as a B-tree would cost as much as the row. The days that are over get
-- B-trees by job and by task, see history.sql. No B-tree of the times:
-- the BRIN index finds the rows of a span of time, and a search for the newest rows finds a span that has enough of them.
create index history_ranges_index on :SCHEMA._private_history
  using brin (ended_at, job_id, task_identifier text_bloom_ops (n_distinct_per_range = 100)) with (pages_per_range = 32);

-- Jobs without a key or a queue, and successes, the many, pay nothing for these.
create index history_job_key_index on :SCHEMA._private_history (job_key, ended_at) where job_key is not null;
create index history_queue_index on :SCHEMA._private_history (queue_name, ended_at) where queue_name is not null;
create index history_trouble_index on :SCHEMA._private_history (ended_at) where outcome <> 1;

create table :SCHEMA._private_history_default partition of :SCHEMA._private_history default;

-- The indexes that days get when they are over, for the rows that have no partition of their own. A search can use
-- those of the days only if every partition that it reads has one.
create index history_default_job_id_index on :SCHEMA._private_history_default (job_id);
create index history_default_task_index on :SCHEMA._private_history_default (task_identifier, ended_at);
create index history_default_payload_index on :SCHEMA._private_history_default
  using gin (pg_catalog.to_tsvector('pg_catalog.simple'::pg_catalog.regconfig, pg_catalog.left(payload, 20000)))
  where payload is not null;
-- The default partition is deleted from by time, and its BRIN index is summarized by autovacuum only.
create index history_default_ended_at_index on :SCHEMA._private_history_default (ended_at);

-- An attempt that has ended, or a job that ended without one, as _private_record_attempts takes it.
create type :SCHEMA._private_ended_attempt as (
  -- The row of the job as it was before. The token is that of the claim; null if no worker held the job.
  job_id bigint, task_id integer, job_queue_id integer, revision integer, added_at timestamptz, run_at timestamptz,
  attempts smallint, max_attempts smallint, job_key text, token text,
  -- Null if the caller does not know it.
  task_identifier text,
  -- Those of the history and of the results; the status is null if there is nothing to say in the result.
  outcome smallint, status smallint, started_at timestamptz, ended_at timestamptz, error text, exception_class text,
  value text, kept_payload text, history_payload text,
  -- For how many seconds the result is kept; null for as long as the settings say.
  keep float8
);

-- Unique jobs. The entry of a key counts while its job waits or runs, and for callers that give a time, while the job was
-- added within this time. It says nothing about other jobs: whoever ends a job, Node.js for example, need not know it.
create table :SCHEMA._private_unique_jobs (
  identifier text not null,
  unique_key text not null,
  -- Null only in the transaction that inserts the entry.
  job_id bigint,
  added_at timestamptz not null default pg_catalog.clock_timestamp(),
  -- When a worker looks whether the entry can be deleted.
  until timestamptz not null default pg_catalog.clock_timestamp(),
  constraint unique_jobs_pkey primary key (identifier, unique_key)
);
create index unique_jobs_until on :SCHEMA._private_unique_jobs (until);

-- What the charts and the tables of the admin show beside the jobs themselves: counts of jobs that have ended, and
-- samples of how many jobs there are.

-- The counts of a name in one period: of a task, a queue or a worker, or (kind "all", with an empty name) of all jobs
-- together. The same jobs are counted in four resolutions (a minute, ten minutes, an hour, a day), and the finer ones are
-- deleted sooner: a chart of a week reads as few rows as one of an hour. A site may have any number of queues and
-- workers: each period has rows for a limited number of names, and with an empty name a row for all others together.
create table :SCHEMA._private_statistics (
  period_seconds integer not null,
  kind text collate "C" not null constraint statistics_kind_check check (kind in ('all', 'task', 'queue', 'worker')),
  started_at timestamptz not null,
  name text collate "C" not null,
  -- What is counted, by its place; sql/statistics.py has the same list. The array ends with the last number
  -- that is not zero.
  --   1        runs that succeeded
  --   2        runs that failed, of jobs with attempts left
  --   3        runs that failed permanently
  --   4        runs that were interrupted
  --   5        jobs that were not started in time; not counted for queues and workers
  --   6        microseconds of all runs that ended
  --   7 to 10  free
  --   11 to 58, 59 to 106
  --            histograms of how long the runs took, and of how long their jobs had been due when they started. The
  --            first bucket ends at half a millisecond, and each further one spans half an octave.
  counts bigint[] not null,
  constraint statistics_pkey primary key (period_seconds, kind, started_at, name)
) with (fillfactor = 60);

-- Workers do not write into the statistics themselves: all of them would wait for the same few rows. Each adds what it
-- has counted as a row here, for which no other session waits, and every few seconds one worker adds up the rows of all.
-- A row without counts says when that was done last.
create table :SCHEMA._private_statistics_pending (
  id bigint generated always as identity constraint statistics_pending_pkey primary key,
  recorded_at timestamptz not null default pg_catalog.clock_timestamp(),
  -- An array of objects: kind, name, minute (its start in seconds since 1970), and the places and numbers of its counts.
  counted json
);

-- One row for each minute in which a worker was running: how many jobs were in each state.
create table :SCHEMA._private_backlog_samples (
  minute timestamptz constraint backlog_samples_pkey primary key,
  sampled_at timestamptz not null,
  ready bigint not null default 0,
  scheduled bigint not null default 0,
  running bigint not null default 0,
  retrying bigint not null default 0,
  permanently_failed bigint not null default 0,
  -- The states whose number is an estimate, because there are too many jobs to count.
  estimated text[] not null default '{}',
  -- The last id that the sequence of the jobs has given out; null if the role of the worker may not read it.
  last_job_id bigint,
  -- By the identifier of the task: how many jobs are ready, retrying and permanently failed. Only tasks with many jobs,
  -- and only in the latest sample.
  tasks json
);

-- Events: what happened to workers, schedules, pauses and locks, for operators that look at it later.
--
-- An event is written by the statement that makes the change of which it tells, so the two are committed together, and
-- the row locks that let one worker win the change let one worker write the event. An event must never cost the change:
-- _private_add_event writes it in a subtransaction, waits for no lock longer than half a second, and turns an error
-- into a warning in the server's log.
--
-- The number of rows is bounded. If there are ten events of one kind and subject within an hour, further ones are
-- counted in the newest of them. Workers delete old rows, and the oldest of too many.
create table :SCHEMA._private_events (
  id bigint generated always as identity constraint events_pkey primary key,
  kind text not null,
  -- 1: information, 2: warning, 3: error.
  severity smallint not null,
  -- The host, queue, task, flag or crontab item that the event is about.
  subject text not null,
  worker_id text,
  -- Not null for an event that several workers find: the first of them writes it.
  identity text,
  first_at timestamptz not null,
  last_at timestamptz not null,
  number int not null default 1,
  details jsonb not null,
  dismissed_at timestamptz,
  dismissed_by text
);
create index events_last_at_index on :SCHEMA._private_events (last_at, id);
create index events_subject_index on :SCHEMA._private_events (kind, subject, last_at);
create index events_worker_index on :SCHEMA._private_events (worker_id, id) where worker_id is not null;
create index events_alarm_index on :SCHEMA._private_events (last_at) where severity > 1 and dismissed_at is null;
create unique index events_identity_index on :SCHEMA._private_events (kind, subject, identity)
  where identity is not null;

-- What the setting ALERTS has told, in one row. The process that judges claims the row for a time.
create table :SCHEMA._private_alerts (
  id boolean constraint alerts_pkey primary key default true constraint alerts_one_row check (id),
  claimed_by text,
  -- From then on, another process may judge.
  free_at timestamptz not null,
  -- Not jsonb: a database that is not in UTF-8 refuses some of the characters that texts of errors may have.
  state json not null default '{}'
);

-- Limits per key: how many jobs of a key run at once, how many start in a time, and which keys take turns.
--
-- A job of a limited task is added like any other job. A worker that has the task sorts it when it is due: it computes
-- the keys of the job, writes a row into _private_limited_jobs, and parks the job: run_at = 'infinity', which no claim
-- reads, neither of this package nor of graphile-worker. The claim of a limited job puts the true run_at back. Whatever
-- else changes a parked job (a replacement under its key, a reschedule, a retry) gives it a finite run_at, and it is
-- sorted again.

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
create index limit_keys_opens_at_index on :SCHEMA._private_limit_keys (opens_at, id)
  where opens_at is not null;

-- A lane: the waiting jobs that have the task, the keys, the queue and the flags in common. Either all of them may be
-- claimed, up to a number, or none.
create table :SCHEMA._private_limit_lanes (
  id bigint generated always as identity constraint limit_lanes_pkey primary key,
  task_id int not null,
  -- In ascending order.
  key_ids bigint[] not null,
  -- 0 for no queue.
  queue_id int not null,
  -- An empty object for no flags.
  flags jsonb not null,
  -- The one of its keys that takes turns with others.
  turn_key bigint,
  -- 0: no job waits; 1: ready, a claim may take a job; 2: waits for a place or a start of the key blocked_by;
  -- 3: waits for its queue, or if a row was locked until ready_at; 4: waits for the turn of its key, of which another
  -- lane is ready.
  state smallint not null constraint limit_lanes_state_check check (state between 0 and 4),
  blocked_by bigint,
  ready_at timestamptz,
  -- Since when it waits for the key.
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
create unique index limit_lanes_identity_index on :SCHEMA._private_limit_lanes (
  task_id, key_ids, queue_id, pg_catalog.md5(flags::pg_catalog.text));
create index limit_lanes_ready_index on :SCHEMA._private_limit_lanes (
  task_id, priority, turn, id) where state = 1;

-- For workers with forbidden flags: they pass all lanes of a set of flags in one step.
create index limit_lanes_flags_index on :SCHEMA._private_limit_lanes (
  task_id, flags, priority, turn, id) where state = 1;
create index limit_lanes_blocked_index on :SCHEMA._private_limit_lanes (
  blocked_by, task_id, priority, turn, id) where state = 2;
create index limit_lanes_ready_at_index on :SCHEMA._private_limit_lanes (ready_at, id)
  where ready_at is not null;

-- The lanes of a queue from which a job could start if the queue were free.
create index limit_lanes_queue_index on :SCHEMA._private_limit_lanes (
  queue_id, task_id, flags, priority, head_run_at, head_id) where queue_id > 0 and state in (1, 3, 4);
create index limit_lanes_turn_index on :SCHEMA._private_limit_lanes (
  turn_key, task_id, flags, state, priority, head_run_at, head_id)
  where turn_key is not null and state in (1, 4);
create index limit_lanes_empty_index on :SCHEMA._private_limit_lanes (sorted_at, id) where state = 0;

-- Which lanes have a key: a key that no lane has can be deleted.
create table :SCHEMA._private_limit_lane_keys (
  key_id bigint not null,
  lane_id bigint not null,
  constraint limit_lane_keys_pkey primary key (key_id, lane_id)
);

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
  expires_at timestamptz
);
create index limited_jobs_lane_index on :SCHEMA._private_limited_jobs (lane_id, priority, run_at, job_id);
create index limited_jobs_task_index on :SCHEMA._private_limited_jobs (task_id, job_id);

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
create index limit_places_job_index on :SCHEMA._private_limit_places (job_id);

-- The starts of a key with a rate, numbered, as long as they are needed: the next job may start when the window of the
-- start that is so many numbers before it is over.
create table :SCHEMA._private_limit_starts (
  key_id bigint not null,
  number bigint not null,
  started_at timestamptz not null,
  constraint limit_starts_pkey primary key (key_id, number)
);

-- What the claim of limited jobs passes on from one of its functions to the next: a key with its numbers, and a job that
-- it has chosen.
create type :SCHEMA._private_key_room as (
  key_id bigint,
  -- How many jobs may start now, up to what the claim wants.
  room int,
  -- Whether the worker knows the limit of the key.
  is_known boolean,
  -- Whether claims take places of the key.
  counts_places boolean,
  concurrency int,
  -- How many places are taken, up to the concurrency.
  taken int,
  starts bigint,
  rate_count int,
  rate_seconds float8,
  burst int,
  burst_seconds float8
);
create type :SCHEMA._private_chosen_job as (
  job_id bigint,
  lane_id bigint,
  queue_id int,
  turn_key bigint,
  key_ids bigint[],
  -- Not if it has expired.
  is_counted boolean
);

-- The numbers that an operator gave a limit. They replace the numbers of the code and of the settings as a whole: a null is
-- no limit of that kind.
create table :SCHEMA._private_limit_overrides (
  limit_name text constraint limit_overrides_pkey primary key,
  concurrency int,
  -- So many starts in so many seconds.
  rate_count int,
  rate_seconds int,
  burst int,
  changed_by text not null,
  changed_at timestamptz not null default pg_catalog.now()
);

-- Schedules: recurring and single tasks that people and programs define in the database. The crontab of a project stays
-- in its code, and in _private_known_crontabs.
--
-- The columns up to changed_by are the definition. The others belong to the triggers and to the workers: a program that
-- writes the definition cannot change them, so that an object of the ORM that was read a minute ago can be saved.
--
-- next_at is the first time that no worker has handled yet. A change of the times sets it to -infinity, which is the
-- first entry of the index: the next worker computes the time. It is infinity when nothing will be fired: the schedule
-- is disabled, or has ended. A worker moves next_at and adds the job in one statement, and only if the revision is the
-- one that it has read: so a change and a worker never mix, and no time is fired twice.
create table :SCHEMA._private_schedules (
  id bigint generated by default as identity constraint schedules_pkey primary key,
  name text not null constraint schedules_name_key unique
    constraint schedules_name_check check (length(name) between 1 and 200),
  task text not null constraint schedules_task_check check (length(task) between 1 and 128),
  payload jsonb not null default '{}' constraint schedules_payload_check check (jsonb_typeof(payload) = 'object'),
  -- Exactly one of these three tells when the schedule fires.
  cron text,
  -- In elapsed time: months and years have no fixed length.
  "interval" interval constraint schedules_interval_check
    check ("interval" >= interval '1 second' and date_part('year', "interval") = 0 and date_part('month', "interval") = 0),
  run_at timestamptz,
  time_zone text not null default 'UTC',
  -- It fires from starts_at on, and before ends_at.
  starts_at timestamptz,
  ends_at timestamptz,
  -- Null: what the task says.
  queue_name text constraint schedules_queue_name_check check (length(queue_name) between 1 and 128),
  priority smallint,
  max_attempts smallint constraint schedules_max_attempts_check check (max_attempts >= 1),
  job_key text constraint schedules_job_key_check check (length(job_key) between 1 and 512),
  -- What happens to times at which no worker ran: none of them, the last of them, or all within missed_within.
  missed text not null default 'skip' constraint schedules_missed_check check (missed in ('skip', 'once', 'all')),
  missed_within interval constraint schedules_missed_within_check check (missed_within > interval '0'),
  -- What happens at a time at which the last run is not over.
  overlap text not null default 'allow' constraint schedules_overlap_check check (overlap in ('allow', 'skip', 'queue')),
  is_enabled boolean not null default true,
  -- For a pause without an end, the last time of the year 9999 that any time zone has.
  paused_until timestamptz,
  description text not null default '',
  -- From the setting graphile_worker.changed_by of the transaction; empty for programs.
  changed_by text not null default '',
  -- Whether workers have written it, because a task has it in its code.
  is_from_code boolean not null default false,

  created_at timestamptz not null,
  changed_at timestamptz not null,
  revision integer not null,
  -- An interval is counted from here: a whole second, unless starts_at is none.
  anchor_at timestamptz not null,
  -- Times later than this are fired. A change of the times sets it: what was due before is not fired by the new times.
  counts_from timestamptz not null,
  -- The times before such a change, oldest first, each with the period (after, until] in which it counted: what was due
  -- then and was not handled yet. A worker handles it and empties the array. While the schedule is paused or disabled,
  -- it waits.
  former_times jsonb not null default '[]',
  next_at timestamptz not null,
  -- The last time that a worker handled, the job that it added last, and the last time that was missed for good.
  last_tick timestamptz,
  last_job_id bigint,
  last_missed_at timestamptz,
  constraint schedules_times_check check (num_nonnulls(cron, "interval", run_at) = 1),
  constraint schedules_period_check check (ends_at > starts_at),
  constraint schedules_missed_all_check check ((missed = 'all') = (missed_within is not null)),
  -- Every program can read the times.
  constraint schedules_years_check check (
    coalesce(least(run_at, starts_at, ends_at, paused_until) >= '0001-01-02 00:00:00+00', true)
    and coalesce(greatest(run_at, starts_at, ends_at, paused_until) <= '9999-12-30 23:59:59.999999+00', true))
);
create index schedules_next_at_index on :SCHEMA._private_schedules (next_at);
create index schedules_task_index on :SCHEMA._private_schedules (task);

-- What became of the latest times of a schedule, or of an item of the crontab: a bounded number of rows for each.
create table :SCHEMA._private_schedule_runs (
  id bigint generated always as identity constraint schedule_runs_pkey primary key,
  schedule_id bigint
    constraint schedule_runs_schedule_fkey references :SCHEMA._private_schedules on delete cascade,
  crontab_identifier text,
  -- The time that was due; for a run that a person asked for, the time at which it was asked for.
  tick timestamptz not null,
  -- Null if no job was added.
  job_id bigint,
  -- on_time and late: the job of a tick; by_hand: a person asked for it; overlap: no job, because the last run was not
  -- over; missed: no job, because no worker ran; unknown_task: no job, because no worker knows the task.
  kind text not null constraint schedule_runs_kind_check
    check (kind in ('on_time', 'late', 'by_hand', 'overlap', 'missed', 'unknown_task')),
  -- How many ticks the row stands for.
  number integer not null default 1,
  run_by text not null default '',
  added_at timestamptz not null default clock_timestamp(),
  constraint schedule_runs_source_check check (num_nonnulls(schedule_id, crontab_identifier) = 1)
);
create index schedule_runs_schedule_index on :SCHEMA._private_schedule_runs (schedule_id, id)
  where schedule_id is not null;
create index schedule_runs_crontab_index on :SCHEMA._private_schedule_runs (crontab_identifier, id)
  where crontab_identifier is not null;

-- Who changed what: the definition before and after each change; after is null for a deletion. The latest changes of
-- each schedule are kept, also when it is deleted.
create table :SCHEMA._private_schedule_changes (
  id bigint generated always as identity constraint schedule_changes_pkey primary key,
  schedule_id bigint not null,
  changed_at timestamptz not null,
  changed_by text not null,
  before jsonb not null,
  after jsonb
);
create index schedule_changes_schedule_index on :SCHEMA._private_schedule_changes (schedule_id, id);

-- When an item that is paused last ran: its own row says that it has run for ever,
-- which is what keeps workers, Node's too, from firing it.
create table :SCHEMA._private_paused_crontabs (
  identifier text constraint paused_crontabs_pkey primary key,
  last_execution timestamptz
);

-- Tasks, queues and flags whose jobs wait until they are resumed, or until a time.
--
-- A paused task or flag is a row here, which workers read: they claim no such jobs. A
-- paused queue is also locked: the locked_by of its row in _private_job_queues is the token of
-- the pause, and its locked_at is infinity. So no worker claims its jobs, workers of
-- Node.js included, and no recovery takes the lock for a stale one. A pause overwrites the
-- lock of the worker that runs a job of the queue: each release of a queue states its token,
-- and so leaves the lock of the pause in place.
--
-- A pause that ends gives the lock to the job of the queue that still runs, if there is one, so
-- that its release frees the queue. A worker of Node.js deletes a job and releases its queue in
-- one statement: if that has begun before the end of the pause, it does not see the new
-- lock, and the queue would stay locked for hours. So the row of the pause stays, with the token of
-- that job in handed_to, and workers check the queue: see _private_settle_pauses. Workers of
-- this package release the queue in a statement of its own, which begins after the job has ended.
--
-- Order of locks: rows of this table by kind and name, then jobs by id, then queues.
create table :SCHEMA._private_pauses (
  kind text not null constraint pauses_kind_check check (kind in ('queue', 'task', 'flag')),
  name text not null,
  token text not null,
  paused_at timestamptz not null,
  -- Null: until it is resumed.
  paused_until timestamptz,
  reason text not null default '',
  paused_by text not null default '',
  -- Null while the pause holds. After its end, the token of another worker that got the lock of the queue.
  handed_to text,
  constraint pauses_pkey primary key (kind, name)
);

-- Actions of operators on jobs.
--
-- An action first collects the ids of the jobs, in one snapshot, when the user is asked to confirm their number: what is
-- confirmed is what is changed. Then it changes them in steps, each in its own transaction. A row is a step that is to be
-- done. The figures of an action are written by the transaction of each step, and whoever continues or stops it reads them
-- here. When an action begins, those that nobody has continued for a day are deleted.
create table :SCHEMA._private_actions (
  id uuid constraint actions_pkey primary key,
  -- The action, and the user that may continue and stop it.
  action text not null,
  made_by text not null,
  made_at timestamptz not null default pg_catalog.now(),
  -- After this no step begins.
  stopped_at timestamptz,
  progress jsonb not null
);

create table :SCHEMA._private_action_steps (
  action_id uuid not null,
  number int not null,
  -- The action, and the user that may continue it.
  action text not null,
  made_by text not null,
  made_at timestamptz not null default pg_catalog.now(),
  job_ids bigint[] not null,
  -- Whether it visits the jobs a second time, because workers were running them at the first.
  is_repeated boolean not null default false,
  constraint action_steps_pkey primary key (action_id, number)
);
create index action_steps_made_at_index on :SCHEMA._private_action_steps (made_at);

-- Row-level security, as said above. Roles may get rights to the first tables.
do $do$
declare
  granted constant text[] := array[
    '_private_cancellations', '_private_stop_requests', '_private_unique_jobs', '_private_statistics',
    '_private_statistics_pending', '_private_backlog_samples', '_private_events', '_private_limit_keys',
    '_private_limit_lanes', '_private_limit_lane_keys', '_private_limited_jobs', '_private_limit_places',
    '_private_limit_starts', '_private_limit_overrides', '_private_schedules', '_private_schedule_runs',
    '_private_schedule_changes', '_private_pauses', '_private_action_steps', '_private_actions'];
  closed constant text[] := array[
    '_private_workers', '_private_job_recoveries', '_private_progress', '_private_results', '_private_waiters',
    '_private_history', '_private_history_default', '_private_paused_crontabs', '_private_alerts'];
  name text;
begin
  foreach name in array granted || closed loop
    execute format('alter table %s.%I enable row level security', ':SCHEMA', name);
    if name = any (granted) then
      execute format('create policy by_grant on %s.%I using (true) with check (true)', ':SCHEMA', name);
    end if;
  end loop;
end
$do$;

-- The claim of a job writes a new version of its row, with two more values. PostgreSQL writes it to the same page if
-- there is room, and otherwise to another page. On the same page, the log has only what differs between the two
-- versions, the old one need not be locked a second time, and one page instead of two is read and written. So new rows
-- leave more than half of each page free. A value that an administrator has chosen stays.
--
-- Before PostgreSQL 17, the planner takes the room for rows as long as the table has not been analyzed, and chooses
-- worse plans for claims.
do $do$
begin
  if current_setting('server_version_num')::int >= 170000 and not exists (
    select from pg_class
    where oid = ':SCHEMA._private_jobs'::regclass and reloptions::text ~ 'fillfactor='
  ) then
    alter table :SCHEMA._private_jobs set (fillfactor = 40);
  end if;
end
$do$;
