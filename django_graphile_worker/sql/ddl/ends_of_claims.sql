/* gw:install */
-- What becomes of a job that is cancelled while it is claimed and whose claim then ends
-- without a result: a removed one is deleted, and so is a replaced one, as its successor
-- carries the payload. Only an array is not in the successor: that job runs once more.
create or replace function :SCHEMA._private_is_dropped(cancellation text, payload json)
returns boolean language sql immutable parallel safe
return case cancellation
        when 'removed' then true
        when 'replaced' then pg_catalog.json_typeof(payload) operator(pg_catalog.<>) 'array'
        else false end;

-- Releases named queues; returns the ids of those that were still held.
create or replace function :SCHEMA._private_release_queues(queue_ids int[], holders text[])
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

-- The usual back-off: the seconds until the next attempt of a job that has failed so often.
create or replace function :SCHEMA._private_backoff(attempts int)
returns float8 language sql immutable parallel safe
return pg_catalog.exp((case when attempts operator(pg_catalog.<) 10 then attempts else 10 end)::float8);

-- How claims end. A claim is identified by the job's id and the whole locked_by, and a row that another transaction is
-- changing at the moment is skipped: the worker tries again. Each function calls _private_record_attempts
-- (history.sql) if the caller says what is to be recorded. Durations are in microseconds, measured by the worker. So are
-- "agos", the times since the ends of the runs: the clocks of workers differ.

-- Deletes finished jobs, which is how nearly every claim ends. The ids are in groups:
-- the first counts[1] of them were claimed with holders[1], the next counts[2] with
-- holders[2], and so on. A batch has the jobs of few claim statements, and the jobs of
-- one claim are found in a single scan of the primary key, at half the cost of a search
-- for each pair of an id and a holder.
--
-- A patient call ends one claim, and waits if another transaction has locked its row: the job of an atomic task is
-- deleted in the transaction of the task.
--
-- With "durations", the jobs are recorded. The caller gives the names of the tasks, which it knows: to look them up for
-- each job takes a quarter of the time. "keeps" are the seconds for which results are kept, null for a job without
-- a result; null for all if there is no result. Without "agos", all jobs end now: the jobs of a busy worker ended up to
-- some hundredths of a second before.
--
-- Returns null if all were deleted, which spares the worker to read and compare their
-- ids; otherwise the ids of those deleted.
create or replace function :SCHEMA._private_complete_claims(
    job_ids bigint[], holders text[], counts int[], is_patient boolean default false, keeping jsonb default null,
    durations bigint[] default null, task_ids int[] default null, identifiers text[] default null,
    agos bigint[] default null, keeps float8[] default null, result_values text[] default null,
    are_payloads_kept boolean[] default null, history_payloads text[] default null, ended_at timestamptz default null
) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(ended_at, clock_timestamp());
    holder text;
    first int := 1;
    claimed_ids bigint[]; locked_tids tid[]; locked_ids bigint[];
    all_tids tid[] := '{}'; deleted_ids bigint[] := '{}';
    attempts :SCHEMA._private_ended_attempt[];
begin
    if is_patient and durations is null then
        delete from only :SCHEMA._private_jobs as job where job.id = job_ids[1] and job.locked_by = holders[1];
        return case when not found then '{}'::bigint[] end;
    end if;
    if is_patient then
        select coalesce(array_agg(locked.tid), '{}'), coalesce(array_agg(locked.id), '{}')
        into all_tids, deleted_ids
        from (
            select job.ctid as tid, job.id
            from only :SCHEMA._private_jobs as job
            where job.id = job_ids[1] and job.locked_by = holders[1]
            for update
        ) as locked;
        holders := '{}';
    end if;
    for place in 1 .. cardinality(holders) loop
        holder := holders[place];
        claimed_ids := job_ids[first:first + counts[place] - 1];
        first := first + counts[place];
        select coalesce(array_agg(locked.tid), '{}'), coalesce(array_agg(locked.id), '{}')
        into locked_tids, locked_ids
        from (
            select job.ctid as tid, job.id
            from only :SCHEMA._private_jobs as job
            where job.id = any (claimed_ids) and job.locked_by = holder
            for update skip locked
        ) as locked;
        all_tids := all_tids || locked_tids;
        deleted_ids := deleted_ids || locked_ids;
    end loop;
    -- In a statement of its own, whose snapshot has the versions that were locked.
    if durations is null then
        delete from only :SCHEMA._private_jobs as job where job.ctid = any (all_tids);
    else
        with gone as (
            delete from only :SCHEMA._private_jobs as job where job.ctid = any (all_tids)
            returning job.id, job.task_id, job.job_queue_id, job.revision, job.created_at, job.run_at, job.attempts,
                job.max_attempts, job.key, job.locked_by, case when keeps is not null then job.payload end as payload
        )
        select array_agg(row(
            gone.id, gone.task_id, gone.job_queue_id, gone.revision, gone.created_at, gone.run_at, gone.attempts,
            gone.max_attempts, gone.key, gone.locked_by, task.identifier, 1, case when given.keep is not null then 1 end,
            this_moment - (coalesce(given.ago, 0) + given.duration) * interval '1 microsecond',
            this_moment - coalesce(given.ago, 0) * interval '1 microsecond', null, null, given.value,
            case when given.is_payload_kept and given.keep is not null then gone.payload::text end,
            given.history_payload, given.keep):::SCHEMA._private_ended_attempt)
        into attempts
        from gone
        join unnest(job_ids, agos, durations, keeps, result_values, are_payloads_kept, history_payloads)
            as given(id, ago, duration, keep, value, is_payload_kept, history_payload) on given.id = gone.id
        left join unnest(task_ids, identifiers) as task(id, identifier) on task.id = gone.task_id;
        perform :SCHEMA._private_record_attempts(attempts, keeping);
    end if;
    return case when cardinality(deleted_ids) < cardinality(job_ids) then deleted_ids end;
end
$$;

-- Locks the rows of claims that are about to end, and returns their places, with null in the place of a claim that has
-- ended or whose row another transaction has locked. A request to stop a job is written under the lock of its row: so a
-- caller that then looks for requests, and ends the other claims at these places, overlooks none.
--
-- Each job is looked up by its id in a subquery of its own, and so are the places by the callers. In a join PostgreSQL
-- could read the primary key from its beginning instead: while a snapshot is held, the statistics say that the table is
-- nearly empty, but the entries of all jobs since then are still there.
create or replace function :SCHEMA._private_lock_claims(job_ids bigint[], tokens text[]) returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    tids tid[];
begin
    select array_agg(locked.tid order by given.ordinality) into tids
    from unnest(job_ids, tokens) with ordinality as given(id, token, ordinality)
    left join lateral (
        select each.ctid as tid from only :SCHEMA._private_jobs as each
        where each.id = given.id and each.locked_by = given.token
        for update skip locked
    ) as locked on true;
    return tids;
end
$$;

-- Stores errors and plans the next attempts; returns the jobs that were still claimed, with the seconds until the next
-- attempt (null: there is none). A job that was cancelled meanwhile ends as cancelled, and has the reason and who
-- cancelled it. With "agos", the attempts are recorded; "keeps" are the seconds for which results are kept.
create or replace function :SCHEMA._private_fail_claims(
    job_ids bigint[], tokens text[], errors text[], delays float8[], permanent boolean[], payloads text[],
    durations bigint[] default null, history_payloads text[] default null, keeping jsonb default null,
    agos bigint[] default null, exception_classes text[] default null, keeps float8[] default null,
    are_payloads_kept boolean[] default null, failed_at timestamptz default null
) returns table (id bigint, seconds_until_next float8, reason text, cancelled_by text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(failed_at, now());
    read_at constant timestamptz := coalesce(failed_at, clock_timestamp());
    tids constant tid[] := :SCHEMA._private_lock_claims(job_ids, tokens);
    failed_ids bigint[]; seconds float8[]; attempts :SCHEMA._private_ended_attempt[];
begin
    return query
    select ended.id, null::float8, ended.reason, ended.cancelled_by
    from :SCHEMA._private_end_cancelled(
        job_ids, tokens, true, durations, errors, history_payloads, keeping, failed_at) as ended;
    with failing as materialized (
        select ended.*, job.attempts, job.run_at, job.key, job.locked_by,
            case when ended.is_payload_kept then job.payload::text end as kept_payload
        from unnest(
            tids, errors, delays, permanent, payloads, agos, durations, exception_classes, keeps, are_payloads_kept,
            history_payloads
        ) as ended(
            tid, error, delay, permanent, payload, ago, duration, exception_class, keep, is_payload_kept,
            history_payload)
        cross join lateral (
            select each.* from only :SCHEMA._private_jobs as each where each.ctid = ended.tid offset 0) as job
    ), failed as (
        update only :SCHEMA._private_jobs as job
        set last_error = failing.error,
            run_at = greatest(this_moment, job.run_at) + interval '1 second' * coalesce(
                failing.delay, :SCHEMA._private_backoff(job.attempts)),
            attempts = case when failing.permanent then job.max_attempts else job.attempts end,
            payload = coalesce(failing.payload::json, job.payload),
            updated_at = this_moment,
            locked_by = null,
            locked_at = null
        from failing
        where job.ctid = failing.tid
        returning job.id, job.task_id, job.job_queue_id, job.revision, job.created_at, job.max_attempts, failing.*,
            case when job.attempts < job.max_attempts then date_part('epoch', job.run_at - this_moment) end as seconds
    )
    select array_agg(failed.id), array_agg(failed.seconds), array_agg(row(
        failed.id, failed.task_id, failed.job_queue_id, failed.revision, failed.created_at, failed.run_at,
        failed.attempts, failed.max_attempts, failed.key, failed.locked_by, null,
        case when failed.seconds is null then 3 else 2 end,
        case when failed.keep is not null then case when failed.seconds is null then 2 else 0 end end,
        read_at - (failed.ago + failed.duration) * interval '1 microsecond',
        read_at - failed.ago * interval '1 microsecond', failed.error, failed.exception_class, null,
        failed.kept_payload, failed.history_payload,
        -- Not before the next attempt has had the time to end.
        failed.keep + coalesce(failed.seconds, 0)):::SCHEMA._private_ended_attempt)
    into failed_ids, seconds, attempts
    from failed;
    if agos is not null then
        perform :SCHEMA._private_record_attempts(attempts, keeping);
    end if;
    return query
    select each.id, each.until_next, null, null from unnest(failed_ids, seconds) as each(id, until_next);
end
$$;

-- Gives jobs back as if they had never been claimed, with another payload where one is given; returns the ids of those
-- that were still claimed. A job that was cancelled meanwhile ends as cancelled. The jobs that have a duration had
-- begun, and the history tells of them.
create or replace function :SCHEMA._private_return_claims(
    job_ids bigint[], tokens text[], payloads text[] default null, durations bigint[] default null,
    history_payloads text[] default null, keeping jsonb default null, returned_at timestamptz default null
) returns table (id bigint, reason text, cancelled_by text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(returned_at, clock_timestamp());
    tids constant tid[] := :SCHEMA._private_lock_claims(job_ids, tokens);
    returned_ids bigint[]; attempts :SCHEMA._private_ended_attempt[];
begin
    return query
    select ended.id, ended.reason, ended.cancelled_by
    from :SCHEMA._private_end_cancelled(
        job_ids, tokens, true, durations, null, history_payloads, keeping, returned_at) as ended;
    with returning_job as materialized (
        select ended.*, job.id, job.task_id, job.job_queue_id, job.revision, job.created_at, job.run_at, job.attempts,
            job.max_attempts, job.key, job.locked_by, marker.attempts as attempts_before,
            :SCHEMA._private_is_dropped(marker.kind, coalesce(ended.payload::json, job.payload)) as is_dropped,
            marker.kind = 'removed' is true as is_removed
        from unnest(tids, payloads, durations, history_payloads) as ended(tid, payload, duration, history_payload)
        cross join lateral (
            select each.* from only :SCHEMA._private_jobs as each where each.ctid = ended.tid offset 0) as job
        left join :SCHEMA._private_cancellations as marker
            on marker.job_id = job.id and marker.locked_by = job.locked_by
    ), dropped as (
        delete from only :SCHEMA._private_jobs as job
        where job.ctid = any (array(select tid from returning_job where is_dropped))
    ), returned as (
        update only :SCHEMA._private_jobs as job
        set payload = coalesce(returning_job.payload::json, job.payload),
            attempts = greatest(coalesce(returning_job.attempts_before, job.attempts) - 1, 0),
            locked_by = null,
            locked_at = null
        from returning_job
        where job.ctid = returning_job.tid and not returning_job.is_dropped
    )
    select array_agg(job.id), array_agg(row(
        job.id, job.task_id, job.job_queue_id, job.revision, job.created_at, job.run_at, job.attempts, job.max_attempts,
        job.key, job.locked_by, null, case when job.duration is null then 6 else 4 end,
        case when job.is_removed then 3 end, this_moment - job.duration * interval '1 microsecond', this_moment,
        null, null, null, null, job.history_payload, null):::SCHEMA._private_ended_attempt)
        filter (where job.duration is not null or job.is_removed)
    into returned_ids, attempts
    from returning_job as job;
    perform :SCHEMA._private_record_attempts(attempts, keeping);
    return query select each.id, null, null from unnest(returned_ids) as each(id);
end
$$;

-- Deletes claimed jobs that were not started in time, and records it: outcome 9 of the history, status 5 of the results.
-- Returns the ids of the jobs that were still claimed.
create or replace function :SCHEMA._private_expire_claims(
    job_ids bigint[], tokens text[], expiries timestamptz[], keeping jsonb,
    expired_at timestamptz default null
) returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(expired_at, clock_timestamp());
    tids constant tid[] := :SCHEMA._private_lock_claims(job_ids, tokens);
    attempts :SCHEMA._private_ended_attempt[];
begin
    with gone as (
        delete from only :SCHEMA._private_jobs as job where job.ctid = any (tids) returning job.*
    )
    select array_agg(row(
        gone.id, gone.task_id, gone.job_queue_id, gone.revision, gone.created_at, gone.run_at,
        -- The attempt that the claim counted was none.
        greatest(gone.attempts - 1, 0), gone.max_attempts, gone.key, gone.locked_by, null, 9, 5, null, this_moment,
        'Expired: it was not started by ' || ended.expiry || '.', 'django_graphile_worker.exceptions.JobExpiredError',
        null, null, null, null):::SCHEMA._private_ended_attempt order by gone.id)
    into attempts
    from gone
    join unnest(job_ids, expiries) as ended(id, expiry) on ended.id = gone.id;
    perform :SCHEMA._private_record_attempts(attempts, keeping);
    perform :SCHEMA._private_count_expired(array_agg(task.identifier), this_moment)
    from unnest(attempts) as attempt
    join only :SCHEMA._private_tasks as task on task.id = attempt.task_id;
    return query select attempt.job_id from unnest(attempts) as attempt;
end
$$;

-- Marks a job that a worker holds, and requests its worker to stop it. The caller has locked the row. A locked_by of
-- another worker than those of this package may repeat, so only what is younger than the lock is of this claim.
create or replace function :SCHEMA._private_request_stop(job :SCHEMA._private_jobs, reason text, cancelled_by text)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    -- The time of a lock of this package moves on while the job runs.
    is_unique constant boolean := starts_with(job.locked_by, 'django-worker-');
begin
    update :SCHEMA._private_cancellations as marker set kind = 'removed'
    where marker.job_id = job.id and marker.locked_by = job.locked_by
        and (is_unique or marker.cancelled_at >= job.locked_at);
    if not found then
        perform :SCHEMA._private_cancel_job(job, 'removed');
    end if;
    insert into :SCHEMA._private_stop_requests as known (job_id, token, worker_id, reason, requested_by)
    values (job.id, job.locked_by, :SCHEMA._private_worker_of(job.locked_by), _private_request_stop.reason,
        cancelled_by)
    on conflict on constraint stop_requests_pkey do update set
        reason = excluded.reason, requested_by = excluded.requested_by, requested_at = excluded.requested_at
    where not is_unique and known.requested_at < job.locked_at;
end
$$;

-- Whether a worker holds a lock. As in remove_job(), a lock of four hours is that of a dead worker; but a registered
-- worker is alive.
create or replace function :SCHEMA._private_is_held(locked_at timestamptz, locked_by text)
returns boolean language sql stable
return locked_at is not null and (
    locked_at >= pg_catalog.now() - interval '4 hours' or exists (
        select from only :SCHEMA._private_workers as worker
        where worker.id = :SCHEMA._private_worker_of(locked_by)));

-- Cancels jobs, and says of each id what became of it:
--   removed      the job waited, and is deleted;
--   stopping     a worker of this package runs it, and is asked to stop it;
--   unstoppable  another worker runs it, which cannot be asked; the job is not tried again;
--   ended        the job has failed for good, or a result of it is kept;
--   unknown      there is neither a job nor a result.
-- "job" is the row of the job before the call. Of two calls for one run, the first says who and why.
create or replace function :SCHEMA._private_cancel_jobs(
    job_ids bigint[], reason text, cancelled_by text, is_notified boolean, keeping jsonb
) returns table (id bigint, fate text, job :SCHEMA._private_jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    locked_jobs :SCHEMA._private_jobs[]; fates text[];
begin
    -- By id, as everywhere (public_functions.sql says why).
    select array_agg(locked.row order by (locked.row).id) into locked_jobs
    from (
        select jobs as row from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (job_ids) order by jobs.id for update
    ) as locked;
    select array_agg(case
            when is_held.value and starts_with(each.locked_by, 'django-worker-') then 'stopping'
            when is_held.value then 'unstoppable'
            when each.attempts >= each.max_attempts and marker.job_id is null then 'ended'
            else 'removed' end order by each.ordinality)
    into fates
    from unnest(locked_jobs) with ordinality as each
    cross join lateral (select :SCHEMA._private_is_held(each.locked_at, each.locked_by) as value) as is_held
    left join :SCHEMA._private_cancellations as marker
        on marker.job_id = each.id and marker.locked_by = each.locked_by;

    for place in 1 .. coalesce(cardinality(locked_jobs), 0) loop
        -- A job that waits for a limit is parked at infinity.
        locked_jobs[place].run_at := :SCHEMA._private_true_run_at(locked_jobs[place].id, locked_jobs[place].run_at);
        if fates[place] in ('stopping', 'unstoppable') then
            perform :SCHEMA._private_request_stop(locked_jobs[place], reason, cancelled_by);
        end if;
    end loop;
    delete from only :SCHEMA._private_jobs as jobs
    where jobs.id = any (array(
        select (locked_jobs[place]).id from generate_subscripts(locked_jobs, 1) as place where fates[place] = 'removed'));
    perform :SCHEMA._private_record_attempts(array_agg(:SCHEMA._private_cancelled_attempt(
        locked_jobs[place], null, null, clock_timestamp(), reason, cancelled_by, null, null)), keeping)
    from generate_subscripts(locked_jobs, 1) as place
    where fates[place] = 'removed';

    if is_notified and 'stopping' = any (fates) then
        perform :SCHEMA._private_notify_control();
    end if;

    return query
    select (locked_jobs[place]).id, fates[place], locked_jobs[place]
    from generate_subscripts(locked_jobs, 1) as place;
    return query
    select missing.id, case when :SCHEMA._private_has_result(missing.id) then 'ended' else 'unknown' end,
        null:::SCHEMA._private_jobs
    from (
        select given.id from unnest(job_ids) as given(id)
        except select each.id from unnest(locked_jobs) as each
    ) as missing;
end
$$;

-- Cancels the job with this key, as _private_cancel_jobs; returns nothing if there is none.
create or replace function :SCHEMA._private_cancel_by_key(
    job_key text, reason text, cancelled_by text, is_notified boolean, keeping jsonb
) returns table (id bigint, fate text, job :SCHEMA._private_jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    found_id bigint;
begin
    -- As in remove_job(): the row waited for may have given its key to a newer one meanwhile.
    loop
        select jobs.id into found_id from only :SCHEMA._private_jobs as jobs where jobs.key = job_key for update;
        exit when found or not exists (select from only :SCHEMA._private_jobs as jobs where jobs.key = job_key);
    end loop;
    if found_id is not null then
        return query
        select * from :SCHEMA._private_cancel_jobs(array[found_id], reason, cancelled_by, is_notified, keeping);
    end if;
end
$$;

-- Ends claims of jobs that were cancelled while they were claimed: deletes the jobs and their requests, and records it.
-- Returns the rows of the jobs as they were before they were cancelled. If "is_requested", only the claims end for
-- which there is a request; otherwise all of them do. Durations are null for a job that never began or whose worker
-- died.
create or replace function :SCHEMA._private_end_cancelled(
    job_ids bigint[], tokens text[], is_requested boolean, durations bigint[], errors text[], history_payloads text[],
    keeping jsonb, ended_at timestamptz default null
) returns table (id bigint, duration bigint, reason text, cancelled_by text, job :SCHEMA._private_jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(ended_at, clock_timestamp());
    claim record; marked record;
    attempts :SCHEMA._private_ended_attempt[];
begin
    if is_requested and not exists (select from only :SCHEMA._private_stop_requests) then
        return;
    end if;
    for claim in
        select given.*, coalesce(request.reason, '') as reason, coalesce(request.requested_by, '') as requested_by
        from unnest(:SCHEMA._private_lock_claims(job_ids, tokens), job_ids, tokens, durations, errors, history_payloads)
            as given(tid, id, token, duration, error, payload)
        left join :SCHEMA._private_stop_requests as request
            on request.job_id = given.id and request.token = given.token
        where given.tid is not null and (request.job_id is not null or not is_requested)
    loop
        delete from only :SCHEMA._private_jobs as each where each.ctid = claim.tid returning each.* into job;
        delete from :SCHEMA._private_stop_requests as request
        where request.job_id = claim.id and request.token = claim.token;
        delete from :SCHEMA._private_cancellations as marker
        where marker.job_id = claim.id and marker.locked_by = claim.token
        returning marker.attempts, marker.job_key into marked;
        job.attempts := coalesce(marked.attempts, job.attempts);
        job.key := coalesce(job.key, marked.job_key);
        attempts := array_append(attempts, :SCHEMA._private_cancelled_attempt(
            job, claim.token, this_moment - claim.duration * interval '1 microsecond', this_moment, claim.reason,
            claim.requested_by, claim.error, claim.payload));
        id := claim.id;
        duration := claim.duration;
        reason := claim.reason;
        cancelled_by := claim.requested_by;
        return next;
    end loop;
    perform :SCHEMA._private_record_attempts(attempts, keeping);
end
$$;

-- Ends the claims of dead workers on jobs that were cancelled. Without workers: the claims of workers that are not
-- registered and have held the jobs for so many seconds.
create or replace function :SCHEMA._private_end_cancelled_of(
    dead_workers text[], older_than float8, keeping jsonb, ended_at timestamptz default null
) returns table (id bigint, duration bigint, reason text, cancelled_by text, job :SCHEMA._private_jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    ids bigint[]; tokens text[];
begin
    select array_agg(request.job_id), array_agg(request.token) into ids, tokens
    from only :SCHEMA._private_stop_requests as request
    cross join lateral (
        select from only :SCHEMA._private_jobs as each
        where each.id = request.job_id and each.locked_by = request.token
            and (request.requested_at >= each.locked_at or starts_with(each.locked_by, 'django-worker-'))
            and (dead_workers is not null
                or each.locked_at < coalesce(ended_at, now()) - interval '1 second' * older_than)
    ) as locked
    where request.worker_id = any (dead_workers) or request.token = any (dead_workers)
        or (dead_workers is null and not exists (
            select from only :SCHEMA._private_workers as worker where worker.id = request.worker_id));
    if ids is not null then
        return query
        select * from :SCHEMA._private_end_cancelled(ids, tokens, true, null, null, null, keeping, ended_at);
    end if;
end
$$;
