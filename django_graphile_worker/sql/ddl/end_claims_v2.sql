/* gw:install */
-- How claims end. A claim is identified by the job's id and the whole locked_by, which
-- names the worker and the claim statement and never repeats: a statement that arrives
-- late, or comes from a worker whose lease is over, finds another locked_by and changes
-- nothing. A row that another transaction is changing at the moment is skipped and
-- tried again by the caller, so that one such transaction never delays a whole batch.
--
-- Planner settings are pinned: each statement has one right plan, whatever the
-- statistics say.

-- Deletes finished jobs; returns the ids of those deleted.
create function :SCHEMA._private_complete_claims_v2(job_ids bigint[], holders text[])
returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    delete from only :SCHEMA._private_jobs as gone
    where gone.ctid = any (array(
        select job.ctid
        from unnest(job_ids, holders) as ended(id, holder)
        join only :SCHEMA._private_jobs as job on job.id = ended.id
        where job.locked_by = ended.holder
        for update of job skip locked))
    returning gone.id;
end
$$;

-- Stores errors and plans the next attempts; returns the jobs that were still claimed,
-- with the seconds until the next attempt (null: there is none).
create function :SCHEMA._private_fail_claims_v2(
    job_ids bigint[], holders text[], errors text[], delays float8[], permanent boolean[], payloads text[],
    failed_at timestamptz default null
) returns table (failed_id bigint, seconds_until_next float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(failed_at, now());
begin
    return query
    with failing as materialized (
        select job.ctid as tid, ended.error, ended.delay, ended.permanent, ended.payload
        from unnest(job_ids, holders, errors, delays, permanent, payloads)
            as ended(id, holder, error, delay, permanent, payload)
        join only :SCHEMA._private_jobs as job on job.id = ended.id
        where job.locked_by = ended.holder
        for update of job skip locked
    )
    update only :SCHEMA._private_jobs as job
    set last_error = failing.error,
        run_at = greatest(this_moment, job.run_at) + interval '1 second' * coalesce(
            failing.delay, exp(least(job.attempts, 10))),
        attempts = case when failing.permanent then job.max_attempts else job.attempts end,
        payload = coalesce(failing.payload::json, job.payload),
        updated_at = this_moment,
        locked_by = null,
        locked_at = null
    from failing
    where job.ctid = failing.tid
    returning job.id, case when job.attempts < job.max_attempts then
        date_part('epoch', job.run_at - this_moment) end;
end
$$;

-- What becomes of a job that is cancelled while it is claimed and whose claim then ends
-- without a result: a removed one is deleted, and so is a replaced one, as its successor
-- carries the payload. Only an array is not in the successor: that job runs once more.
create function :SCHEMA._private_is_dropped(cancellation text, payload json)
returns boolean language sql immutable parallel safe
return case cancellation
        when 'removed' then true
        when 'replaced' then pg_catalog.json_typeof(payload) operator(pg_catalog.<>) 'array'
        else false end;

-- Gives jobs back as if they had never been claimed, with another payload where one is
-- given; returns the ids of those that were still claimed.
create function :SCHEMA._private_return_claims_v2(job_ids bigint[], holders text[], payloads text[] default null)
returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with returning_job as materialized (
        select job.ctid as tid, ended.payload, marker.attempts,
            :SCHEMA._private_is_dropped(marker.kind, coalesce(ended.payload::json, job.payload)) as is_dropped
        from unnest(job_ids, holders, payloads) as ended(id, holder, payload)
        join only :SCHEMA._private_jobs as job on job.id = ended.id
        left join :SCHEMA._private_cancellations as marker
            on marker.job_id = job.id and marker.locked_by = job.locked_by
        where job.locked_by = ended.holder
        for update of job skip locked
    ), dropped as (
        delete from only :SCHEMA._private_jobs as job
        where job.ctid = any (array(select tid from returning_job where is_dropped))
        returning job.id
    ), returned as (
        update only :SCHEMA._private_jobs as job
        set payload = coalesce(returning_job.payload::json, job.payload),
            attempts = greatest(coalesce(returning_job.attempts, job.attempts) - 1, 0),
            locked_by = null,
            locked_at = null
        from returning_job
        where job.ctid = returning_job.tid and not returning_job.is_dropped
        returning job.id
    )
    select dropped.id from dropped union all select returned.id from returned;
end
$$;

-- Releases named queues; returns the ids of those that were still held.
create function :SCHEMA._private_release_queues_v2(queue_ids int[], holders text[])
returns setof int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    update only :SCHEMA._private_job_queues as queue
    set locked_by = null, locked_at = null
    from unnest(queue_ids, holders) as ended(id, holder)
    where queue.id = ended.id and queue.locked_by = ended.holder
    returning queue.id;
end
$$;

-- Finds those of the queues that are free and have a job to run. To be called after the
-- transaction that released them: a job that was added before its commit notified
-- workers that could not take it.
create function :SCHEMA._private_waiting_queues_v2(queue_ids int[], seen_at timestamptz default null)
returns setof int
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = off set enable_incremental_sort = off set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select queue.id
    from unnest(queue_ids) as released(id)
    join only :SCHEMA._private_job_queues as queue on queue.id = released.id
    where queue.is_available and exists (
        select from only :SCHEMA._private_jobs as job
        where job.is_available and job.job_queue_id is not null
            and job.job_queue_id = queue.id and job.run_at <= coalesce(seen_at, now())
        order by job.run_at
        limit 1);
end
$$;

-- The first job that falls due in a queue, whatever its task and its priority.
create index jobs_due_by_queue_index on :SCHEMA._private_jobs (job_queue_id, run_at)
    where is_available and job_queue_id is not null;
