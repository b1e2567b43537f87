/* gw:install */
-- Rows are locked in one order everywhere, by key and then by id: the order in
-- which add_jobs takes its keys. So two calls can wait for each other in a row,
-- but never in a ring.

create or replace function :SCHEMA.remove_job(job_key text)
returns :SCHEMA._private_jobs language plpgsql volatile strict set search_path = pg_catalog, pg_temp as $function$
/* gw:remove_job */
declare
  job :SCHEMA._private_jobs;
begin
  -- The row waited for may have given its key to a newer one meanwhile: look again.
  loop
    select jobs.* into job from :SCHEMA._private_jobs as jobs where jobs.key = job_key for update;
    exit when found or not exists (select from :SCHEMA._private_jobs as jobs where jobs.key = job_key);
  end loop;

  if job.locked_at >= now() - interval '4 hours' then
    update :SCHEMA._private_jobs as jobs set
      key = null,
      attempts = jobs.max_attempts,
      updated_at = greatest(clock_timestamp(), jobs.locked_at + interval '1 microsecond')
    where jobs.id = job.id
    returning jobs.* into job;
  elsif job.id is not null then
    delete from :SCHEMA._private_jobs as jobs where jobs.id = job.id;
    perform :SCHEMA._private_notify(-1);
  end if;
  return job;
end
$function$;

create or replace function :SCHEMA.complete_jobs(job_ids bigint[])
returns setof :SCHEMA._private_jobs language sql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:complete_jobs */
with free as (
  select jobs.id
  from :SCHEMA._private_jobs as jobs
  where jobs.id = any(job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
  order by jobs.key collate "C", jobs.id
  for update
)
delete from :SCHEMA._private_jobs as jobs
using free
where jobs.id = free.id
returning jobs.*;
$function$;

create or replace function :SCHEMA.permanently_fail_jobs(job_ids bigint[], error_message text default null::text)
returns setof :SCHEMA._private_jobs language sql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:permanently_fail_jobs */
with free as (
  select jobs.id
  from :SCHEMA._private_jobs as jobs
  where jobs.id = any(job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
  order by jobs.key collate "C", jobs.id
  for update
)
update :SCHEMA._private_jobs as jobs set
  last_error = coalesce(error_message, 'Manually marked as failed'),
  attempts = jobs.max_attempts,
  updated_at = now()
from free
where jobs.id = free.id
returning jobs.*;
$function$;

create or replace function :SCHEMA.reschedule_jobs(
  job_ids bigint[],
  run_at timestamptz default null::timestamptz,
  priority integer default null::integer,
  attempts integer default null::integer,
  max_attempts integer default null::integer
) returns setof :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
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
      from :SCHEMA._private_jobs as jobs
      where jobs.id = any(job_ids)
        and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
      order by jobs.key collate "C", jobs.id
      for update
    )
    update :SCHEMA._private_jobs as jobs set
      run_at = coalesce(reschedule_jobs.run_at, jobs.run_at),
      priority = coalesce(reschedule_jobs.priority, jobs.priority),
      attempts = coalesce(reschedule_jobs.attempts, jobs.attempts),
      max_attempts = coalesce(reschedule_jobs.max_attempts, jobs.max_attempts),
      updated_at = now()
    from free
    where jobs.id = free.id
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

create or replace function :SCHEMA.force_unlock_workers(worker_ids text[])
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:force_unlock_workers */
declare
  due bigint;
  queues bigint;
begin
  with held as (
    select jobs.id
    from :SCHEMA._private_jobs as jobs
    where jobs.locked_by = any(worker_ids)
    order by jobs.key collate "C", jobs.id
    for update
  ), freed as (
    update :SCHEMA._private_jobs as jobs set locked_at = null, locked_by = null
    from held
    where jobs.id = held.id
    returning jobs.is_available and :SCHEMA._private_is_due(jobs.run_at) as is_due
  )
  select count(*) filter (where freed.is_due) into due from freed;

  with held as (
    select job_queues.id
    from :SCHEMA._private_job_queues as job_queues
    where job_queues.locked_by = any(worker_ids)
    order by job_queues.id
    for update
  )
  update :SCHEMA._private_job_queues as job_queues set locked_at = null, locked_by = null
  from held
  where job_queues.id = held.id;
  get diagnostics queues = row_count;

  -- A freed queue may have kept any number of due jobs waiting.
  perform :SCHEMA._private_notify(due + queues);
end
$function$;
