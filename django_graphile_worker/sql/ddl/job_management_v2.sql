/* gw:install */
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
