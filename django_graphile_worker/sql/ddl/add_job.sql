/* gw:install */
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
) returns :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:add_job */
declare
  fault text := :SCHEMA._private_job_fault(identifier, queue_name, run_at, max_attempts, job_key, priority, job_key_mode);
  held text := :SCHEMA._private_hold_names();
  has_one_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
  task_id integer;
  job_queue_id integer;
  job :SCHEMA._private_jobs;
begin
  if fault is not null then
    perform :SCHEMA._private_refuse_job(fault, identifier, queue_name, run_at, max_attempts, job_key, priority, job_key_mode);
  end if;

  select tasks.id into task_id from :SCHEMA._private_tasks as tasks where tasks.identifier = add_job.identifier;
  if task_id is null or has_one_snapshot then
    task_id := :SCHEMA._private_task_ids(array[identifier]) -> identifier;
  end if;

  if queue_name is not null then
    select job_queues.id into job_queue_id from :SCHEMA._private_job_queues as job_queues where job_queues.queue_name = add_job.queue_name;
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
    on conflict (key) do update set
      revision = jobs.revision % 2147483647 + 1,
      updated_at = now()
    returning * into job;
    if job.revision > 0 then
      return job;
    end if;
  else
    -- A row that cannot be replaced (it runs, or its attempts are used up) gives
    -- up its key in the same statement that found it, so no other session can
    -- come between; the second round then inserts. No round can return nothing.
    loop
      insert into :SCHEMA._private_jobs as jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
      values (
        job_queue_id, task_id, coalesce(add_job.payload, '{}'), coalesce(add_job.priority, 0),
        coalesce(add_job.run_at, now()), coalesce(add_job.max_attempts, 25), case when cardinality(add_job.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(add_job.flags) as flag) end,
        job_key
      )
      on conflict (key) do update set
        key = case when jobs.is_available then jobs.key end,
        attempts = case when jobs.is_available then 0 else jobs.max_attempts end,
        updated_at = case when jobs.is_available then now() else greatest(clock_timestamp(), jobs.locked_at + interval '1 microsecond') end,
        job_queue_id = case when jobs.is_available then excluded.job_queue_id else jobs.job_queue_id end,
        task_id = case when jobs.is_available then excluded.task_id else jobs.task_id end,
        payload = case when jobs.is_available then :SCHEMA._private_merged_payload(jobs.payload, excluded.payload) else jobs.payload end,
        priority = case when jobs.is_available then excluded.priority else jobs.priority end,
        run_at = case
          when not jobs.is_available or (job_key_mode = 'preserve_run_at' and jobs.attempts = 0) then jobs.run_at
          else excluded.run_at
        end,
        max_attempts = case when jobs.is_available then excluded.max_attempts else jobs.max_attempts end,
        last_error = case when jobs.is_available then null else jobs.last_error end,
        flags = case when jobs.is_available then excluded.flags else jobs.flags end,
        revision = case when jobs.is_available then jobs.revision % 2147483647 + 1 else jobs.revision end
      returning * into job;
      exit when job.key is not null;
    end loop;
  end if;

  if :SCHEMA._private_is_due(job.run_at) then
    perform :SCHEMA._private_notify(1);
  end if;
  return job;
end
$function$;
