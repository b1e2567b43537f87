/* gw:install */
-- The jobs of each named queue: one index that begins with the queue, and what reads it.

-- A claim of a queue goes through its tasks and their priorities, and takes the first jobs of each.
create index jobs_in_queue_index on :SCHEMA._private_jobs (job_queue_id, task_id, priority, run_at, id)
    where is_available and job_queue_id is not null;

-- Finds those of the queues that are free and have a job to run. To be called after the
-- transaction that released them: a job that was added before its commit notified
-- workers that could not take it. In each queue it goes from one priority of one task to
-- the next, until a job is due there.
create function :SCHEMA._private_waiting_queues_v3(queue_ids int[], seen_at timestamptz default null)
returns setof int
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = off set enable_incremental_sort = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(seen_at, now());
begin
    return query
    select queue.id
    from unnest(queue_ids) as released(id)
    join only :SCHEMA._private_job_queues as queue on queue.id = released.id
    where queue.is_available and exists (
        with recursive stair (task_id, priority, run_at) as (
            select -2147483648, 0::smallint, timestamptz 'infinity'
            union all
            select ahead.task_id, ahead.priority, ahead.run_at
            from stair
            cross join lateral (
                select job.task_id, job.priority, job.run_at
                from only :SCHEMA._private_jobs as job
                where job.is_available and job.job_queue_id is not null
                    and (job.job_queue_id, job.task_id, job.priority) > (queue.id, stair.task_id, stair.priority)
                    and job.job_queue_id <= queue.id
                order by job.job_queue_id, job.task_id, job.priority, job.run_at
                limit 1
            ) as ahead
            where stair.run_at > this_moment
        )
        select from stair where stair.run_at <= this_moment);
end
$$;
