/* gw:install */
-- The functions that the Python API calls for jobs without a key. They store what add_job and add_jobs store for such a
-- job, in about half of the time: the client sends columns instead of a document of specs, and gets back only the ids.

-- Adds a job with options and returns its id. No parameter has a default, because PostgreSQL reads the text of the
-- defaults for every call.
create function :SCHEMA._private_insert_job_with_options_v1(
  identifier text,
  payload json,
  queue_name text,
  run_at timestamptz,
  max_attempts integer,
  priority integer,
  flags text[],
  is_silent boolean
) returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $function$
/* gw:insert_job_with_options */
declare
  fault text := :SCHEMA._private_job_fault(identifier, queue_name, run_at, max_attempts, null, priority, null);
  has_one_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
  notify_before text;
  job_task_id integer;
  job_queue_id integer;
  job_flags jsonb;
  job_id bigint;
begin
  if fault is not null then
    perform :SCHEMA._private_refuse_job(fault, identifier, queue_name, run_at, max_attempts, null, priority, null);
  end if;

  -- A role that may only add jobs has no right to the tables: add_job calls a function that has one.
  if not has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert') then
    notify_before := coalesce(current_setting('graphile_worker.notify', true), '');
    if is_silent then
      perform set_config('graphile_worker.notify', 'off', true);
    end if;
    job_id := (:SCHEMA.add_job(identifier, payload, queue_name, run_at, max_attempts, null, priority, flags)).id;
    perform set_config('graphile_worker.notify', notify_before, true);
    return job_id;
  end if;

  -- Reading takes the lock that keeps cleanup() from deleting a name while an uncommitted job uses it.
  perform from :SCHEMA._private_names_lock;
  select tasks.id into job_task_id
  from only :SCHEMA._private_tasks as tasks
  where tasks.identifier = _private_insert_job_with_options_v1.identifier;
  if job_task_id is null or has_one_snapshot then
    job_task_id := :SCHEMA._private_task_ids(array[identifier]) -> identifier;
  end if;

  if queue_name is not null then
    select job_queues.id into job_queue_id
    from only :SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name = _private_insert_job_with_options_v1.queue_name;
    if job_queue_id is null or has_one_snapshot then
      job_queue_id := :SCHEMA._private_job_queue_ids(array[queue_name]) -> queue_name;
    end if;
  end if;

  if cardinality(flags) > 0 then
    job_flags := (select jsonb_object_agg(flag, true) from unnest(flags) as flag);
  end if;
  insert into :SCHEMA._private_jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
  values (job_queue_id, job_task_id, payload, priority, coalesce(run_at, now()), max_attempts, job_flags)
  returning id into job_id;
  if not is_silent and (run_at is null or :SCHEMA._private_is_due(run_at)) then
    perform :SCHEMA._private_notify(1);
  end if;
  return job_id;
end
$function$;

-- Adds a job without options and returns its id. What is not usual (a new name, a role without the right to insert, a
-- transaction with one snapshot) is left to the function above.
create function :SCHEMA._private_insert_job_v1(identifier text, payload json, is_silent boolean)
returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $function$
/* gw:insert_job */
declare
  job_task_id integer;
  job_id bigint;
begin
  if current_setting('transaction_isolation') = 'read committed'
    and has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert')
  then
    -- Reading takes the lock that keeps cleanup() from deleting a name while an uncommitted job uses it.
    perform from :SCHEMA._private_names_lock;
    select tasks.id into job_task_id
    from only :SCHEMA._private_tasks as tasks
    where tasks.identifier = _private_insert_job_v1.identifier;
  end if;
  if job_task_id is null then
    return :SCHEMA._private_insert_job_with_options_v1(identifier, payload, null, null, 25, 0, null, is_silent);
  end if;
  insert into :SCHEMA._private_jobs (task_id, payload) values (job_task_id, payload) returning id into job_id;
  if not is_silent then
    perform :SCHEMA._private_notify(1);
  end if;
  return job_id;
end
$function$;

-- Adds a job in a transaction of its own, and then notifies. A transaction that notifies holds a lock of the whole server
-- while it writes its commit to the disk, so that transactions that add and notify commit one after the other, however
-- many clients there are. The second transaction changes nothing and does not wait for the disk. A procedure that commits
-- cannot have a SET clause, so it names the schema of all that it uses.
--
-- A notification that is sent after the commit of this job announces this job, too, whoever sends it. So a client that
-- finds the first lock taken need not notify: the transaction that holds the lock has not sent its notification yet. Of
-- these clients the holder of the second lock keeps the first lock for a millisecond, in which the other clients need
-- not notify, either, and then wakes as many workers of the original as may be idle. These workers wake as many of their
-- slots as a notification counts. Without this, notifications would cost half of what 64 clients can add. A role that
-- takes these advisory locks itself makes workers find the jobs by polling, as it could by filling the queue of
-- notifications.
create procedure :SCHEMA._private_insert_job_and_notify_v1(
  identifier text,
  payload json,
  inout job_id bigint,
  inout added_at timestamptz
) language plpgsql as $procedure$
/* gw:insert_job_and_notify */
declare
  schema_id constant integer default ':SCHEMA'::pg_catalog.regnamespace::pg_catalog.oid::pg_catalog.int4;
begin
  select :SCHEMA._private_insert_job_v1(identifier, payload, true), pg_catalog.now() into job_id, added_at;
  commit;
  if pg_catalog.pg_try_advisory_xact_lock(1735877230, schema_id) then
    perform :SCHEMA._private_notify(1);
  elsif pg_catalog.pg_try_advisory_xact_lock(1735877231, schema_id) then
    perform pg_catalog.pg_advisory_xact_lock(1735877230, schema_id);
    perform pg_catalog.pg_sleep(0.001);
    perform :SCHEMA._private_notify(64);
  end if;
end
$procedure$;

-- Adds many jobs: one line of payloads for each, and an element of each other column that is not null. Tasks and queues
-- are places in the arrays of names; the queue 0 means none. A time is given itself, or as a delay in seconds. Flags are
-- JSON objects. Times, delays and flags are lines, too; an empty line means none. Returns the ids in the order of the lines, and the times if any were given; null and null if
-- the caller does not need them.
create function :SCHEMA._private_insert_jobs_v1(
  identifiers text[],
  payloads text,
  tasks integer[],
  queue_names text[],
  queues integer[],
  times text,
  delays text,
  max_attempts integer[],
  priorities integer[],
  flags text,
  is_silent boolean,
  is_returning boolean,
  out ids bigint[],
  out run_ats timestamptz[]
) language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:insert_jobs */
declare
  task_ids integer[];
  job_queue_ids integer[];
  names jsonb;
  is_timed boolean := times is not null or delays is not null;
  notify_before text;
  due bigint;
begin
  perform :SCHEMA._private_refuse_job(fault, given.name, null, null, null, null, null, null)
  from unnest(identifiers) as given (name)
    cross join lateral :SCHEMA._private_job_fault(given.name, null, null, null, null, null, null) as fault
  where fault is not null;
  perform :SCHEMA._private_refuse_job(fault, '', given.name, null, null, null, null, null)
  from unnest(queue_names) as given (name)
    cross join lateral :SCHEMA._private_job_fault('', given.name, null, null, null, null, null) as fault
  where fault is not null;
  if is_timed or coalesce(max_attempts, priorities) is not null then
    perform :SCHEMA._private_refuse_job(fault, '', null, spec.run_at, spec.attempts, null, spec.priority, null)
    from (
      select
        coalesce(nullif(given.at, '')::timestamptz, now() + nullif(given.delay, '')::float8 * interval '1 second') as run_at,
        given.attempts,
        given.priority
      from rows from (
        string_to_table(times, E'\n'), string_to_table(delays, E'\n'), unnest(max_attempts), unnest(priorities)
      ) as given (at, delay, attempts, priority)
    ) as spec
      cross join lateral :SCHEMA._private_job_fault(
        '', null, spec.run_at, spec.attempts, null, spec.priority, null
      ) as fault
    where fault is not null;
  end if;

  -- A role that may only add jobs has no right to the tables: add_jobs knows a function that has one.
  if not has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert') then
    notify_before := coalesce(current_setting('graphile_worker.notify', true), '');
    if is_silent then
      perform set_config('graphile_worker.notify', 'off', true);
    end if;
    select array_agg(job.id), array_agg(job.run_at) filter (where is_timed)
    into ids, run_ats
    from :SCHEMA.add_jobs(array(
      select row(
        identifiers[coalesce(spec.task, 1)], spec.payload::json, queue_names[spec.queue],
        coalesce(nullif(spec.at, '')::timestamptz, now() + nullif(spec.delay, '')::float8 * interval '1 second'), spec.max_attempts, null, spec.priority,
        array(select jsonb_object_keys(nullif(spec.flags, '')::jsonb))
      ):::SCHEMA.job_spec
      from rows from (
        string_to_table(payloads, E'\n'), unnest(tasks), unnest(queues), string_to_table(times, E'\n'), string_to_table(delays, E'\n'),
        unnest(_private_insert_jobs_v1.max_attempts), unnest(priorities), string_to_table(_private_insert_jobs_v1.flags, E'\n')
      ) with ordinality as spec (payload, task, queue, at, delay, max_attempts, priority, flags, place)
      order by spec.place
    )) as job;
    perform set_config('graphile_worker.notify', notify_before, true);
    return;
  end if;

  -- Reading takes the lock that keeps cleanup() from deleting a name while an uncommitted job uses it.
  perform from :SCHEMA._private_names_lock;
  names := :SCHEMA._private_task_ids(identifiers);
  task_ids := array(
    select (names ->> given.name)::integer from unnest(identifiers) with ordinality as given (name, place) order by given.place
  );
  if queue_names is not null then
    names := :SCHEMA._private_job_queue_ids(queue_names);
    job_queue_ids := array(
      select (names ->> given.name)::integer from unnest(queue_names) with ordinality as given (name, place) order by given.place
    );
  end if;

  -- The rows are inserted in the order in which the functions return them; so are the ids.
  if coalesce(tasks, queues, max_attempts, priorities) is null and flags is null and not is_timed then
    -- Payloads alone. Reading them takes a fifth less time without the other columns, and without the ids.
    if is_returning then
      with added as (
        insert into :SCHEMA._private_jobs as jobs (task_id, payload)
        select task_ids[1], line.payload::json from string_to_table(payloads, E'\n') as line (payload)
        returning jobs.id
      )
      select array_agg(added.id), count(*) into ids, due from added;
    else
      insert into :SCHEMA._private_jobs (task_id, payload)
      select task_ids[1], line.payload::json from string_to_table(payloads, E'\n') as line (payload);
      get diagnostics due = row_count;
    end if;
  else
    with added as (
      insert into :SCHEMA._private_jobs as jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
      select
        job_queue_ids[spec.queue], task_ids[coalesce(spec.task, 1)], spec.payload::json, coalesce(spec.priority, 0),
        coalesce(nullif(spec.at, '')::timestamptz, now() + nullif(spec.delay, '')::float8 * interval '1 second', now()),
        coalesce(spec.max_attempts, 25),
        nullif(spec.flags, '')::jsonb
      from rows from (
        string_to_table(payloads, E'\n'), unnest(tasks), unnest(queues), string_to_table(times, E'\n'), string_to_table(delays, E'\n'),
        unnest(_private_insert_jobs_v1.max_attempts), unnest(priorities), string_to_table(_private_insert_jobs_v1.flags, E'\n')
      ) as spec (payload, task, queue, at, delay, max_attempts, priority, flags)
      returning jobs.id, jobs.run_at
    )
    select
      array_agg(added.id) filter (where is_returning),
      array_agg(added.run_at) filter (where is_returning and is_timed),
      count(*) filter (where not is_timed or :SCHEMA._private_is_due(added.run_at))
    into ids, run_ats, due
    from added;
  end if;
  if not is_silent then
    perform :SCHEMA._private_notify(due);
  end if;
end
$function$;

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
create index if not exists unique_jobs_until on :SCHEMA._private_unique_jobs (until);
alter table :SCHEMA._private_unique_jobs enable row level security;
create policy unique_jobs_by_grant on :SCHEMA._private_unique_jobs using (true) with check (true);

-- Adds those of the jobs that are not there, and returns for each spec the id of its job. An entry is locked until the
-- end of the transaction: another that adds the same job waits, and then sees the job, or that it was rolled back.
create function :SCHEMA._private_add_unique_jobs(specs json, is_silent boolean, moment timestamptz)
returns table (job_id bigint, is_new boolean, added_at timestamptz, run_at timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:add_unique_jobs */
declare
  present timestamptz := coalesce(moment, clock_timestamp());
  notify_before text := coalesce(current_setting('graphile_worker.notify', true), '');
  spec record;
  entry :SCHEMA._private_unique_jobs;
  job :SCHEMA._private_jobs;
begin
  -- A role that may only add jobs has no right to the tables: a function that has one adds the jobs for it.
  if not has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert') and has_function_privilege(
    ':SCHEMA._private_keyed_adder_add_unique_jobs(json, boolean, timestamptz)', 'execute'
  ) then
    return query
      select added.*
      from :SCHEMA._private_keyed_adder_add_unique_jobs(specs, is_silent, moment) as added;
    return;
  end if;

  -- The entries are locked in one order, so that two calls never wait for each other.
  insert into :SCHEMA._private_unique_jobs (identifier, unique_key)
  select distinct given.i, given.u
  from json_to_recordset(specs) as given(i text, u text)
  order by given.i, given.u
  on conflict on constraint unique_jobs_pkey do update set unique_key = excluded.unique_key;

  if is_silent then
    perform set_config('graphile_worker.notify', 'off', true);
  end if;
  for spec in
    select given.*
    from rows from (json_to_recordset(specs)
      as (i text, p json, q text, t timestamptz, d float8, m int, r int, f text[], u text, w float8))
      with ordinality as given(i, p, q, t, d, m, r, f, u, w, place)
    order by given.place
  loop
    -- Each statement has its own snapshot, so it sees the job that another transaction has committed meanwhile.
    select known.* into strict entry
    from only :SCHEMA._private_unique_jobs as known
    where known.identifier = spec.i and known.unique_key = spec.u;
    select jobs.* into job from only :SCHEMA._private_jobs as jobs where jobs.id = entry.job_id;
    is_new := not case
      when entry.job_id is null then false
      when job.id is null then coalesce(entry.added_at > present - spec.w * interval '1 second', false)
      else job.locked_at is not null or job.attempts < job.max_attempts
    end;
    if is_new then
      job := :SCHEMA.add_job(
        spec.i, spec.p, spec.q, coalesce(spec.t, now() + spec.d * interval '1 second'), spec.m, null, spec.r, spec.f
      );
      update only :SCHEMA._private_unique_jobs as known
      set job_id = job.id, added_at = present,
        until = present + greatest(coalesce(spec.w, 0), 600) * interval '1 second'
      where known.identifier = spec.i and known.unique_key = spec.u;
      entry.job_id := job.id;
      entry.added_at := present;
    end if;
    job_id := entry.job_id;
    added_at := entry.added_at;
    run_at := job.run_at;
    return next;
  end loop;
  perform set_config('graphile_worker.notify', notify_before, true);
end
$function$;

create function :SCHEMA._private_keyed_adder_add_unique_jobs(specs json, is_silent boolean, moment timestamptz)
returns table (job_id bigint, is_new boolean, added_at timestamptz, run_at timestamptz)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:keyed_adder_add_unique_jobs */
  select added.* from :SCHEMA._private_add_unique_jobs(specs, is_silent, moment) as added;
$function$;
revoke all on function :SCHEMA._private_keyed_adder_add_unique_jobs(json, boolean, timestamptz) from public;

-- Looks at some entries whose time is over, deletes those whose job has ended, and returns how many it looked at. The
-- others are looked at again in ten minutes.
create function :SCHEMA._private_forget_unique_jobs(most integer, moment timestamptz)
returns integer language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:forget_unique_jobs */
declare
  present timestamptz := coalesce(moment, clock_timestamp());
  number integer := 0;
  entry record;
begin
  for entry in
    select known.identifier, known.unique_key, known.job_id
    from only :SCHEMA._private_unique_jobs as known
    where known.until <= present
    order by known.until
    limit most
    for update skip locked
  loop
    number := number + 1;
    -- A statement of its own: a transaction that has just committed may have added the job of this entry.
    perform from only :SCHEMA._private_jobs as job
    where job.id = entry.job_id and (job.locked_at is not null or job.attempts < job.max_attempts);
    if found then
      update only :SCHEMA._private_unique_jobs as known set until = present + interval '10 minutes'
      where known.identifier = entry.identifier and known.unique_key = entry.unique_key;
    else
      delete from only :SCHEMA._private_unique_jobs as known
      where known.identifier = entry.identifier and known.unique_key = entry.unique_key;
    end if;
  end loop;
  return number;
end
$function$;
