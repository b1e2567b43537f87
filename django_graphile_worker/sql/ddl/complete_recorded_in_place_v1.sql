/* gw:install */
-- Deletes finished jobs at the places where their claims wrote them, as complete_in_place_v1.sql, and records them in
-- the same statement, as _private_complete_recorded_v1 of recorded_claims.sql, at half the cost.
--
-- A row that is still at its place has not been removed or replaced under its key: that would have written another
-- version. So no marker of a cancellation is looked up.
--
-- The places are in groups, and so are the ids, agos, durations and so on, in the same order. If there is only a
-- history, there are no ids: durations and payloads are by id then, so that no join is needed. Those of the group
-- number n begin with the id first_ids[n], and there are spans[n] of them.
--
-- Returns true if all were deleted. Otherwise nothing is changed, and the caller uses _private_complete_recorded_v1.
create function :SCHEMA._private_complete_recorded_in_place_v1(
    job_tids tid[], xids xid[], holders text[], counts int[], task_ids int[], identifiers text[],
    has_history boolean, durations bigint[], history_payloads text[], first_ids bigint[], spans int[],
    job_ids bigint[], agos bigint[], keeps float8[], result_values text[], are_payloads_kept boolean[],
    ended_at timestamptz default null
) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_tidscan = on set enable_nestloop = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
-- A row that another transaction has locked is left to the search, which does not wait.
set lock_timeout = '1ms'
as $$
declare
    this_moment constant timestamptz := coalesce(ended_at, clock_timestamp());
    sees_no_waiter constant boolean :=
        current_setting('transaction_isolation') in ('repeatable read', 'serializable');
    worker text; quoted_worker text;
    first int := 1; last int;
    claimed_tids tid[]; claimed_xid xid; holder text;
    first_id bigint; span_start int := 1; span_end int;
    given_ids bigint[]; given_durations bigint[]; given_payloads text[];
    given_agos bigint[]; given_keeps float8[]; given_values text[]; given_are_payloads_kept boolean[];
    deleted int;
begin
    for number in 1 .. cardinality(holders) loop
        last := first + counts[number] - 1;
        claimed_tids := job_tids[first:last];
        claimed_xid := xids[number];
        holder := holders[number];
        worker := :SCHEMA._private_worker_of(holder);
        if job_ids is null then
            first_id := first_ids[number];
            span_end := span_start + spans[number] - 1;
            given_durations := durations[span_start:span_end];
            given_payloads := history_payloads[span_start:span_end];
            span_start := span_end + 1;
            with gone as (
                delete from only :SCHEMA._private_jobs as job
                where job.ctid = any (claimed_tids) and job.xmin = claimed_xid and job.locked_by = holder
                returning job.id, job.task_id, job.job_queue_id, job.created_at, job.run_at, job.key, job.attempts
            )
            -- All times are that of this statement: the jobs of a busy worker ended up to some hundredths of a second
            -- before.
            insert into :SCHEMA._private_history (
                ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id,
                queue_name, job_key, payload)
            select this_moment,
                this_moment - given_durations[(gone.id - first_id)::int + 1] * interval '1 microsecond',
                gone.created_at, gone.run_at, gone.id, gone.attempts, 1, task.identifier, worker,
                case when gone.job_queue_id is not null then (
                    select queue.queue_name from only :SCHEMA._private_job_queues as queue
                    where queue.id = gone.job_queue_id) end,
                gone.key, given_payloads[(gone.id - first_id)::int + 1]
            from gone
            join unnest(task_ids, identifiers) as task(id, identifier) on task.id = gone.task_id;
            get diagnostics deleted = row_count;
        else
            quoted_worker := to_json(worker)::text;
            given_ids := job_ids[first:last];
            given_durations := durations[first:last];
            given_payloads := history_payloads[first:last];
            given_agos := agos[first:last];
            given_keeps := keeps[first:last];
            given_values := result_values[first:last];
            given_are_payloads_kept := are_payloads_kept[first:last];
            with gone as (
                delete from only :SCHEMA._private_jobs as job
                where job.ctid = any (claimed_tids) and job.xmin = claimed_xid and job.locked_by = holder
                returning job.id, job.task_id, job.job_queue_id, job.created_at, job.run_at, job.key, job.attempts,
                    job.revision, job.payload
            ), told as materialized (
                select gone.id, gone.created_at, gone.run_at, gone.revision, gone.key, gone.attempts,
                    this_moment - given.ago * interval '1 microsecond' as ended_at,
                    this_moment - (given.ago + given.duration) * interval '1 microsecond' as started_at,
                    task.identifier,
                    case when gone.job_queue_id is not null then (
                        select queue.queue_name from only :SCHEMA._private_job_queues as queue
                        where queue.id = gone.job_queue_id) end as queue_name,
                    case when given.is_payload_kept then gone.payload::text end as kept_payload,
                    given.keep, given.value, given.payload
                from gone
                join unnest(
                    given_ids, given_agos, given_durations, given_keeps, given_values, given_are_payloads_kept,
                    given_payloads
                ) as given(id, ago, duration, keep, value, is_payload_kept, payload) on given.id = gone.id
                join unnest(task_ids, identifiers) as task(id, identifier) on task.id = gone.task_id
            ), written as (
                insert into :SCHEMA._private_history (
                    ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id,
                    queue_name, job_key, payload)
                select told.ended_at, told.started_at, told.created_at, told.run_at, told.id, told.attempts, 1,
                    told.identifier, worker, told.queue_name, told.key,
                    told.payload
                from told
                where has_history
            ), stored as (
                insert into :SCHEMA._private_results as known (
                    job_id, task_identifier, queue_name, job_key, status, revision, payload, added_at,
                    first_started_at, last_started_at, finished_at, value, attempts, expires_at)
                select told.id, told.identifier, told.queue_name, told.key, 1, told.revision, told.kept_payload,
                    told.created_at, told.started_at, told.started_at, told.ended_at, told.value,
                    -- As _private_attempt writes it, in two thirds of the time.
                    ('[{"worker_id": ' || quoted_worker
                        || ', "started_at": ' || date_part('epoch', told.started_at)
                        || ', "ended_at": ' || date_part('epoch', told.ended_at)
                        || ', "exception_class": null, "traceback": null}]')::jsonb,
                    told.ended_at + told.keep * interval '1 second'
                from told
                where told.keep is not null
                -- As in _private_store_results_v1.
                on conflict on constraint results_pkey do update set
                    task_identifier = excluded.task_identifier,
                    queue_name = excluded.queue_name,
                    job_key = excluded.job_key,
                    status = excluded.status,
                    revision = excluded.revision,
                    payload = coalesce(excluded.payload, known.payload),
                    added_at = excluded.added_at,
                    first_started_at = coalesce(
                        case when known.revision = excluded.revision then known.first_started_at end,
                        excluded.first_started_at),
                    last_started_at = excluded.last_started_at,
                    finished_at = excluded.finished_at,
                    value = excluded.value,
                    attempts = case
                        when known.revision <> excluded.revision then excluded.attempts
                        when jsonb_array_length(known.attempts) >= 100 then (known.attempts - 0) || excluded.attempts
                        else known.attempts || excluded.attempts end,
                    expires_at = greatest(known.expires_at, excluded.expires_at)
            )
            select count(*) into deleted from told;
        end if;
        if deleted < counts[number] then
            raise lock_not_available;
        end if;
        first := last + 1;
    end loop;
    -- The jobs were deleted by earlier statements, so a session that registered before it looked at its job is seen
    -- here. A transaction with one snapshot cannot see it, and notifies in any case.
    if job_ids is not null and pg_notification_queue_usage() < 0.9 and (
        sees_no_waiter or exists (select from only :SCHEMA._private_waiters)
    ) then
        perform pg_notify('jobs:result', json_build_object(
            'schema', :'SCHEMA'::text, 'jobs', json_agg(ended.job_id))::text)
        from (
            select given.id as job_id, row_number() over () / 300 as part
            from unnest(job_ids, keeps) as given(id, keep)
            where given.keep is not null and (
                sees_no_waiter
                or exists (select from only :SCHEMA._private_waiters as waiter where waiter.job_id = given.id))
        ) as ended
        group by ended.part;
    end if;
    return true;
exception
    when lock_not_available or deadlock_detected then
        return false;
end
$$;
