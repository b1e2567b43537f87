/* gw:install */
-- What add_job and add_jobs share. The functions here in language sql are plain
-- expressions, so that PostgreSQL inlines them and they cost no call.

-- Says what is wrong with a job, or null. Times are bounded to what a client
-- can read back in any time zone: years 1 to 9999, a day's margin at both ends.
create or replace function :SCHEMA._private_job_fault(
  identifier text,
  queue_name text,
  run_at timestamptz,
  max_attempts integer,
  job_key text,
  priority integer,
  job_key_mode text
) returns text language sql immutable parallel safe as $function$
  select case
    when identifier is null then 'identifier missing'
    when length(identifier) > 128 then 'identifier'
    when length(queue_name) > 128 then 'queue name'
    when length(job_key) not between 1 and 512 then 'job key'
    when max_attempts not between 1 and 32767 then 'max attempts'
    when priority not between -32768 and 32767 then 'priority'
    when run_at < timestamptz '0001-01-02 00:00:00+00' or run_at >= timestamptz '9999-12-31 00:00:00+00' then 'run at'
    when job_key_mode not in ('replace', 'preserve_run_at', 'unsafe_dedupe') then 'job key mode'
  end
$function$;

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

-- Two arrays are concatenated as text: jsonb would refuse \u0000 and lone
-- surrogates that json has accepted, and would rewrite numbers and keys.
create or replace function :SCHEMA._private_merged_payload(existing json, added json)
returns json language sql immutable parallel safe as $function$
  select case
    when json_typeof(existing) <> 'array' or json_typeof(added) <> 'array' then added
    when json_array_length(existing) = 0 then added
    when json_array_length(added) = 0 then existing
    else (
      left(rtrim(existing::text, E' \t\n\r'), -1) || ', ' || substr(ltrim(added::text, E' \t\n\r'), 2)
    )::json
  end
$function$;

-- Wakes the workers for jobs that are due before anybody polls again. The random
-- number keeps PostgreSQL from folding equal notifications of one transaction.
create or replace function :SCHEMA._private_notify(due bigint)
returns text language sql volatile as $function$
  select case
    when due <> 0 and current_setting('graphile_worker.notify', true) is distinct from 'off'
    then pg_notify('jobs:insert', '{"r":' || random() || ',"count":' || due || '}')::text
  end
$function$;

create or replace function :SCHEMA._private_is_due(run_at timestamptz)
returns boolean language sql stable as $function$
  select run_at <= now() + interval '10 seconds'
$function$;

-- Shared by every adder until its transaction ends; cleaning up unused names
-- tries for it exclusively, and so never removes a name that an uncommitted job uses.
create or replace function :SCHEMA._private_hold_names()
returns text language sql volatile as $function$
  select pg_advisory_xact_lock_shared(hashtext('graphile_worker.names'), hashtext(:'SCHEMA'))::text
$function$;

-- The ids of the given names, as {name: id}. What is missing is made, in sorted
-- order, so that two batches cannot deadlock; what is there burns no identity.
-- A transaction with one snapshot for all its statements may see a name that was
-- cleaned up since: offering the row again under its own id puts it back, and
-- does nothing to one that is still there.
create or replace function :SCHEMA._private_task_ids(identifiers text[])
returns jsonb language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:task_ids */
declare
  ids jsonb;
begin
  loop
    select jsonb_object_agg(tasks.identifier, tasks.id) into ids
    from :SCHEMA._private_tasks as tasks
    where tasks.identifier = any(identifiers);
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
    select tasks.id, tasks.identifier
    from :SCHEMA._private_tasks as tasks
    where tasks.identifier = any(identifiers)
    order by tasks.identifier collate "C"
    on conflict do nothing;
  end if;
  return ids;
end
$function$;

create or replace function :SCHEMA._private_job_queue_ids(queue_names text[])
returns jsonb language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:job_queue_ids */
declare
  ids jsonb;
begin
  loop
    select jsonb_object_agg(job_queues.queue_name, job_queues.id) into ids
    from :SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name = any(queue_names);
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
    select job_queues.id, job_queues.queue_name
    from :SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name = any(queue_names)
    order by job_queues.queue_name collate "C"
    on conflict do nothing;
  end if;
  return ids;
end
$function$;
