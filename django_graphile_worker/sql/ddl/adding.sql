/* gw:install */
-- What add_job and add_jobs share. The functions here in language sql are plain expressions without a SET clause, so
-- that PostgreSQL inlines them and they cost no call. RETURN is parsed now, under the search_path of the migration: no
-- object of another schema can take the place of what it names.

-- Says what is wrong with a job, or null. Times are bounded to what a client can read back in any time zone: years 1
-- to 9999, with a margin of a day at both ends.
create or replace function :SCHEMA._private_job_fault(
  identifier text,
  queue_name text,
  run_at timestamptz,
  max_attempts integer,
  job_key text,
  priority integer,
  job_key_mode text
) returns text language sql immutable parallel safe
return case
    when identifier is null then 'identifier missing'
    when pg_catalog.length(identifier) operator(pg_catalog.>) 128 then 'identifier'
    when pg_catalog.length(queue_name) operator(pg_catalog.>) 128 then 'queue name'
    when pg_catalog.length(job_key) operator(pg_catalog.<) 1 then 'job key'
    when pg_catalog.length(job_key) operator(pg_catalog.>) 512 then 'job key'
    when max_attempts operator(pg_catalog.<) 1 then 'max attempts'
    when max_attempts operator(pg_catalog.>) 32767 then 'max attempts'
    when priority operator(pg_catalog.<) (-32768) then 'priority'
    when priority operator(pg_catalog.>) 32767 then 'priority'
    when run_at operator(pg_catalog.<) pg_catalog.timestamptz '0001-01-02 00:00:00+00' then 'run at'
    when run_at operator(pg_catalog.>=) pg_catalog.timestamptz '9999-12-31 00:00:00+00' then 'run at'
    when job_key_mode operator(pg_catalog.<>) all ('{replace,preserve_run_at,unsafe_dedupe}'::pg_catalog.text[])
      then 'job key mode'
  end;

create or replace function :SCHEMA._private_refuse_job(
  fault text,
  identifier text,
  queue_name text,
  run_at timestamptz,
  max_attempts integer,
  job_key text,
  priority integer,
  job_key_mode text
) returns void language plpgsql immutable set search_path = pg_catalog, pg_temp as $function$
/* gw:refuse_job */
begin
  case fault
    when 'identifier missing' then
      raise exception using errcode = 'GWBID',
        message = 'Task identifier is missing: expected text of at most 128 characters, got null.';
    when 'identifier' then
      raise exception using errcode = 'GWBID',
        message = format('Task identifier is too long (max length: 128), got %s characters.', length(identifier));
    when 'queue name' then
      raise exception using errcode = 'GWBQN',
        message = format('Job queue name is too long (max length: 128), got %s characters.', length(queue_name));
    when 'job key' then
      raise exception using errcode = 'GWBJK',
        message = case length(job_key)
          when 0 then 'Job key is empty: expected 1 to 512 characters, or null for no key.'
          else format('Job key is too long (max length: 512), got %s characters.', length(job_key))
        end;
    when 'max attempts' then
      raise exception using errcode = 'GWBMA',
        message = format('Job maximum attempts must be at least 1 and at most 32767, got %s.', max_attempts);
    when 'priority' then
      raise exception using errcode = 'numeric_value_out_of_range',
        message = format('Job priority must be between -32768 and 32767, got %s.', priority);
    when 'run at' then
      raise exception using errcode = 'datetime_field_overflow',
        message = format('Job run_at must lie in the years 1 to 9999, got %s.', run_at);
    when 'job key mode' then
      raise exception using errcode = 'GWBKM',
        message = format('Invalid job_key_mode value, expected ''replace'', ''preserve_run_at'' or ''unsafe_dedupe'', got %L.', job_key_mode);
  end case;
end
$function$;

-- Refuses the first spec with which something is wrong. Returns the names in the specs, whether they have keys, and how many
-- of the jobs without a key are due.
create or replace function :SCHEMA._private_check_specs(
  specs :SCHEMA.job_spec[],
  out identifiers text[],
  out queue_names text[],
  out has_keys boolean,
  out due bigint
) language plpgsql stable set search_path = pg_catalog, pg_temp as $function$
/* gw:check_specs */
declare
  has_faults boolean;
begin
  select
    array_agg(distinct alike.identifier),
    array_agg(distinct alike.queue_name) filter (where alike.queue_name is not null),
    bool_or(alike.has_keys),
    sum(alike.due),
    bool_or(alike.has_faults)
  into identifiers, queue_names, has_keys, due, has_faults
  from (
    select
      spec.identifier,
      spec.queue_name,
      bool_or(spec.job_key is not null) as has_keys,
      count(*) filter (where spec.run_at is null or :SCHEMA._private_is_due(spec.run_at)) as due,
      bool_or(:SCHEMA._private_job_fault(
        spec.identifier, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, null
      ) is not null) as has_faults
    from unnest(specs) as spec
    group by spec.identifier, spec.queue_name
  ) as alike;
  if has_faults then
    perform :SCHEMA._private_refuse_job(
      fault, spec.identifier, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, null
    )
    from unnest(specs) with ordinality as spec
      cross join lateral :SCHEMA._private_job_fault(
        spec.identifier, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, null
      ) as fault
    where fault is not null
    order by spec.ordinality
    limit 1;
  end if;
end
$function$;

-- Two arrays are concatenated as text: jsonb would refuse \u0000 and lone surrogates that json has accepted, and would
-- rewrite numbers and keys.
create or replace function :SCHEMA._private_merged_payload(existing json, added json)
returns json language sql immutable parallel safe
return case
    when pg_catalog.json_typeof(existing) operator(pg_catalog.<>) 'array'::pg_catalog.text then added
    when pg_catalog.json_typeof(added) operator(pg_catalog.<>) 'array'::pg_catalog.text then added
    when pg_catalog.json_array_length(existing) operator(pg_catalog.=) 0 then added
    when pg_catalog.json_array_length(added) operator(pg_catalog.=) 0 then existing
    else (
      pg_catalog.left(pg_catalog.rtrim(existing::pg_catalog.text, E' \t\n\r'::pg_catalog.text), -1)
      operator(pg_catalog.||) ', '::pg_catalog.text operator(pg_catalog.||)
      pg_catalog.substr(pg_catalog.ltrim(added::pg_catalog.text, E' \t\n\r'::pg_catalog.text), 2)
    )::pg_catalog.json
  end;

-- Wakes the workers for jobs that are due before they poll again. The random number keeps PostgreSQL from folding
-- equal notifications of one transaction. When the server's queue of notifications is nearly full (a session that
-- listens has not read it for long), none is sent: with a full queue the commit would fail, and the job with it.
-- Workers then find the job when they poll.
create or replace function :SCHEMA._private_notify(due bigint)
returns text language sql volatile
return case
    when due operator(pg_catalog.<>) 0::bigint
      and coalesce(pg_catalog.current_setting('graphile_worker.notify'::pg_catalog.text, true), ''::pg_catalog.text)
        operator(pg_catalog.<>) 'off'::pg_catalog.text
      and pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<) 0.9::double precision
    then pg_catalog.pg_notify(
      'jobs:insert'::pg_catalog.text,
      '{"r":'::pg_catalog.text operator(pg_catalog.||) pg_catalog.random()::pg_catalog.text
        operator(pg_catalog.||) ',"count":'::pg_catalog.text operator(pg_catalog.||) due::pg_catalog.text
        operator(pg_catalog.||) '}'::pg_catalog.text
    )::pg_catalog.text
  end;

create or replace function :SCHEMA._private_is_due(run_at timestamptz)
returns boolean language sql stable
return run_at operator(pg_catalog.<=) (pg_catalog.now() operator(pg_catalog.+) interval '10 seconds');

-- Flags as they are stored. Strict, so that jobs without flags cost no call.
create or replace function :SCHEMA._private_flag_object(flags text[])
returns jsonb language sql stable strict parallel safe
return (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(flags) as flag);

-- When a job is due in truth: while it waits for a limit, its run_at is infinity, and the true one is in the table of
-- limited jobs. A role that may not read that table gets the run_at of the row.
create or replace function :SCHEMA._private_true_run_at(job_id bigint, run_at timestamptz)
returns timestamptz language plpgsql stable set search_path = pg_catalog, pg_temp as $function$
begin
  if run_at = 'infinity' and has_table_privilege(to_regclass(':SCHEMA._private_limited_jobs'), 'select') then
    return coalesce((
      select parked.run_at from only :SCHEMA._private_limited_jobs as parked
      where parked.job_id = _private_true_run_at.job_id), run_at);
  end if;
  return run_at;
end
$function$;

-- The ids of the given names, as {name: id}. What is missing is made, in sorted order, so that two batches cannot
-- deadlock; what is there burns no identity. A transaction with one snapshot for all its statements may see a name
-- that was cleaned up since: offering the row again under its own id puts it back, and does nothing to one that is
-- still there. Each look-up is a probe of the index: the planner's settings leave no other way, and "offset 0" no other
-- order. A plan that a session made when there were few names would otherwise compare each of many names with each row.
create or replace function :SCHEMA._private_task_ids(identifiers text[])
returns jsonb language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $function$
/* gw:task_ids */
declare
  ids jsonb;
begin
  loop
    select jsonb_object_agg(tasks.identifier, tasks.id) into ids
    from unnest(identifiers) as given (identifier)
      cross join lateral (
        select tasks.id, tasks.identifier from only :SCHEMA._private_tasks as tasks where tasks.identifier = given.identifier offset 0
      ) as tasks;
    exit when coalesce(ids, '{}') ?& identifiers;

    insert into :SCHEMA._private_tasks (identifier)
    select distinct given.identifier collate "C" as identifier
    from unnest(identifiers) as given (identifier)
    where not coalesce(ids, '{}') ? given.identifier
    order by identifier
    on conflict do nothing;
  end loop;

  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    insert into :SCHEMA._private_tasks (id, identifier) overriding system value
    select known.id::integer, known.identifier collate "C" as identifier
    from jsonb_each_text(ids) as known (identifier, id)
    order by identifier
    on conflict do nothing;
  end if;
  return ids;
end
$function$;

create or replace function :SCHEMA._private_job_queue_ids(queue_names text[])
returns jsonb language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $function$
/* gw:job_queue_ids */
declare
  ids jsonb;
begin
  loop
    select jsonb_object_agg(job_queues.queue_name, job_queues.id) into ids
    from unnest(queue_names) as given (queue_name)
      cross join lateral (
        select job_queues.id, job_queues.queue_name
        from only :SCHEMA._private_job_queues as job_queues
        where job_queues.queue_name = given.queue_name
        offset 0
      ) as job_queues;
    exit when coalesce(ids, '{}') ?& queue_names;

    insert into :SCHEMA._private_job_queues (queue_name)
    select distinct given.queue_name collate "C" as queue_name
    from unnest(queue_names) as given (queue_name)
    where not coalesce(ids, '{}') ? given.queue_name
    order by queue_name
    on conflict do nothing;
  end loop;

  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    insert into :SCHEMA._private_job_queues (id, queue_name) overriding system value
    select known.id::integer, known.queue_name collate "C" as queue_name
    from jsonb_each_text(ids) as known (queue_name, id)
    order by queue_name
    on conflict do nothing;
  end if;
  return ids;
end
$function$;

-- A job that a worker holds loses its key and its remaining attempts, so that it does not run again, and the marker
-- says why to whoever ends the claim. The caller has locked the row.
create or replace function :SCHEMA._private_cancel_job(job :SCHEMA._private_jobs, kind text)
returns :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:cancel_job */
begin
  if job.locked_at is not null and job.locked_by is not null then
    insert into :SCHEMA._private_cancellations as known (job_id, locked_by, kind, attempts, job_key, cancelled_at)
    values (job.id, job.locked_by, _private_cancel_job.kind, job.attempts, job.key, clock_timestamp())
    on conflict on constraint cancellations_pkey do update set
      kind = excluded.kind, attempts = excluded.attempts, job_key = excluded.job_key, cancelled_at = excluded.cancelled_at;
  end if;
  update only :SCHEMA._private_jobs as jobs set
    key = null,
    attempts = jobs.max_attempts,
    updated_at = greatest(clock_timestamp(), jobs.locked_at + interval '1 microsecond')
  where jobs.id = job.id
  returning jobs.* into job;
  return job;
end
$function$;

-- Adds a job with a key, or replaces the one that waits under it. A row that cannot be replaced (it runs, or its attempts
-- are used up) is locked and left as it is. It then gives up its key, no other session can come between, and the next
-- round inserts. No round returns nothing, and none loses the request.
create or replace function :SCHEMA._private_put_job(
  new_id bigint,
  new_task_id integer,
  new_job_queue_id integer,
  spec :SCHEMA.job_spec,
  job_key_mode text
) returns :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $function$
/* gw:put_job */
declare
  job :SCHEMA._private_jobs;
begin
  if job_key_mode = 'unsafe_dedupe' then
    insert into :SCHEMA._private_jobs as jobs (id, job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
    overriding system value
    values (
      new_id, new_job_queue_id, new_task_id, coalesce(spec.payload, '{}'), coalesce(spec.priority, 0),
      coalesce(spec.run_at, now()), coalesce(spec.max_attempts, 25), :SCHEMA._private_flag_object(spec.flags), spec.job_key
    )
    on conflict (key) do update set
      revision = jobs.revision % 2147483647 + 1,
      updated_at = case when jobs.locked_at is null then now() else jobs.updated_at end
    returning * into job;
    job.run_at := :SCHEMA._private_true_run_at(job.id, job.run_at);
    return job;
  end if;

  loop
    insert into :SCHEMA._private_jobs as jobs (id, job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
    overriding system value
    values (
      new_id, new_job_queue_id, new_task_id, coalesce(spec.payload, '{}'), coalesce(spec.priority, 0),
      coalesce(spec.run_at, now()), coalesce(spec.max_attempts, 25), :SCHEMA._private_flag_object(spec.flags), spec.job_key
    )
    on conflict (key) do update set
      attempts = 0,
      updated_at = now(),
      job_queue_id = excluded.job_queue_id,
      task_id = excluded.task_id,
      payload = :SCHEMA._private_merged_payload(jobs.payload, excluded.payload),
      priority = excluded.priority,
      run_at = case
        -- A job that waits for a limit is sorted again: the new payload may have another key.
        when job_key_mode = 'preserve_run_at' and jobs.attempts = 0 then :SCHEMA._private_true_run_at(jobs.id, jobs.run_at)
        else excluded.run_at
      end,
      max_attempts = excluded.max_attempts,
      last_error = null,
      flags = excluded.flags,
      revision = jobs.revision % 2147483647 + 1
    where jobs.is_available
    returning * into job;
    exit when found;
    select jobs.* into strict job from only :SCHEMA._private_jobs as jobs where jobs.key = spec.job_key;
    perform :SCHEMA._private_cancel_job(job, 'replaced');
  end loop;
  if job.revision > 0 then
    -- The deaths of workers that held the job before were not this one's.
    delete from only :SCHEMA._private_job_recoveries as recoveries where recoveries.job_id = job.id;
  end if;
  return job;
end
$function$;

-- Adds many jobs, of which some have keys. Returns for each spec the id of its job, and how many jobs are due. Ids follow
-- the order of the specs, which is the order in which jobs of one priority and time run.
--
-- No two calls wait for each other in a ring. First, holding no row, new keys are inserted by one statement in sorted
-- order: whoever waits for a key here holds nothing but keys that sort before it. Then the rows that other keys have are
-- locked in the order of their ids, as the functions that manage jobs lock them; those never wait for rows that are not
-- committed. Only then they are replaced, one by one, as is a job of this batch whose key is given again. But a row that
-- has gone between the two steps leaves a key that others may be inserting, and to wait for it now would close a ring:
-- then everything is given up and begun again.
create or replace function :SCHEMA._private_put_jobs(
  specs :SCHEMA.job_spec[],
  job_key_mode text,
  task_ids jsonb,
  job_queue_ids jsonb,
  out ids bigint[],
  out due bigint
) language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
as $function$
/* gw:put_jobs */
declare
  keys text[];
  locked bigint;
  given record;
  job :SCHEMA._private_jobs;
begin
  ids := array(select nextval(':SCHEMA.jobs_id_seq1') from generate_series(1, cardinality(specs)));
  loop
    -- The subtransaction is what can be given up.
    begin
      insert into :SCHEMA._private_jobs (id, job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
      overriding system value
      select
        spec.id, (job_queue_ids ->> spec.queue_name)::integer, (task_ids ->> spec.identifier)::integer,
        coalesce(spec.payload, '{}'), coalesce(spec.priority, 0), coalesce(spec.run_at, now()),
        coalesce(spec.max_attempts, 25), :SCHEMA._private_flag_object(spec.flags), spec.job_key
      from rows from (unnest(specs), unnest(ids)) as spec (
        identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, id
      )
      order by spec.job_key collate "C", spec.id
      on conflict (key) do nothing;

      keys := array(
        select distinct specs[spec.place::integer].job_key collate "C"
        from unnest(ids) with ordinality as spec (id, place)
        where not exists (select from only :SCHEMA._private_jobs as jobs where jobs.id = spec.id)
      );
      select count(*) into locked
      from (
        select from only :SCHEMA._private_jobs as jobs where jobs.key = any(keys) order by jobs.id for update
      ) as jobs;
      if locked < cardinality(keys) then
        raise exception using errcode = 'GWAGN', message = 'A job was removed meanwhile; the keys are tried again.';
      end if;

      for given in
        select spec.id, spec.place, specs[spec.place::integer] as spec
        from unnest(ids) with ordinality as spec (id, place)
        where not exists (select from only :SCHEMA._private_jobs as jobs where jobs.id = spec.id)
        order by spec.place
      loop
        job := :SCHEMA._private_put_job(
          given.id, (task_ids ->> (given.spec).identifier)::integer, (job_queue_ids ->> (given.spec).queue_name)::integer,
          given.spec, job_key_mode
        );
        ids[given.place] := job.id;
      end loop;
      select count(*) into due
      from only :SCHEMA._private_jobs as jobs
      where jobs.id = any(ids) and :SCHEMA._private_is_due(jobs.run_at);
      return;
    exception when sqlstate 'GWAGN' then
      null;
    end;
  end loop;
end
$function$;

-- Adds those of the jobs that are not there, and returns for each spec the id of its job. An entry is locked until the
-- end of the transaction: another that adds the same job waits, and then sees the job, or that it was rolled back.
create or replace function :SCHEMA._private_add_unique_jobs(specs json, is_silent boolean, moment timestamptz)
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
  select distinct given.identifier, given.unique_key
  from json_to_recordset(specs) as given(identifier text, unique_key text)
  order by given.identifier, given.unique_key
  on conflict on constraint unique_jobs_pkey do update set unique_key = excluded.unique_key;

  if is_silent then
    perform set_config('graphile_worker.notify', 'off', true);
  end if;
  for spec in
    select given.*
    from rows from (json_to_recordset(specs) as (
        identifier text, payload json, queue_name text, run_at timestamptz, delay float8, max_attempts int, priority int,
        flags text[], unique_key text, unique_for float8
      )) with ordinality as given(
        identifier, payload, queue_name, run_at, delay, max_attempts, priority, flags, unique_key, unique_for, place
      )
    order by given.place
  loop
    -- Each statement has its own snapshot, so it sees the job that another transaction has committed meanwhile.
    select known.* into strict entry
    from only :SCHEMA._private_unique_jobs as known
    where known.identifier = spec.identifier and known.unique_key = spec.unique_key;
    select jobs.* into job from only :SCHEMA._private_jobs as jobs where jobs.id = entry.job_id;
    is_new := not case
      when entry.job_id is null then false
      when job.id is null then coalesce(entry.added_at > present - spec.unique_for * interval '1 second', false)
      else job.locked_at is not null or job.attempts < job.max_attempts
    end;
    if is_new then
      job := :SCHEMA.add_job(
        spec.identifier, spec.payload, spec.queue_name, coalesce(spec.run_at, now() + spec.delay * interval '1 second'),
        spec.max_attempts, null, spec.priority, spec.flags
      );
      update only :SCHEMA._private_unique_jobs as known
      set job_id = job.id, added_at = present,
        until = present + greatest(coalesce(spec.unique_for, 0), 600) * interval '1 second'
      where known.identifier = spec.identifier and known.unique_key = spec.unique_key;
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

create or replace function :SCHEMA._private_keyed_adder_add_unique_jobs(specs json, is_silent boolean, moment timestamptz)
returns table (job_id bigint, is_new boolean, added_at timestamptz, run_at timestamptz)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:keyed_adder_add_unique_jobs */
  select added.* from :SCHEMA._private_add_unique_jobs(specs, is_silent, moment) as added;
$function$;
revoke all on function :SCHEMA._private_keyed_adder_add_unique_jobs(json, boolean, timestamptz) from public;

-- Looks at some entries whose time is over, deletes those whose job has ended, and returns how many it looked at. The
-- others are looked at again in ten minutes.
create or replace function :SCHEMA._private_forget_unique_jobs(most integer, moment timestamptz)
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
