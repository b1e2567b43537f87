/* gw:install */
-- Jobs that were not started in time. A job's own time is a flag, "expires:" and the seconds since 1970: it travels with
-- the row, and any program that adds jobs can set it. The worker that is about to start such a job ends it instead.

-- How many jobs expired, beside the other counts of the dashboard.
alter table :SCHEMA._private_statistics add column expired bigint not null default 0;

-- Adds to the counts of this minute, and of the longer periods that it is a part of. In the order of the primary key, as
-- _private_fold_statistics_v1, so that two sessions cannot wait for each other in a circle.
create function :SCHEMA._private_count_expired_v1(identifiers text[], expired_at timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    insert into :SCHEMA._private_statistics as known (
        period_seconds, started_at, task_identifier, succeeded, failed, permanently_failed, interrupted,
        duration_seconds, wait_seconds, durations, waits, expired)
    select period.seconds, to_timestamp(floor(date_part('epoch', expired_at) / period.seconds) * period.seconds),
        name.task, 0, 0, 0, 0, 0, 0, array_fill(0, array[48]), array_fill(0, array[48]), count(*)
    from unnest(identifiers) as ended(task)
    cross join (values (60), (600), (3600), (86400)) as period (seconds)
    cross join lateral (values (ended.task), ('')) as name (task)
    group by 1, 2, 3
    order by 1, 2, name.task collate "C"
    on conflict on constraint statistics_pkey do update set expired = known.expired + excluded.expired
$$;

-- Deletes claimed jobs that were not started in time, and records it: outcome 9 of the history, status 5 of the results.
-- Returns the ids of the jobs that were still claimed.
create function :SCHEMA._private_expire_claims_v1(
    job_ids bigint[], holders text[], expiries timestamptz[], exception_class text, identifiers text[], keeps float8[],
    default_keep float8, has_history boolean, expired_at timestamptz default null
) returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(expired_at, clock_timestamp());
    tids tid[]; errors text[]; removed :SCHEMA._private_jobs[]; ended_ids bigint[]; counted text[];
    stored :SCHEMA._private_results[];
begin
    select array_agg(job.tid order by job.id), array_agg(job.id order by job.id),
        array_agg('Expired: it was not started by ' || ended.expiry || '.' order by job.id)
    into tids, ended_ids, errors
    from unnest(job_ids, holders, expiries) as ended(id, holder, expiry)
    cross join lateral (
        select each.ctid as tid, each.id from only :SCHEMA._private_jobs as each
        where each.id = ended.id and each.locked_by = ended.holder
        for update skip locked
    ) as job;
    if ended_ids is null then
        return;
    end if;
    with gone as (
        delete from only :SCHEMA._private_jobs as job where job.ctid = any (tids) returning job
    )
    select array_agg(gone.job order by (gone.job).id) into removed from gone;
    with told as materialized (
        select job.id, job.created_at, job.run_at, job.revision, job.key, greatest(job.attempts - 1, 0) as attempts,
            task.identifier, :SCHEMA._private_worker_of(job.locked_by) as worker_id,
            (select queue.queue_name from only :SCHEMA._private_job_queues as queue
            where queue.id = job.job_queue_id) as queue_name,
            errors[job.ordinality] as error,
            :SCHEMA._private_keep_of(task.identifier, identifiers, keeps, default_keep) as keep
        from unnest(removed) with ordinality as job
        cross join lateral (
            select each.identifier from only :SCHEMA._private_tasks as each where each.id = job.task_id
        ) as task
    ), written as (
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, error)
        select this_moment, null, told.created_at, told.run_at, told.id, told.attempts, 9, told.identifier,
            told.worker_id, told.queue_name, told.key, told.error
        from told
        where has_history
    )
    select array_agg(row(
            told.id, told.identifier, told.queue_name, told.key, 5, told.revision, null, told.created_at, null, null,
            this_moment, null, :SCHEMA._private_attempt(null, null, this_moment, exception_class, told.error),
            this_moment + told.keep * interval '1 second'):::SCHEMA._private_results),
        array_agg(told.identifier)
    into stored, counted
    from told;
    if :SCHEMA._private_records_anything(keeps, default_keep, has_history) then
        perform :SCHEMA._private_store_results_v1(stored);
    end if;
    perform :SCHEMA._private_count_expired_v1(counted, this_moment);
    return query select unnest(ended_ids);
end
$$;
