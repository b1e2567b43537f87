/* gw:install */
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

create or replace function :SCHEMA.add_job(
  identifier text,
  payload json default null::json,
  queue_name text default null::text,
  run_at timestamptz default null::timestamptz,
  max_attempts integer default null::integer,
  job_key text default null::text,
  priority integer default null::integer,
  flags text[] default null::text[],
  job_key_mode text default 'replace'::text
) returns :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $function$
/* gw:add_job */
declare
  fault text := :SCHEMA._private_job_fault(identifier, queue_name, run_at, max_attempts, job_key, priority, job_key_mode);
  has_one_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
  is_moved boolean := false;
  task_id integer;
  job_queue_id integer;
  job :SCHEMA._private_jobs;
begin
  if fault is not null then
    perform :SCHEMA._private_refuse_job(fault, identifier, queue_name, run_at, max_attempts, job_key, priority, job_key_mode);
  end if;

  -- A role that may only add jobs has no right to the tables: a function that has one adds the job for it.
  if not has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert') then
    if job_key is null and has_function_privilege(
      ':SCHEMA._private_adder_add_job(text, json, text, timestamptz, integer, integer, text[])', 'execute'
    ) then
      return :SCHEMA._private_adder_add_job(identifier, payload, queue_name, run_at, max_attempts, priority, flags);
    elsif job_key is not null and has_function_privilege(
      ':SCHEMA._private_keyed_adder_add_job(text, json, text, timestamptz, integer, text, integer, text[], text)', 'execute'
    ) then
      return :SCHEMA._private_keyed_adder_add_job(
        identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, job_key_mode
      );
    end if;
  end if;

  -- Reading takes the lock that keeps cleanup() from deleting a name while an uncommitted job uses it.
  perform from :SCHEMA._private_names_lock;
  select tasks.id into task_id from only :SCHEMA._private_tasks as tasks where tasks.identifier = add_job.identifier;
  if task_id is null or has_one_snapshot then
    task_id := :SCHEMA._private_task_ids(array[identifier]) -> identifier;
  end if;

  if queue_name is not null then
    select job_queues.id into job_queue_id
    from only :SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name = add_job.queue_name;
    if job_queue_id is null or has_one_snapshot then
      job_queue_id := :SCHEMA._private_job_queue_ids(array[queue_name]) -> queue_name;
    end if;
  end if;

  if job_key is null then
    insert into :SCHEMA._private_jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
    values (
      job_queue_id, task_id, coalesce(add_job.payload, '{}'), coalesce(add_job.priority, 0),
      coalesce(add_job.run_at, now()), coalesce(add_job.max_attempts, 25), case when cardinality(add_job.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(add_job.flags) as flag) end
    )
    returning * into job;
  elsif job_key_mode = 'unsafe_dedupe' then
    insert into :SCHEMA._private_jobs as jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
    values (
      job_queue_id, task_id, coalesce(add_job.payload, '{}'), coalesce(add_job.priority, 0),
      coalesce(add_job.run_at, now()), coalesce(add_job.max_attempts, 25), case when cardinality(add_job.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(add_job.flags) as flag) end,
      job_key
    )
    -- Workers of an earlier version take a job for cancelled when it changed after it was locked.
    on conflict (key) do update set
      revision = jobs.revision % 2147483647 + 1,
      updated_at = case when jobs.locked_at is null then now() else jobs.updated_at end
    returning * into job;
    if job.revision > 0 then
      job.run_at := :SCHEMA._private_true_run_at(job.id, job.run_at);
      return job;
    end if;
  else
    -- A row that cannot be replaced (it runs, or its attempts are used up) is locked and left as it is. It then gives
    -- up its key, no other session can come between, and the next round inserts. No round can return nothing.
    loop
      insert into :SCHEMA._private_jobs as jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
      values (
        job_queue_id, task_id, coalesce(add_job.payload, '{}'), coalesce(add_job.priority, 0),
        coalesce(add_job.run_at, now()), coalesce(add_job.max_attempts, 25), case when cardinality(add_job.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(add_job.flags) as flag) end,
        job_key
      )
      on conflict (key) do update set
        attempts = case when jobs.is_available then 0 else jobs.attempts end,
        updated_at = case when jobs.is_available then now() else jobs.updated_at end,
        job_queue_id = case when jobs.is_available then excluded.job_queue_id else jobs.job_queue_id end,
        task_id = case when jobs.is_available then excluded.task_id else jobs.task_id end,
        payload = case when jobs.is_available then :SCHEMA._private_merged_payload(jobs.payload, excluded.payload) else jobs.payload end,
        priority = case when jobs.is_available then excluded.priority else jobs.priority end,
        run_at = case
          when not jobs.is_available then jobs.run_at
          -- A job that waits for a limit is sorted again: the new payload may have another key.
          when job_key_mode = 'preserve_run_at' and jobs.attempts = 0
            then :SCHEMA._private_true_run_at(jobs.id, jobs.run_at)
          else excluded.run_at
        end,
        max_attempts = case when jobs.is_available then excluded.max_attempts else jobs.max_attempts end,
        last_error = case when jobs.is_available then null else jobs.last_error end,
        flags = case when jobs.is_available then excluded.flags else jobs.flags end,
        revision = case when jobs.is_available then jobs.revision % 2147483647 + 1 else jobs.revision end
      where is_moved or not jobs.is_available
        or (jobs.task_id = excluded.task_id and jobs.job_queue_id is not distinct from excluded.job_queue_id)
      returning * into job;
      if not found then
        -- The job that waits gets another task or queue: see _private_moved_jobs.
        perform nextval(':SCHEMA._private_moved_jobs');
        is_moved := true;
      elsif job.is_available then
        exit;
      else
        perform :SCHEMA._private_cancel_job(job, 'replaced');
      end if;
    end loop;
    if job.revision > 0 then
      -- The deaths of workers that held the job before were not this one's.
      delete from only :SCHEMA._private_job_recoveries as recoveries where recoveries.job_id = job.id;
    end if;
  end if;

  if :SCHEMA._private_is_due(job.run_at) then
    perform :SCHEMA._private_notify(1);
  end if;
  return job;
end
$function$;

-- For roles that may add jobs and read nothing. They run with the rights of the owner of the tables, under which
-- add_job then does its work; whoever is granted EXECUTE learns no more than what is returned.
create or replace function :SCHEMA._private_adder_add_job(
  identifier text,
  payload json,
  queue_name text,
  run_at timestamptz,
  max_attempts integer,
  priority integer,
  flags text[]
) returns :SCHEMA._private_jobs language sql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:adder_add_job */
  select job.*
  from :SCHEMA.add_job(identifier, payload, queue_name, run_at, max_attempts, null, priority, flags) as job;
$function$;

-- A job that waits under the key may be of another role: of its payload, error, flags and lock nothing is returned.
create or replace function :SCHEMA._private_keyed_adder_add_job(
  identifier text,
  payload json,
  queue_name text,
  run_at timestamptz,
  max_attempts integer,
  job_key text,
  priority integer,
  flags text[],
  job_key_mode text
) returns :SCHEMA._private_jobs language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:keyed_adder_add_job */
declare
  job :SCHEMA._private_jobs := :SCHEMA.add_job(
    identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, job_key_mode
  );
begin
  if job.revision > 0 then
    job.payload := coalesce(payload, '{}');
    job.last_error := null;
    job.locked_at := null;
    job.locked_by := null;
    if job_key_mode = 'unsafe_dedupe' then
      job.flags := null;
    end if;
  end if;
  return job;
end
$function$;

revoke all on function :SCHEMA._private_adder_add_job(text, json, text, timestamptz, integer, integer, text[]) from public;
revoke all on function :SCHEMA._private_keyed_adder_add_job(
  text, json, text, timestamptz, integer, text, integer, text[], text
) from public;
