/* gw:install */
-- How jobs are cancelled. A job that waits is deleted. A job that runs stays until its worker has stopped it: it gets a
-- marker in _private_cancellations and a request in the table below.
--
-- The marker (kind 'removed') is that of remove_job(): the job has lost its key and the attempts that it had left. So
-- no statement that ends its claim, of any version and also of Node.js, lets it run again: a failure is final, and a
-- job that is returned or recovered is deleted. The marker tells no worker to stop.
--
-- The request tells the worker to stop the run, and keeps who asked for it and why. The statements that end claims look
-- for it and then end the job as cancelled, whatever else they were called for.

create table :SCHEMA._private_stop_requests (
  job_id bigint not null,
  -- The request counts only while this is the job's locked_by; any other request is settled, and is deleted later.
  token text not null,
  -- The worker of the token.
  worker_id text not null,
  reason text not null default '',
  requested_by text not null default '',
  requested_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint stop_requests_pkey primary key (job_id, token)
);
alter table :SCHEMA._private_stop_requests enable row level security;

-- Whoever may change jobs may also cancel them: the roles that had this right before this table existed, and the policy
-- is for roles that get it later.
create policy stop_requests_by_grant on :SCHEMA._private_stop_requests using (true) with check (true);
do $do$
declare
  role text;
begin
  for role in
    select distinct case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end
    from pg_class as jobs
      cross join lateral (
        select acl.* from aclexplode(jobs.relacl) as acl
        union all
        select acl.*
        from pg_attribute as attribute
          cross join lateral aclexplode(attribute.attacl) as acl
        where attribute.attrelid = jobs.oid
      ) as granted
    where jobs.oid = ':SCHEMA._private_jobs'::regclass
      and granted.privilege_type = 'UPDATE'
      and granted.grantee <> jobs.relowner
  loop
    execute format('grant select, insert, update, delete on :SCHEMA._private_stop_requests to %s', role);
  end loop;
end
$do$;

-- 4: cancelled; "value" then has who cancelled the job and why, as JSON: {"by": text, "reason": text}.
alter table :SCHEMA._private_results drop constraint results_status_check;
alter table :SCHEMA._private_results add constraint results_status_check check (status between 0 and 9) not valid;

create function :SCHEMA._private_cancellation_text(cancelled_by text, reason text)
returns text language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select 'Cancelled' || case when cancelled_by <> '' then ' by ' || cancelled_by else '' end
        || case when reason <> '' then ': ' || reason else '.' end
$$;

-- Records that jobs were cancelled: outcome 8 of the history, status 4 of the results. "cancelled" has the rows of the
-- jobs; the other arrays are parallel. "started" is null for a job that did not run, or whose worker died.
create function :SCHEMA._private_record_cancelled_v1(
    cancelled :SCHEMA._private_jobs[], worker_ids text[], started timestamptz[], reasons text[], names text[],
    errors text[], history_payloads text[], exception_class text, ended_at timestamptz, identifiers text[],
    keeps float8[], default_keep float8, has_history boolean
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    stored :SCHEMA._private_results[];
begin
    if cancelled is null or not :SCHEMA._private_records_anything(keeps, default_keep, has_history) then
        return;
    end if;
    with told as materialized (
        select job.id, job.created_at, job.run_at, job.revision, job.key, job.attempts, task.identifier,
            (select queue.queue_name from only :SCHEMA._private_job_queues as queue
            where queue.id = job.job_queue_id) as queue_name,
            worker_ids[job.ordinality] as worker_id, started[job.ordinality] as started_at,
            json_build_object('by', names[job.ordinality], 'reason', reasons[job.ordinality])::text as who_and_why,
            concat_ws(E'\n', :SCHEMA._private_cancellation_text(names[job.ordinality], reasons[job.ordinality]),
                errors[job.ordinality]) as error,
            history_payloads[job.ordinality] as payload,
            :SCHEMA._private_keep_of(task.identifier, identifiers, keeps, default_keep) as keep
        from unnest(cancelled) with ordinality as job
        cross join lateral (
            select each.identifier from only :SCHEMA._private_tasks as each where each.id = job.task_id
        ) as task
    ), written as (
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, error, payload)
        select _private_record_cancelled_v1.ended_at, told.started_at, told.created_at, told.run_at, told.id,
            told.attempts, 8, told.identifier, told.worker_id, told.queue_name, told.key, told.error, told.payload
        from told
        where has_history
    )
    select array_agg(row(
        told.id, told.identifier, told.queue_name, told.key, 4, told.revision, null, told.created_at, told.started_at,
        told.started_at, _private_record_cancelled_v1.ended_at, told.who_and_why,
        -- A job that waited made no attempt.
        case when told.worker_id is null then '[]' else :SCHEMA._private_attempt(
            told.worker_id, told.started_at, _private_record_cancelled_v1.ended_at, exception_class, told.error) end,
        _private_record_cancelled_v1.ended_at + told.keep * interval '1 second'):::SCHEMA._private_results)
    into stored
    from told;
    if stored is not null then
        perform :SCHEMA._private_store_results_v1(stored);
    end if;
end
$$;

-- Cancels jobs, and says of each id what became of it:
--   removed      the job waited, and is deleted;
--   stopping     a worker of this package runs it, and is told to stop it;
--   unstoppable  another worker runs it, which cannot be told; the job is not tried again;
--   ended        the job has failed for good, or a result of it is kept;
--   unknown      there is neither a job nor a result.
-- "job" is the row of the job before the call. Of two calls for one run, the first says who and why.
create function :SCHEMA._private_cancel_jobs_v1(
    job_ids bigint[], reason text, cancelled_by text, is_notified boolean, exception_class text, identifiers text[],
    keeps float8[], default_keep float8, has_history boolean
) returns table (id bigint, fate text, job :SCHEMA._private_jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    locked_jobs :SCHEMA._private_jobs[]; fates text[];
    removed :SCHEMA._private_jobs[]; held :SCHEMA._private_jobs;
begin
    -- By id, as everywhere (job_management_v2.sql says why).
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
    -- As in remove_job(), a lock of four hours is that of a dead worker; but a registered worker is alive.
    cross join lateral (select each.locked_at is not null and (
        each.locked_at >= now() - interval '4 hours' or exists (
            select from only :SCHEMA._private_workers as worker
            where worker.id = :SCHEMA._private_worker_of(each.locked_by))) as value) as is_held
    left join :SCHEMA._private_cancellations as marker
        on marker.job_id = each.id and marker.locked_by = each.locked_by;

    select array_agg(locked_jobs[place]) into removed
    from generate_subscripts(locked_jobs, 1) as place where fates[place] = 'removed';
    if removed is not null then
        delete from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (array(select each.id from unnest(removed) as each));
        perform :SCHEMA._private_record_cancelled_v1(
            removed, null, null, array_fill(reason, array[cardinality(removed)]),
            array_fill(cancelled_by, array[cardinality(removed)]), null, null, exception_class, clock_timestamp(),
            identifiers, keeps, default_keep, has_history);
    end if;

    for place in 1 .. coalesce(cardinality(locked_jobs), 0) loop
        if fates[place] in ('stopping', 'unstoppable') then
            held := locked_jobs[place];
            perform :SCHEMA._private_request_stop_v1(held, reason, cancelled_by);
        end if;
    end loop;
    -- A full queue of notifications must not fail the call. Each heartbeat of a worker reads the requests, too.
    if is_notified and 'stopping' = any (fates) and pg_notification_queue_usage() < 0.9 then
        perform pg_notify('jobs:control', :'SCHEMA'::text);
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

-- Cancels the job with this key, as _private_cancel_jobs_v1; returns nothing if there is none.
create function :SCHEMA._private_cancel_by_key_v1(
    job_key text, reason text, cancelled_by text, is_notified boolean, exception_class text, identifiers text[],
    keeps float8[], default_keep float8, has_history boolean
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
        select * from :SCHEMA._private_cancel_jobs_v1(
            array[found_id], reason, cancelled_by, is_notified, exception_class, identifiers, keeps, default_keep,
            has_history);
    end if;
end
$$;

-- Whether the result of a job says how it ended. A role that may not read results gets no answer.
create function :SCHEMA._private_has_result(job_id bigint)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    return has_table_privilege(':SCHEMA._private_results', 'select') and exists (
        select from only :SCHEMA._private_results as result
        where result.job_id = _private_has_result.job_id and result.status <> 0);
end
$$;

-- Marks a job that a worker holds, and requests its worker to stop it. The caller has locked the row. A locked_by of
-- another worker than those of this package may repeat, so only what is younger than the lock is of this claim.
create function :SCHEMA._private_request_stop_v1(job :SCHEMA._private_jobs, reason text, cancelled_by text)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    update :SCHEMA._private_cancellations as marker set kind = 'removed'
    where marker.job_id = job.id and marker.locked_by = job.locked_by and marker.cancelled_at >= job.locked_at;
    if not found then
        perform :SCHEMA._private_cancel_job(job, 'removed');
    end if;
    insert into :SCHEMA._private_stop_requests as known (job_id, token, worker_id, reason, requested_by)
    values (job.id, job.locked_by, :SCHEMA._private_worker_of(job.locked_by), _private_request_stop_v1.reason,
        cancelled_by)
    on conflict on constraint stop_requests_pkey do update set
        reason = excluded.reason, requested_by = excluded.requested_by, requested_at = excluded.requested_at
    where known.requested_at < job.locked_at;
end
$$;

-- Ends claims of jobs that were cancelled while they were claimed: deletes the jobs and their requests, and records it.
-- Returns the rows of the jobs as they were before they were cancelled. If "is_requested", only the claims end for
-- which there is a request; otherwise all of them do. Durations are in microseconds, null for a job that never began or
-- whose worker died.
create function :SCHEMA._private_end_cancelled_v1(
    job_ids bigint[], tokens text[], is_requested boolean, durations bigint[], errors text[], history_payloads text[],
    exception_class text, identifiers text[], keeps float8[], default_keep float8, has_history boolean,
    ended_at timestamptz default null
) returns table (id bigint, duration bigint, reason text, cancelled_by text, job :SCHEMA._private_jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(ended_at, clock_timestamp());
    claim record;
    removed :SCHEMA._private_jobs[]; worker_ids text[]; started timestamptz[]; reasons text[]; names text[];
    stacks text[]; payloads text[];
begin
    if is_requested and not exists (select from only :SCHEMA._private_stop_requests) then
        return;
    end if;
    for claim in
        with asked as materialized (
            select given.*, coalesce(request.reason, '') as reason, coalesce(request.requested_by, '') as requested_by
            from unnest(job_ids, tokens, durations, errors, history_payloads)
                as given(id, token, duration, error, payload)
            left join :SCHEMA._private_stop_requests as request
                on request.job_id = given.id and request.token = given.token
            where request.job_id is not null or not is_requested
        )
        select asked.*, marker.attempts, marker.job_key
        from asked
        cross join lateral (
            select each.id from only :SCHEMA._private_jobs as each
            where each.id = asked.id and each.locked_by = asked.token
            for update skip locked
        ) as locked
        left join :SCHEMA._private_cancellations as marker
            on marker.job_id = asked.id and marker.locked_by = asked.token
    loop
        delete from only :SCHEMA._private_jobs as each where each.id = claim.id and each.locked_by = claim.token
        returning each.* into job;
        continue when not found;
        delete from :SCHEMA._private_stop_requests as request
        where request.job_id = claim.id and request.token = claim.token;
        delete from :SCHEMA._private_cancellations as marker
        where marker.job_id = claim.id and marker.locked_by = claim.token;
        job.attempts := coalesce(claim.attempts, job.attempts);
        job.key := coalesce(job.key, claim.job_key);
        removed := array_append(removed, job);
        worker_ids := array_append(worker_ids, :SCHEMA._private_worker_of(claim.token));
        started := array_append(started, this_moment - claim.duration * interval '1 microsecond');
        reasons := array_append(reasons, claim.reason);
        names := array_append(names, claim.requested_by);
        stacks := array_append(stacks, claim.error);
        payloads := array_append(payloads, claim.payload);
        id := claim.id;
        duration := claim.duration;
        reason := claim.reason;
        cancelled_by := claim.requested_by;
        return next;
    end loop;
    perform :SCHEMA._private_record_cancelled_v1(
        removed, worker_ids, started, reasons, names, stacks, payloads, exception_class, this_moment, identifiers,
        keeps, default_keep, has_history);
end
$$;

-- Locks the rows of claims that are about to end, and returns the ids of the jobs, with null in the place of a claim that
-- has ended or whose row another transaction has locked. A request to stop a job is written under the lock of its row.
-- So the caller, which then looks for requests and ends the other claims, overlooks none, if it ends only these claims.
create function :SCHEMA._private_lock_claims_v1(job_ids bigint[], tokens text[]) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    locked_ids bigint[];
begin
    select array_agg(locked.id order by given.ordinality) into locked_ids
    from unnest(job_ids, tokens) with ordinality as given(id, token, ordinality)
    left join lateral (
        select each.id from only :SCHEMA._private_jobs as each
        where each.id = given.id and each.locked_by = given.token
        for update skip locked
    ) as locked on true;
    return locked_ids;
end
$$;

-- Ends the claims of dead workers on jobs that were cancelled. Without workers: the claims of workers that are not
-- registered and have held the jobs for so many seconds.
create function :SCHEMA._private_end_cancelled_of_v1(
    dead_workers text[], older_than float8, exception_class text, identifiers text[], keeps float8[],
    default_keep float8, has_history boolean, ended_at timestamptz default null
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
        where each.id = request.job_id and each.locked_by = request.token and request.requested_at >= each.locked_at
            and (dead_workers is not null
                or each.locked_at < coalesce(ended_at, now()) - interval '1 second' * older_than)
    ) as locked
    where request.worker_id = any (dead_workers) or request.token = any (dead_workers)
        or (dead_workers is null and not exists (
            select from only :SCHEMA._private_workers as worker where worker.id = request.worker_id));
    if ids is not null then
        return query
        select * from :SCHEMA._private_end_cancelled_v1(
            ids, tokens, true, null, null, null, exception_class, identifiers, keeps, default_keep, has_history,
            ended_at);
    end if;
end
$$;

-- Deletes requests whose claims have ended.
create function :SCHEMA._private_forget_stop_requests_v1()
returns void language sql volatile set search_path = pg_catalog, pg_temp as $$
    delete from :SCHEMA._private_stop_requests as request
    where not exists (
        select from only :SCHEMA._private_jobs as job
        where job.id = request.job_id and job.locked_by = request.token)
$$;
