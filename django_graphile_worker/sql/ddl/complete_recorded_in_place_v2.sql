/* gw:install */
-- Deletes finished jobs at the places where their claims wrote them, as complete_in_place_v1.sql, and records them in
-- the same statement, as _private_complete_recorded_v1 of recorded_claims.sql, with half of its work.
--
-- A row that is still at its place has not been removed or replaced under its key: that would have written another
-- version. So no marker of a cancellation is looked up.
--
-- The places are in groups. What is recorded of the jobs of a group is by id, so that no join is needed: in durations,
-- history_payloads, agos, keeps, result_values and are_payloads_kept the group number n has spans[n] entries, and the
-- first of them is that of the id first_ids[n]. Entries of ids that are not in the group have no effect. Without
-- results, agos and what follows it are null.
--
-- As complete_recorded_in_place_v1.sql, with less work if only the history is written.
--
-- Returns true if all were deleted. Otherwise nothing is changed, and the caller uses _private_complete_recorded_v1.
create function :SCHEMA._private_complete_recorded_in_place_v2(
    job_tids tid[], xids xid[], holders text[], counts int[], first_ids bigint[], spans int[], task_ids int[],
    identifiers text[], has_history boolean, durations bigint[], history_payloads text[], job_ids bigint[],
    agos bigint[], keeps float8[], result_values text[], are_payloads_kept boolean[],
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
    first_place int := 1; last_place int;
    claimed_tids tid[]; claimed_xid xid; holder text;
    first_entry int := 1; last_entry int;
    -- An id less this number is the place of its entries.
    id_before bigint;
    given_durations bigint[]; given_payloads text[]; given_agos bigint[]; given_keeps float8[]; given_values text[];
    given_are_payloads_kept boolean[];
    first_task constant int := task_ids[1];
    written int; deleted int;
begin
    for number in 1 .. cardinality(holders) loop
        last_place := first_place + counts[number] - 1;
        last_entry := first_entry + spans[number] - 1;
        claimed_tids := job_tids[first_place:last_place];
        claimed_xid := xids[number];
        holder := holders[number];
        worker := :SCHEMA._private_worker_of(holder);
        id_before := first_ids[number] - 1;
        given_durations := durations[first_entry:last_entry];
        given_payloads := history_payloads[first_entry:last_entry];
        if keeps is null then
            -- The rows are read before they are deleted, by statements of their own: less work than the deletion has
            -- with returning the rows, and a join with them. If a row changes between the two, the second does not
            -- find it, and the call undoes both.
            insert into :SCHEMA._private_history (
                -- All times are that of this statement: the jobs of a busy worker ended up to some hundredths of a
                -- second before.
                ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id,
                queue_name, job_key, payload)
            select this_moment, this_moment - given_durations[(job.id - id_before)::int] * interval '1 microsecond',
                job.created_at, job.run_at, job.id, job.attempts, 1,
                identifiers[case when job.task_id = first_task then 1 else array_position(task_ids, job.task_id) end],
                worker,
                case when job.job_queue_id is not null then (
                    select queue.queue_name from only :SCHEMA._private_job_queues as queue
                    where queue.id = job.job_queue_id) end,
                job.key, given_payloads[(job.id - id_before)::int]
            from only :SCHEMA._private_jobs as job
            where job.ctid = any (claimed_tids) and job.xmin = claimed_xid and job.locked_by = holder
                and job.task_id = any (task_ids);
            get diagnostics written = row_count;
            if written < counts[number] then
                raise lock_not_available;
            end if;
            delete from only :SCHEMA._private_jobs as job
            where job.ctid = any (claimed_tids) and job.xmin = claimed_xid and job.locked_by = holder;
            get diagnostics deleted = row_count;
        else
            quoted_worker := to_json(worker)::text;
            given_agos := agos[first_entry:last_entry];
            given_keeps := keeps[first_entry:last_entry];
            given_values := result_values[first_entry:last_entry];
            given_are_payloads_kept := are_payloads_kept[first_entry:last_entry];
            with gone as (
                delete from only :SCHEMA._private_jobs as job
                where job.ctid = any (claimed_tids) and job.xmin = claimed_xid and job.locked_by = holder
                returning job.id, (job.id - id_before)::int as place, job.task_id, job.job_queue_id, job.created_at,
                    job.run_at, job.key, job.attempts, job.revision, job.payload
            ), told as materialized (
                select gone.id, gone.place, gone.created_at, gone.run_at, gone.revision, gone.key, gone.attempts,
                    this_moment - given_agos[gone.place] * interval '1 microsecond' as ended_at,
                    this_moment
                        - (given_agos[gone.place] + given_durations[gone.place]) * interval '1 microsecond' as started_at,
                    task.identifier,
                    case when gone.job_queue_id is not null then (
                        select queue.queue_name from only :SCHEMA._private_job_queues as queue
                        where queue.id = gone.job_queue_id) end as queue_name,
                    case when given_are_payloads_kept[gone.place] then gone.payload::text end as kept_payload
                from gone
                join unnest(task_ids, identifiers) as task(id, identifier) on task.id = gone.task_id
            ), written as (
                insert into :SCHEMA._private_history (
                    ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id,
                    queue_name, job_key, payload)
                select told.ended_at, told.started_at, told.created_at, told.run_at, told.id, told.attempts, 1,
                    told.identifier, worker, told.queue_name, told.key, given_payloads[told.place]
                from told
                where has_history
            ), stored as (
                -- A job that has a result already, of an earlier attempt, is left to the search.
                insert into :SCHEMA._private_results (
                    job_id, task_identifier, queue_name, job_key, status, revision, payload, added_at,
                    first_started_at, last_started_at, finished_at, value, attempts, expires_at)
                select told.id, told.identifier, told.queue_name, told.key, 1, told.revision, told.kept_payload,
                    told.created_at, told.started_at, told.started_at, told.ended_at, given_values[told.place],
                    -- As _private_attempt writes it, in two thirds of the time.
                    ('[{"worker_id": ' || quoted_worker
                        || ', "started_at": ' || date_part('epoch', told.started_at)
                        || ', "ended_at": ' || date_part('epoch', told.ended_at)
                        || ', "exception_class": null, "traceback": null}]')::jsonb,
                    told.ended_at + given_keeps[told.place] * interval '1 second'
                from told
                where given_keeps[told.place] is not null
            )
            select count(*) into deleted from told;
        end if;
        if deleted < counts[number] then
            raise lock_not_available;
        end if;
        first_place := last_place + 1;
        first_entry := last_entry + 1;
    end loop;
    -- The jobs were deleted by earlier statements, so a session that registered before it looked at its job is seen
    -- here. A transaction with one snapshot cannot see it, and notifies in any case.
    if keeps is not null and pg_notification_queue_usage() < 0.9 and (
        sees_no_waiter or exists (select from only :SCHEMA._private_waiters)
    ) then
        perform pg_notify('jobs:result', json_build_object(
            'schema', :'SCHEMA'::text, 'jobs', json_agg(ended.job_id))::text)
        from (
            select given.id as job_id, row_number() over () / 300 as part
            from unnest(job_ids) as given(id)
            where exists (select from only :SCHEMA._private_results as result where result.job_id = given.id) and (
                sees_no_waiter
                or exists (select from only :SCHEMA._private_waiters as waiter where waiter.job_id = given.id))
        ) as ended
        group by ended.part;
    end if;
    return true;
exception
    when lock_not_available or deadlock_detected or unique_violation then
        return false;
end
$$;
