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
) returns :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $function$
/* gw:add_job */
declare
  fault text := :SCHEMA._private_job_fault(identifier, queue_name, run_at, max_attempts, job_key, priority, job_key_mode);
  has_one_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
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

  -- From here on cleanup() waits for this transaction, so it deletes none of the names that are looked up.
  lock table only :SCHEMA._private_jobs in row exclusive mode;
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
      job_queue_id, task_id, coalesce(add_job.payload, '{}'), coalesce(add_job.priority, 0), coalesce(add_job.run_at, now()),
      coalesce(add_job.max_attempts, 25), :SCHEMA._private_flag_object(add_job.flags)
    )
    returning * into job;
  else
    job := :SCHEMA._private_put_job(
      nextval(':SCHEMA.jobs_id_seq1'), task_id, job_queue_id,
      row(identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags):::SCHEMA.job_spec,
      job_key_mode
    );
  end if;
  if job.revision > 0 and job_key_mode = 'unsafe_dedupe' then
    return job;
  end if;
  if :SCHEMA._private_is_due(job.run_at) then
    perform :SCHEMA._private_notify(1);
  end if;
  return job;
end
$function$;

create or replace function :SCHEMA.add_jobs(
  specs :SCHEMA.job_spec[],
  job_key_preserve_run_at boolean default false
) returns setof :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
as $function$
/* gw:add_jobs */
declare
  identifiers text[];
  queue_names text[];
  has_keys boolean;
  due bigint;
  task_ids jsonb;
  job_queue_ids jsonb;
  ids bigint[];
begin
  if coalesce(cardinality(specs), 0) = 0 then
    return;
  end if;
  select fault.identifiers, fault.queue_names, fault.has_keys, fault.due
  into identifiers, queue_names, has_keys, due
  from :SCHEMA._private_check_specs(specs) as fault;

  -- A role that may only add jobs has no right to the tables: a function that has one adds them for it.
  if not has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert') then
    if not has_keys and has_function_privilege(':SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[])', 'execute') then
      return query select job.* from :SCHEMA._private_adder_add_jobs(specs) as job;
      return;
    elsif has_keys and has_function_privilege(
      ':SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean)', 'execute'
    ) then
      return query select job.* from :SCHEMA._private_keyed_adder_add_jobs(specs, job_key_preserve_run_at) as job;
      return;
    end if;
  end if;

  -- From here on cleanup() waits for this transaction, so it deletes none of the names that are looked up.
  lock table only :SCHEMA._private_jobs in row exclusive mode;
  task_ids := :SCHEMA._private_task_ids(identifiers);
  if queue_names is not null then
    job_queue_ids := :SCHEMA._private_job_queue_ids(queue_names);
  end if;

  if has_keys then
    select put.ids, put.due into ids, due
    from :SCHEMA._private_put_jobs(
      specs, case when job_key_preserve_run_at then 'preserve_run_at' else 'replace' end, task_ids, job_queue_ids
    ) as put;
    return query
      select jobs.*
      from unnest(ids) with ordinality as added (id, place)
        cross join lateral (select jobs.* from only :SCHEMA._private_jobs as jobs where jobs.id = added.id offset 0) as jobs
      order by added.place;
  else
    return query
      insert into :SCHEMA._private_jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
      select
        (job_queue_ids ->> spec.queue_name)::integer, (task_ids ->> spec.identifier)::integer,
        coalesce(spec.payload, '{}'), coalesce(spec.priority, 0), coalesce(spec.run_at, now()),
        coalesce(spec.max_attempts, 25), :SCHEMA._private_flag_object(spec.flags)
      from unnest(specs) with ordinality as spec
      order by spec.ordinality
      returning *;
  end if;
  perform :SCHEMA._private_notify(due);
end
$function$;

-- Rows are locked in one order everywhere, by id: no change of a job changes it, so two sessions that see different
-- versions of a row still agree on its place, and calls can wait for each other in a row, but never in a ring. add_jobs
-- locks the rows that its keys name in the same order. The statements say "only", as the ids of a child table (an
-- archive, say) are its own. The planner's settings keep a plan from reading the whole table because a session made it
-- when there were few jobs.

create or replace function :SCHEMA.remove_job(job_key text)
returns :SCHEMA._private_jobs language plpgsql volatile strict set search_path = pg_catalog, pg_temp as $function$
/* gw:remove_job */
declare
  job :SCHEMA._private_jobs;
begin
  -- The row waited for may have given its key to a newer one meanwhile: look again.
  loop
    select jobs.* into job from only :SCHEMA._private_jobs as jobs where jobs.key = job_key for update;
    exit when found or not exists (select from only :SCHEMA._private_jobs as jobs where jobs.key = job_key);
  end loop;

  job.run_at := :SCHEMA._private_true_run_at(job.id, job.run_at);
  if job.locked_at >= now() - interval '4 hours' then
    job := :SCHEMA._private_cancel_job(job, 'removed');
  elsif job.id is not null then
    delete from only :SCHEMA._private_jobs as jobs where jobs.id = job.id;
    perform :SCHEMA._private_notify(-1);
  end if;
  return job;
end
$function$;

create or replace function :SCHEMA.complete_jobs(job_ids bigint[])
returns setof :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $function$
/* gw:complete_jobs */
declare
  job :SCHEMA._private_jobs;
begin
  for job in
    with free as (
      select jobs.id
      from only :SCHEMA._private_jobs as jobs
      where jobs.id = any(job_ids)
        and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
      order by jobs.id
      for update
    )
    delete from only :SCHEMA._private_jobs as jobs
    where jobs.id = any(array(select free.id from free))
    returning jobs.*
  loop
    job.run_at := :SCHEMA._private_true_run_at(job.id, job.run_at);
    return next job;
  end loop;
end
$function$;

create or replace function :SCHEMA.permanently_fail_jobs(job_ids bigint[], error_message text default null::text)
returns setof :SCHEMA._private_jobs language sql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $function$
/* gw:permanently_fail_jobs */
with free as (
  select jobs.id
  from only :SCHEMA._private_jobs as jobs
  where jobs.id = any(job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
  order by jobs.id
  for update
)
update only :SCHEMA._private_jobs as jobs set
  last_error = coalesce(error_message, 'Manually marked as failed'),
  attempts = jobs.max_attempts,
  run_at = :SCHEMA._private_true_run_at(jobs.id, jobs.run_at),
  updated_at = now()
where jobs.id = any(array(select free.id from free))
returning jobs.*;
$function$;

create or replace function :SCHEMA.reschedule_jobs(
  job_ids bigint[],
  run_at timestamptz default null::timestamptz,
  priority integer default null::integer,
  attempts integer default null::integer,
  max_attempts integer default null::integer
) returns setof :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $function$
/* gw:reschedule_jobs */
declare
  fault text := :SCHEMA._private_job_fault('', null, run_at, max_attempts, null, priority, null);
  job :SCHEMA._private_jobs;
  due bigint := 0;
begin
  if fault is not null then
    perform :SCHEMA._private_refuse_job(fault, '', null, run_at, max_attempts, null, priority, null);
  elsif attempts not between 0 and 32767 then
    raise exception using errcode = 'numeric_value_out_of_range',
      message = format('Job attempts must be between 0 and 32767, got %s.', attempts);
  end if;

  for job in
    with free as (
      select jobs.id
      from only :SCHEMA._private_jobs as jobs
      where jobs.id = any(job_ids)
        and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
      order by jobs.id
      for update
    )
    update only :SCHEMA._private_jobs as jobs set
      -- A job that waits for a limit is sorted again.
      run_at = coalesce(reschedule_jobs.run_at, :SCHEMA._private_true_run_at(jobs.id, jobs.run_at)),
      priority = coalesce(reschedule_jobs.priority, jobs.priority),
      attempts = coalesce(reschedule_jobs.attempts, jobs.attempts),
      max_attempts = coalesce(reschedule_jobs.max_attempts, jobs.max_attempts),
      updated_at = now()
    where jobs.id = any(array(select free.id from free))
    returning jobs.*
  loop
    if job.is_available and :SCHEMA._private_is_due(job.run_at) then
      due := due + 1;
    end if;
    return next job;
  end loop;
  perform :SCHEMA._private_notify(due);
end
$function$;

-- Takes worker ids, and whole values of locked_by, which name one claim of a worker.
create or replace function :SCHEMA.force_unlock_workers(worker_ids text[])
returns void language sql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:force_unlock_workers */
with held as (
  select jobs.id
  from only :SCHEMA._private_jobs as jobs
  where jobs.locked_at is not null
    and (jobs.locked_by = any(worker_ids) or :SCHEMA._private_worker_of(jobs.locked_by) = any(worker_ids))
  order by jobs.id
  for update
), freed as (
  update only :SCHEMA._private_jobs as jobs set locked_at = null, locked_by = null
  where jobs.id = any(array(select held.id from held))
  returning jobs.is_available and :SCHEMA._private_is_due(jobs.run_at) as is_due
), held_queues as (
  select job_queues.id
  from only :SCHEMA._private_job_queues as job_queues
  where job_queues.locked_at is not null
    and (job_queues.locked_by = any(worker_ids) or :SCHEMA._private_worker_of(job_queues.locked_by) = any(worker_ids))
  order by job_queues.id
  for update
), freed_queues as (
  update only :SCHEMA._private_job_queues as job_queues set locked_at = null, locked_by = null
  where job_queues.id = any(array(select held_queues.id from held_queues))
  returning job_queues.id
)
-- A freed queue may have kept any number of due jobs waiting.
select :SCHEMA._private_notify(
  (select count(*) from freed where freed.is_due) + (select count(*) from freed_queues)
);
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
revoke all on function :SCHEMA._private_adder_add_job(text, json, text, timestamptz, integer, integer, text[]) from public;

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
revoke all on function :SCHEMA._private_keyed_adder_add_job(
  text, json, text, timestamptz, integer, text, integer, text[], text
) from public;

-- For roles that may add jobs and read nothing: see _private_adder_add_job.
create or replace function :SCHEMA._private_adder_add_jobs(specs :SCHEMA.job_spec[])
returns setof :SCHEMA._private_jobs language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:adder_add_jobs */
begin
  if exists (select from unnest(specs) as spec where spec.job_key is not null) then
    raise exception using errcode = 'insufficient_privilege',
      message = 'This role may add jobs without a job key only. Ask the owner of the schema for the grants of a keyed adder.';
  end if;
  return query select job.* from :SCHEMA.add_jobs(specs) as job;
end
$function$;
revoke all on function :SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[]) from public;

create or replace function :SCHEMA._private_keyed_adder_add_jobs(specs :SCHEMA.job_spec[], job_key_preserve_run_at boolean)
returns setof :SCHEMA._private_jobs language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:keyed_adder_add_jobs */
declare
  job :SCHEMA._private_jobs;
  place integer := 0;
  payloads json[] := array(select spec.payload from unnest(specs) with ordinality as spec order by spec.ordinality);
begin
  -- The rows come in the order of the specs.
  for job in select added.* from :SCHEMA.add_jobs(specs, job_key_preserve_run_at) as added loop
    place := place + 1;
    if job.revision > 0 then
      job.payload := coalesce(payloads[place], '{}');
    end if;
    return next job;
  end loop;
end
$function$;
revoke all on function :SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean) from public;
