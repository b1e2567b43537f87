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

-- Only for calls of the former add_job that began before it was replaced.
create or replace function :SCHEMA._private_hold_names()
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
begin
  perform from :SCHEMA._private_names_lock;
  return null;
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
    select distinct tasks.id, tasks.identifier collate "C" as identifier
    from unnest(identifiers) as given (identifier)
      cross join lateral (
        select tasks.id, tasks.identifier from only :SCHEMA._private_tasks as tasks where tasks.identifier = given.identifier offset 0
      ) as tasks
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
    select distinct job_queues.id, job_queues.queue_name collate "C" as queue_name
    from unnest(queue_names) as given (queue_name)
      cross join lateral (
        select job_queues.id, job_queues.queue_name
        from only :SCHEMA._private_job_queues as job_queues
        where job_queues.queue_name = given.queue_name
        offset 0
      ) as job_queues
    order by queue_name
    on conflict do nothing;
  end if;
  return ids;
end
$function$;
