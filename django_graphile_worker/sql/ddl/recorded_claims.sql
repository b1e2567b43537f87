/* gw:install */
-- How claims end whose results or history are recorded: as in complete_claims_v3.sql and
-- end_claims_v3.sql, and in the same statement the rows are written that remain of the
-- attempt. Jobs of which nothing is recorded end with the functions of those files.
--
-- Times are told in microseconds before the statement ("agos"), measured by the worker, and
-- are stored by the clock of the database: the clocks of workers differ.

-- Stores results, each in the row of its job. An entry without expires_at is stored only
-- if the job has a row already, or if a session waits for it. Notifies of jobs that have
-- ended, if a session waits for them; the rows of the jobs were locked by earlier
-- statements, so a session that registered before it looked at the job is seen here. A
-- transaction with one snapshot cannot see it, and notifies in any case.
create function :SCHEMA._private_store_results_v1(entries :SCHEMA._private_results[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    is_awaited constant boolean := exists (select from only :SCHEMA._private_waiters)
        or current_setting('transaction_isolation') in ('repeatable read', 'serializable');
begin
    insert into :SCHEMA._private_results as known (
        job_id, task_identifier, queue_name, job_key, status, revision, payload, added_at, first_started_at,
        last_started_at, finished_at, value, attempts, expires_at)
    select entry.job_id, entry.task_identifier, entry.queue_name, entry.job_key, entry.status, entry.revision,
        entry.payload, entry.added_at, entry.first_started_at, entry.last_started_at, entry.finished_at, entry.value,
        entry.attempts, coalesce(entry.expires_at, clock_timestamp() + interval '1 day')
    from unnest(entries) as entry
    where entry.expires_at is not null
        or exists (select from only :SCHEMA._private_results as stored where stored.job_id = entry.job_id)
        or exists (select from only :SCHEMA._private_waiters as waiter where waiter.job_id = entry.job_id)
    on conflict on constraint results_pkey do update set
        task_identifier = excluded.task_identifier,
        queue_name = excluded.queue_name,
        job_key = excluded.job_key,
        status = excluded.status,
        revision = excluded.revision,
        payload = coalesce(excluded.payload, known.payload),
        added_at = excluded.added_at,
        first_started_at = coalesce(
            case when known.revision = excluded.revision then known.first_started_at end, excluded.first_started_at),
        last_started_at = coalesce(
            excluded.last_started_at, case when known.revision = excluded.revision then known.last_started_at end),
        finished_at = excluded.finished_at,
        value = excluded.value,
        -- At most the last hundred attempts.
        attempts = case
            when known.revision <> excluded.revision then excluded.attempts
            when jsonb_array_length(known.attempts) >= 100 and excluded.attempts <> '[]'
                then (known.attempts - 0) || excluded.attempts
            else known.attempts || excluded.attempts end,
        expires_at = greatest(known.expires_at, excluded.expires_at);
    if is_awaited and pg_notification_queue_usage() < 0.9 then
        perform pg_notify('jobs:result', json_build_object(
            'schema', :'SCHEMA'::text, 'jobs', json_agg(ended.job_id))::text)
        from (
            select entry.job_id, row_number() over () / 300 as part
            from unnest(entries) as entry
            where entry.status <> 0 and (
                exists (select from only :SCHEMA._private_waiters as waiter where waiter.job_id = entry.job_id)
                or current_setting('transaction_isolation') in ('repeatable read', 'serializable'))
        ) as ended
        group by ended.part;
    end if;
end
$$;

-- The list of attempts with one attempt.
create function :SCHEMA._private_attempt(
    worker_id text, started_at timestamptz, ended_at timestamptz, exception_class text, traceback text
) returns jsonb language sql stable
return pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'worker_id', worker_id, 'started_at', pg_catalog.date_part('epoch', started_at),
        'ended_at', pg_catalog.date_part('epoch', ended_at), 'exception_class', exception_class,
        'traceback', traceback));

-- A job that is removed or replaced under its key while it runs has lost the attempts that
-- it had left, and its key: the marker of the cancellation has both.

-- Deletes finished jobs and records them; the ids are in groups, as for
-- _private_complete_claims_v3, and so is the answer. "keeps" are the seconds for which
-- results are kept, null for a job without a result; null for all if there is no result.
-- A patient call waits for rows that another transaction has locked.
create function :SCHEMA._private_complete_recorded_v1(
    job_ids bigint[], holders text[], counts int[], agos bigint[], durations bigint[],
    task_ids int[], identifiers text[], keeps float8[], result_values text[], are_payloads_kept boolean[],
    has_history boolean, history_payloads text[], is_patient boolean, ended_at timestamptz default null
) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(ended_at, clock_timestamp());
    -- The worker of all these claims, whose holders are in order; null if there are several.
    only_worker constant text := case
        when split_part(holders[1], '/', 1) = split_part(holders[cardinality(holders)], '/', 1)
        then :SCHEMA._private_worker_of(holders[1]) end;
    quoted_worker constant text := to_json(only_worker)::text;
    holder text;
    first int := 1;
    claimed_ids bigint[]; locked_tids tid[]; locked_ids bigint[];
    all_tids tid[] := '{}'; deleted_ids bigint[] := '{}';
    stored :SCHEMA._private_results[];
begin
    for place in 1 .. cardinality(holders) loop
        holder := holders[place];
        claimed_ids := job_ids[first:first + counts[place] - 1];
        first := first + counts[place];
        if is_patient then
            select coalesce(array_agg(locked.tid), '{}'), coalesce(array_agg(locked.id), '{}')
            into locked_tids, locked_ids
            from (
                select job.ctid as tid, job.id
                from only :SCHEMA._private_jobs as job
                where job.id = any (claimed_ids) and job.locked_by = holder
                for update
            ) as locked;
        else
            select coalesce(array_agg(locked.tid), '{}'), coalesce(array_agg(locked.id), '{}')
            into locked_tids, locked_ids
            from (
                select job.ctid as tid, job.id
                from only :SCHEMA._private_jobs as job
                where job.id = any (claimed_ids) and job.locked_by = holder
                for update skip locked
            ) as locked;
        end if;
        all_tids := all_tids || locked_tids;
        deleted_ids := deleted_ids || locked_ids;
    end loop;
    -- In statements of their own, whose snapshots have the versions that were locked.
    if keeps is null then
        -- All times are that of this statement: the jobs of a busy worker ended up to some
        -- hundredths of a second before.
        with gone as (
            delete from only :SCHEMA._private_jobs as job where job.ctid = any (all_tids)
            returning job.id, job.task_id, job.job_queue_id, job.created_at, job.run_at, job.locked_by, job.key,
                job.attempts, job.max_attempts
        )
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, payload)
        select this_moment, this_moment - given.duration * interval '1 microsecond', gone.created_at, gone.run_at,
            gone.id,
            case when gone.attempts < gone.max_attempts then gone.attempts else coalesce((
                select marker.attempts from :SCHEMA._private_cancellations as marker
                where marker.job_id = gone.id and marker.locked_by = gone.locked_by), gone.attempts) end, 1,
            task.identifier, coalesce(only_worker, :SCHEMA._private_worker_of(gone.locked_by)),
            case when gone.job_queue_id is not null then (
                select queue.queue_name from only :SCHEMA._private_job_queues as queue
                where queue.id = gone.job_queue_id) end,
            case when gone.key is not null or gone.attempts < gone.max_attempts then gone.key else (
                select marker.job_key from :SCHEMA._private_cancellations as marker
                where marker.job_id = gone.id and marker.locked_by = gone.locked_by) end,
            given.payload
        from gone
        join unnest(job_ids, durations, history_payloads) as given(id, duration, payload) on given.id = gone.id
        join unnest(task_ids, identifiers) as task(id, identifier) on task.id = gone.task_id;
    else
        with gone as (
            delete from only :SCHEMA._private_jobs as job where job.ctid = any (all_tids)
            returning job.*
        ), told as materialized (
            select gone.id, gone.created_at, gone.run_at, gone.revision,
                this_moment - given.ago * interval '1 microsecond' as ended_at,
                this_moment - (given.ago + given.duration) * interval '1 microsecond' as started_at,
                case when gone.attempts < gone.max_attempts then gone.attempts else coalesce((
                    select marker.attempts from :SCHEMA._private_cancellations as marker
                    where marker.job_id = gone.id and marker.locked_by = gone.locked_by), gone.attempts) end as attempt,
                task.identifier, coalesce(only_worker, :SCHEMA._private_worker_of(gone.locked_by)) as worker_id,
                case when gone.job_queue_id is not null then (
                    select queue.queue_name from only :SCHEMA._private_job_queues as queue
                    where queue.id = gone.job_queue_id) end as queue_name,
                case when gone.key is not null or gone.attempts < gone.max_attempts then gone.key else (
                    select marker.job_key from :SCHEMA._private_cancellations as marker
                    where marker.job_id = gone.id and marker.locked_by = gone.locked_by) end as key,
                case when given.is_payload_kept then gone.payload::text end as kept_payload,
                given.keep, given.value, given.payload
            from gone
            join unnest(
                job_ids, agos, durations, keeps, result_values, are_payloads_kept, history_payloads
            ) as given(id, ago, duration, keep, value, is_payload_kept, payload) on given.id = gone.id
            join unnest(task_ids, identifiers) as task(id, identifier) on task.id = gone.task_id
        ), written as (
            insert into :SCHEMA._private_history (
                ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id,
                queue_name, job_key, payload)
            select told.ended_at, told.started_at, told.created_at, told.run_at, told.id, told.attempt, 1,
                told.identifier, told.worker_id, told.queue_name, told.key, told.payload
            from told
            where has_history
        )
        select array_agg(row(
            told.id, told.identifier, told.queue_name, told.key, 1, told.revision, told.kept_payload, told.created_at,
            told.started_at, told.started_at, told.ended_at, told.value,
            -- As _private_attempt writes it, in two thirds of the time.
            ('[{"worker_id": ' || coalesce(quoted_worker, to_json(told.worker_id)::text)
                || ', "started_at": ' || date_part('epoch', told.started_at)
                || ', "ended_at": ' || date_part('epoch', told.ended_at)
                || ', "exception_class": null, "traceback": null}]')::jsonb,
            told.ended_at + told.keep * interval '1 second'):::SCHEMA._private_results)
        into stored
        from told
        where told.keep is not null;
        perform :SCHEMA._private_store_results_v1(stored);
    end if;
    return case when cardinality(deleted_ids) < cardinality(job_ids) then deleted_ids end;
end
$$;

-- Stores errors and plans the next attempts, as _private_fail_claims_v3, and records the
-- attempts.
create function :SCHEMA._private_fail_recorded_v1(
    job_ids bigint[], holders text[], errors text[], delays float8[], permanent boolean[], payloads text[],
    agos bigint[], durations bigint[], exception_classes text[], keeps float8[], are_payloads_kept boolean[],
    has_history boolean, history_payloads text[], failed_at timestamptz default null
) returns table (failed_id bigint, seconds_until_next float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(failed_at, now());
    read_at constant timestamptz := coalesce(failed_at, clock_timestamp());
    failed_ids bigint[]; seconds float8[];
    stored :SCHEMA._private_results[];
begin
    with failing as materialized (
        select job.tid, job.attempts, job.key, job.locked_by, job.run_at, job.payload as whole_payload,
            ended.error, ended.delay, ended.permanent, ended.payload, ended.exception_class, ended.keep,
            ended.is_payload_kept, ended.history_payload,
            read_at - ended.ago * interval '1 microsecond' as ended_at,
            read_at - (ended.ago + ended.duration) * interval '1 microsecond' as started_at
        from unnest(
            job_ids, holders, errors, delays, permanent, payloads, agos, durations, exception_classes, keeps,
            are_payloads_kept, history_payloads
        ) as ended(
            id, holder, error, delay, permanent, payload, ago, duration, exception_class, keep, is_payload_kept,
            history_payload)
        cross join lateral (
            select each.ctid as tid, each.run_at, each.locked_by, each.payload,
                case when each.attempts < each.max_attempts then each.attempts
                    else coalesce(marker.attempts, each.attempts) end as attempts,
                coalesce(each.key, marker.job_key) as key
            from only :SCHEMA._private_jobs as each
            left join :SCHEMA._private_cancellations as marker
                on marker.job_id = each.id and marker.locked_by = each.locked_by
            where each.id = ended.id and each.locked_by = ended.holder
            for update of each skip locked
        ) as job
    ), failed as materialized (
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
        returning job.id, job.task_id, job.job_queue_id, job.created_at, job.revision,
            job.attempts < job.max_attempts as is_tried_again,
            date_part('epoch', job.run_at - this_moment) as seconds, failing.*
    ), told as materialized (
        select failed.*, task.identifier, :SCHEMA._private_worker_of(failed.locked_by) as worker_id,
            (select queue.queue_name from only :SCHEMA._private_job_queues as queue
            where queue.id = failed.job_queue_id) as queue_name
        from failed
        cross join lateral (
            select each.identifier from only :SCHEMA._private_tasks as each where each.id = failed.task_id
        ) as task
    ), written as (
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, error, payload)
        select told.ended_at, told.started_at, told.created_at, told.run_at, told.id, told.attempts,
            case when told.is_tried_again then 2 else 3 end, told.identifier, told.worker_id, told.queue_name, told.key,
            told.error, told.history_payload
        from told
        where has_history
    )
    select array_agg(told.id), array_agg(case when told.is_tried_again then told.seconds end),
        array_agg(row(
            told.id, told.identifier, told.queue_name, told.key, case when told.is_tried_again then 0 else 2 end,
            told.revision, case when told.is_payload_kept then told.whole_payload::text end, told.created_at,
            told.started_at, told.started_at, case when not told.is_tried_again then told.ended_at end, null,
            :SCHEMA._private_attempt(
                told.worker_id, told.started_at, told.ended_at, told.exception_class, told.error),
            -- Not before the next attempt has had the time to end.
            told.ended_at + (told.keep + case when told.is_tried_again then told.seconds else 0 end)
                * interval '1 second'):::SCHEMA._private_results) filter (where told.keep is not null)
    into failed_ids, seconds, stored
    from told;
    if stored is not null then
        perform :SCHEMA._private_store_results_v1(stored);
    end if;
    return query select each.id, each.until_next from unnest(failed_ids, seconds) as each(id, until_next);
end
$$;

-- Gives jobs back as _private_return_claims_v3, and adds those that had begun to the
-- history. In a statement that calls a function, the tables look as before the call.
create function :SCHEMA._private_return_recorded_v1(
    job_ids bigint[], holders text[], payloads text[], have_begun boolean[], durations bigint[],
    history_payloads text[], returned_at timestamptz default null
) returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(returned_at, clock_timestamp());
    returned_ids bigint[];
begin
    with returned as materialized (
        select each.id from :SCHEMA._private_return_claims_v3(job_ids, holders, payloads) as each(id)
    ), written as (
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, payload)
        select this_moment, this_moment - given.duration * interval '1 microsecond', job.created_at, job.run_at, job.id,
            job.attempts, 4, task.identifier, :SCHEMA._private_worker_of(job.locked_by), (
                select queue.queue_name from only :SCHEMA._private_job_queues as queue
                where queue.id = job.job_queue_id), job.key, given.payload
        from unnest(job_ids, have_begun, durations, history_payloads) as given(id, has_begun, duration, payload)
        cross join lateral (
            select each.id, each.task_id, each.job_queue_id, each.created_at, each.run_at, each.locked_by,
                case when each.attempts < each.max_attempts then each.attempts
                    else coalesce(marker.attempts, each.attempts) end as attempts,
                coalesce(each.key, marker.job_key) as key
            from only :SCHEMA._private_jobs as each
            left join :SCHEMA._private_cancellations as marker
                on marker.job_id = each.id and marker.locked_by = each.locked_by
            where each.id = given.id
        ) as job
        cross join lateral (
            select each.identifier from only :SCHEMA._private_tasks as each where each.id = job.task_id
        ) as task
        where given.has_begun and given.id in (select returned.id from returned)
    )
    select array_agg(returned.id) into returned_ids from returned;
    return query select unnest(returned_ids);
end
$$;

-- The seconds for which the result of a task is kept; null if it is not kept.
create function :SCHEMA._private_keep_of(identifier text, identifiers text[], keeps float8[], default_keep float8)
returns float8 language sql immutable parallel safe
return case when pg_catalog.array_position(identifiers, identifier) is null then default_keep
        else keeps[pg_catalog.array_position(identifiers, identifier)] end;

-- Whether there may be something to record: what these settings keep, a result of an
-- earlier attempt, or a session that waits. Nothing for a role that was granted its rights
-- before these tables existed: what it does must not fail because of a record.
create function :SCHEMA._private_records_anything(keeps float8[], default_keep float8, has_history boolean)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    if has_history or default_keep is not null
        or exists (select from unnest(keeps) as keep(seconds) where keep.seconds is not null) then
        return true;
    end if;
    if not has_table_privilege(':SCHEMA._private_results', 'insert')
        or not has_table_privilege(':SCHEMA._private_waiters', 'select') then
        return false;
    end if;
    return exists (select from only :SCHEMA._private_results) or exists (select from only :SCHEMA._private_waiters);
end
$$;

-- Records that jobs were taken from workers that died: "taken" has the jobs as they were
-- while the workers held them, and the arrays beside it what was found out.
create function :SCHEMA._private_record_lost_v1(
    taken :SCHEMA._private_jobs[], are_exhausted boolean[], worker_ids text[], exception_class text, lost_at timestamptz,
    identifiers text[], keeps float8[], default_keep float8, has_history boolean
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    stored :SCHEMA._private_results[];
begin
    if not :SCHEMA._private_records_anything(keeps, default_keep, has_history) then
        return;
    end if;
    with told as materialized (
        select job.id, job.created_at, job.run_at, job.revision, task.identifier, worker.id as worker_id,
            coalesce(job.key, marker.job_key) as key,
            case when job.attempts < job.max_attempts then job.attempts
                else coalesce(marker.attempts, job.attempts) end as attempts,
            (select queue.queue_name from only :SCHEMA._private_job_queues as queue
            where queue.id = job.job_queue_id) as queue_name,
            case when later.id is null then 3 when exhausted.is_exhausted then 2 else 0 end as status,
            coalesce(later.last_error, 'The worker ' || worker.id || ' died while it held this job.') as error,
            :SCHEMA._private_keep_of(task.identifier, identifiers, keeps, default_keep) as keep
        from unnest(taken) with ordinality as job
        cross join lateral (select are_exhausted[job.ordinality] as is_exhausted) as exhausted
        cross join lateral (select worker_ids[job.ordinality] as id) as worker
        cross join lateral (
            select each.identifier from only :SCHEMA._private_tasks as each where each.id = job.task_id
        ) as task
        left join only :SCHEMA._private_jobs as later on later.id = job.id
        left join :SCHEMA._private_cancellations as marker
            on marker.job_id = job.id and marker.locked_by = job.locked_by
    ), written as (
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, error)
        select lost_at, null, told.created_at, told.run_at, told.id, told.attempts, 5, told.identifier, told.worker_id,
            told.queue_name, told.key, told.error
        from told
        where has_history
    )
    select array_agg(row(
        told.id, told.identifier, told.queue_name, told.key, told.status, told.revision, null, told.created_at, null,
        null, case when told.status <> 0 then lost_at end, null,
        :SCHEMA._private_attempt(told.worker_id, null, lost_at, exception_class, told.error),
        lost_at + told.keep * interval '1 second'):::SCHEMA._private_results)
    into stored
    from told;
    if stored is not null then
        perform :SCHEMA._private_store_results_v1(stored);
    end if;
end
$$;

-- Gives the jobs of dead workers back, as _private_recover_jobs_v2, and records it.
create function :SCHEMA._private_recover_recorded_v1(
    dead_workers text[], most int, poison_limit int, exception_class text, identifiers text[], keeps float8[],
    default_keep float8, has_history boolean, recovered_at timestamptz default null
) returns table (job_id bigint, is_exhausted boolean, worker_id text, held_since timestamptz, held_seconds float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    taken :SCHEMA._private_jobs[]; are_exhausted boolean[]; worker_ids text[]; since timestamptz[]; seconds float8[];
begin
    -- In a statement that calls a function, the tables look as before the call.
    select array_agg(job), array_agg(recovered.is_exhausted), array_agg(recovered.worker_id),
        array_agg(recovered.held_since), array_agg(recovered.held_seconds)
    into taken, are_exhausted, worker_ids, since, seconds
    from :SCHEMA._private_recover_jobs_v2(dead_workers, most, poison_limit, recovered_at) as recovered
    join only :SCHEMA._private_jobs as job on job.id = recovered.job_id;
    if taken is null then
        return;
    end if;
    perform :SCHEMA._private_record_lost_v1(
        taken, are_exhausted, worker_ids, exception_class, coalesce(recovered_at, clock_timestamp()), identifiers, keeps,
        default_keep, has_history);
    return query
    select (each.job).id, each.is_exhausted, each.worker_id, each.since, each.seconds
    from (
        select unnest(taken) as job, unnest(are_exhausted) as is_exhausted, unnest(worker_ids) as worker_id,
            unnest(since) as since, unnest(seconds) as seconds
    ) as each;
end
$$;

-- Releases the jobs of workers that are not registered, as _private_release_stale_jobs_v2,
-- and records it.
create function :SCHEMA._private_release_stale_recorded_v1(
    older_than float8, exception_class text, identifiers text[], keeps float8[], default_keep float8,
    has_history boolean, released_at timestamptz default null
) returns table (job_id bigint, is_exhausted boolean, worker_id text, held_since timestamptz, held_seconds float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    taken :SCHEMA._private_jobs[]; are_exhausted boolean[]; worker_ids text[]; since timestamptz[]; seconds float8[];
begin
    select array_agg(job), array_agg(released.is_exhausted), array_agg(released.worker_id),
        array_agg(released.held_since), array_agg(released.held_seconds)
    into taken, are_exhausted, worker_ids, since, seconds
    from :SCHEMA._private_release_stale_jobs_v2(older_than, released_at) as released
    join only :SCHEMA._private_jobs as job on job.id = released.job_id;
    if taken is null then
        return;
    end if;
    perform :SCHEMA._private_record_lost_v1(
        taken, are_exhausted, worker_ids, exception_class, coalesce(released_at, clock_timestamp()), identifiers, keeps,
        default_keep, has_history);
    return query
    select (each.job).id, each.is_exhausted, each.worker_id, each.since, each.seconds
    from (
        select unnest(taken) as job, unnest(are_exhausted) as is_exhausted, unnest(worker_ids) as worker_id,
            unnest(since) as since, unnest(seconds) as seconds
    ) as each;
end
$$;

-- Records that an operator, or a call of the API, ended jobs that did not run: removed or
-- completed them (outcome 6), or failed them for good (outcome 7). "ended" has the jobs as
-- the functions of the schema return them. Jobs that still run are left out: their workers
-- record their ends.
create function :SCHEMA._private_record_operator_v1(
    ended :SCHEMA._private_jobs[], outcome smallint, exception_class text, identifiers text[], keeps float8[],
    default_keep float8, has_history boolean
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := clock_timestamp();
    stored :SCHEMA._private_results[];
begin
    if not :SCHEMA._private_records_anything(keeps, default_keep, has_history) then
        return;
    end if;
    with told as materialized (
        select job.id, job.created_at, job.run_at, job.revision, job.key, job.attempts, task.identifier, job.last_error,
            (select queue.queue_name from only :SCHEMA._private_job_queues as queue
            where queue.id = job.job_queue_id) as queue_name,
            :SCHEMA._private_keep_of(task.identifier, identifiers, keeps, default_keep) as keep
        from unnest(ended) as job
        cross join lateral (
            select each.identifier from only :SCHEMA._private_tasks as each where each.id = job.task_id
        ) as task
        where job.id is not null and not exists (
            select from only :SCHEMA._private_jobs as later
            where later.id = job.id and later.locked_at is not null)
    ), written as (
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, error)
        select this_moment, null, told.created_at, told.run_at, told.id, told.attempts, _private_record_operator_v1.outcome,
            told.identifier, null, told.queue_name, told.key,
            case when _private_record_operator_v1.outcome = 7 then told.last_error end
        from told
        where has_history
    )
    select array_agg(row(
        told.id, told.identifier, told.queue_name, told.key,
        case when _private_record_operator_v1.outcome = 7 then 2 else 3 end, told.revision, null, told.created_at, null,
        null, this_moment, null,
        case when _private_record_operator_v1.outcome = 7
            then :SCHEMA._private_attempt(null, null, this_moment, exception_class, told.last_error) else '[]' end,
        this_moment + told.keep * interval '1 second'):::SCHEMA._private_results)
    into stored
    from told;
    if stored is not null then
        perform :SCHEMA._private_store_results_v1(stored);
    end if;
end
$$;

-- Deletes some of the results that have expired, the oldest first from a moment on; returns
-- how many were found, and where the next call goes on. The result of a job that still
-- waits or runs stays for another day.
create function :SCHEMA._private_prune_results_v1(
    most int, go_on_at timestamptz default null, pruned_at timestamptz default null
) returns table (number int, reached timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(pruned_at, now());
    expired_tids tid[]; kept_tids tid[];
begin
    select array_agg(expired.tid) filter (where not expired.is_unfinished),
        array_agg(expired.tid) filter (where expired.is_unfinished), count(*), max(expired.expires_at)
    into expired_tids, kept_tids, number, reached
    from (
        select result.ctid as tid, result.expires_at, exists (
            select from only :SCHEMA._private_jobs as job
            where job.id = result.job_id and (job.attempts < job.max_attempts or job.locked_at is not null)
        ) as is_unfinished
        from only :SCHEMA._private_results as result
        where result.expires_at >= coalesce(go_on_at, '-infinity') and result.expires_at <= this_moment
        order by result.expires_at
        limit most
        for update of result skip locked
    ) as expired;
    update only :SCHEMA._private_results as result set expires_at = this_moment + interval '1 day'
    where result.ctid = any (kept_tids);
    delete from only :SCHEMA._private_results as result where result.ctid = any (expired_tids);
    return next;
end
$$;

create function :SCHEMA._private_prune_waiters_v1()
returns void language sql volatile set search_path = pg_catalog, pg_temp as $$
    delete from :SCHEMA._private_waiters as waiter where waiter.expires_at < now()
$$;
