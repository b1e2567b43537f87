/* gw:install */
-- How claims end that do not succeed, as in end_claims_v2.sql, with each job looked up by
-- its id in a subquery of its own. In a join PostgreSQL could read the primary key from
-- its beginning instead: while a snapshot is held, the statistics say that the table is
-- nearly empty, but the entries of all jobs since then are still there.

-- Stores errors and plans the next attempts; returns the jobs that were still claimed,
-- with the seconds until the next attempt (null: there is none).
create function :SCHEMA._private_fail_claims_v3(
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
        select job.tid, ended.error, ended.delay, ended.permanent, ended.payload
        from unnest(job_ids, holders, errors, delays, permanent, payloads)
            as ended(id, holder, error, delay, permanent, payload)
        cross join lateral (
            select each.ctid as tid from only :SCHEMA._private_jobs as each
            where each.id = ended.id and each.locked_by = ended.holder
            for update skip locked
        ) as job
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

-- Gives jobs back as if they had never been claimed, with another payload where one is
-- given; returns the ids of those that were still claimed.
create function :SCHEMA._private_return_claims_v3(job_ids bigint[], holders text[], payloads text[] default null)
returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with returning_job as materialized (
        select job.tid, ended.payload, marker.attempts,
            :SCHEMA._private_is_dropped(marker.kind, coalesce(ended.payload::json, job.payload)) as is_dropped
        from unnest(job_ids, holders, payloads) as ended(id, holder, payload)
        cross join lateral (
            select each.ctid as tid, each.id, each.locked_by, each.payload from only :SCHEMA._private_jobs as each
            where each.id = ended.id and each.locked_by = ended.holder
            for update skip locked
        ) as job
        left join :SCHEMA._private_cancellations as marker
            on marker.job_id = job.id and marker.locked_by = job.locked_by
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
