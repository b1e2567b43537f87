/* gw:install */
-- Returns the host of a worker, as its row in the register or an earlier event states it; the id of an unknown worker.
create or replace function :SCHEMA._private_host_of(worker text)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(
        (select nullif(each.metadata ->> 'host', '') from only :SCHEMA._private_workers as each where each.id = worker),
        (select event.details ->> 'host' from only :SCHEMA._private_events as event
        where event.worker_id = worker and event.details ->> 'host' <> '' order by event.id desc limit 1),
        worker);
end
$$;

-- Writes an event; returns its id, or null if it was not written. Without a subject, the subject is the host of the
-- worker. An event that merges is added to an event of the same kind, subject and worker within the last hour: its
-- numbers of jobs, queues and ticks are added up.
create or replace function :SCHEMA._private_add_event(
    kind text, severity int, subject text, details jsonb, worker_id text default null, identity text default null,
    merges boolean default false
) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := clock_timestamp();
    an_hour_ago constant timestamptz := this_moment - interval '1 hour';
    about jsonb := jsonb_strip_nulls(_private_add_event.details);
    about_subject text := _private_add_event.subject;
    repeated bigint;
    written bigint;
begin
    if about_subject is null then
        about_subject := :SCHEMA._private_host_of(_private_add_event.worker_id);
    end if;
    about_subject := left(coalesce(about_subject, ''), 300);
    if starts_with(about ->> 'by', 'django-worker-') then
        about := about || jsonb_build_object('by_host', :SCHEMA._private_host_of(about ->> 'by'));
    end if;
    if merges or _private_add_event.identity is null and 10 <= (
        select count(*) from (
            select from only :SCHEMA._private_events as event
            where event.kind = _private_add_event.kind and event.subject = about_subject
                and event.last_at > an_hour_ago
            limit 10) as recent)
    then
        select event.id into repeated from only :SCHEMA._private_events as event
        where event.kind = _private_add_event.kind and event.subject = about_subject
            and event.last_at > an_hour_ago
            and (not merges or event.worker_id is not distinct from _private_add_event.worker_id)
        order by event.last_at desc limit 1
        for update skip locked;
    end if;
    if repeated is null then
        insert into :SCHEMA._private_events as event
            (kind, severity, subject, worker_id, identity, first_at, last_at, details)
        values (_private_add_event.kind, _private_add_event.severity, about_subject,
            _private_add_event.worker_id, left(_private_add_event.identity, 200), this_moment, this_moment, about)
        on conflict (kind, subject, identity) where identity is not null do nothing
        returning event.id into written;
    else
        update only :SCHEMA._private_events as event
        set last_at = this_moment,
            number = case when merges then event.number else event.number + 1 end,
            worker_id = coalesce(_private_add_event.worker_id, event.worker_id),
            details = event.details || about || coalesce((
                select jsonb_object_agg(each.key, (event.details ->> each.key)::bigint + (about ->> each.key)::bigint)
                from unnest(array['jobs', 'queues', 'ticks']) as each(key)
                where jsonb_typeof(event.details -> each.key) = 'number' and jsonb_typeof(about -> each.key) = 'number'
            ), '{}'),
            dismissed_at = null, dismissed_by = null
        where event.id = repeated
        returning event.id into written;
    end if;
    return written;
exception when others then
    raise warning 'The event % was not written: %', _private_add_event.kind, sqlerrm;
    return null;
end
$$;

-- Removes workers from the register that have not beaten since, and writes the event of each; returns their ids. Of
-- several sessions that call this at the same time, the row lock lets one remove each worker.
create or replace function :SCHEMA._private_remove_dead_workers(worker_ids text[], beats float8[], remover text)
returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    dead record;
    -- By the id of the worker. All are counted at once, because hundreds of workers may be lost at the same time.
    held_jobs jsonb;
    held_queues jsonb;
begin
    for dead in
        delete from only :SCHEMA._private_workers as worker
        where worker.ctid = any (array(
            select each.ctid
            from unnest(worker_ids, beats) as silent(id, beaten_at)
            join only :SCHEMA._private_workers as each on each.id = silent.id
            where date_part('epoch', each.last_heartbeat_at) = silent.beaten_at
            for update of each skip locked))
        returning worker.id, worker.metadata, worker.last_heartbeat_at, worker.started_at
    loop
        if held_jobs is null then
            select coalesce(jsonb_object_agg(each.worker, each.number), '{}') into held_jobs
            from (
                select :SCHEMA._private_worker_of(job.locked_by) as worker, count(*) as number
                from only :SCHEMA._private_jobs as job where job.locked_at is not null group by 1) as each
            where each.worker is not null;
            select coalesce(jsonb_object_agg(each.worker, each.number), '{}') into held_queues
            from (
                select :SCHEMA._private_worker_of(queue.locked_by) as worker, count(*) as number
                from only :SCHEMA._private_job_queues as queue where queue.locked_at is not null group by 1) as each
            where each.worker is not null;
        end if;
        perform :SCHEMA._private_add_event('worker_lost', 3, coalesce(dead.metadata ->> 'host', dead.id),
            jsonb_build_object(
                'host', dead.metadata ->> 'host', 'pid', dead.metadata -> 'pid', 'by', remover,
                'silent_seconds', round(extract(epoch from clock_timestamp() - dead.last_heartbeat_at)),
                'started_at', dead.started_at,
                'jobs', coalesce((held_jobs ->> dead.id)::int, 0), 'queues', coalesce((held_queues ->> dead.id)::int, 0)),
            dead.id);
        return next dead.id;
    end loop;
end
$$;

-- Tells the workers of this schema that what is asked of them has changed.
create or replace function :SCHEMA._private_notify_control()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    -- A full queue of notifications would fail the commit. Workers also read with each heartbeat.
    if pg_notification_queue_usage() < 0.9 then
        perform pg_notify('jobs:control', :'SCHEMA'::text);
    end if;
end
$$;

-- Locks the row of a queue for a pause, whatever worker holds it; inserts the row if there is none.
create or replace function :SCHEMA._private_lock_paused_queue(paused_queue text, token text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    update only :SCHEMA._private_job_queues as queue
    set locked_by = token, locked_at = 'infinity'
    where queue.queue_name = paused_queue;
    if not found then
        insert into :SCHEMA._private_job_queues as queue (queue_name, locked_by, locked_at)
        values (paused_queue, token, 'infinity')
        on conflict on constraint job_queues_queue_name_key do update
        set locked_by = excluded.locked_by, locked_at = excluded.locked_at;
    end if;
end
$$;

-- Pauses a task, a queue or a flag; returns the pause, and whether it held before. A queue that
-- has no row yet gets one. An extension never shortens or replaces a pause: it only moves its end.
create or replace function :SCHEMA._private_pause(
    kind text, name text, paused_until timestamptz, reason text, paused_by text, is_extension boolean,
    moment timestamptz default null
) returns table (paused_at timestamptz, ends_at timestamptz, stored_reason text, stored_by text, was_paused boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(moment, clock_timestamp());
    held :SCHEMA._private_pauses;
    stored :SCHEMA._private_pauses;
begin
    -- Locks the row, or waits for the transaction that inserts it.
    insert into :SCHEMA._private_pauses as pause (kind, name, token, paused_at, paused_until, reason, paused_by)
    values (_private_pause.kind, _private_pause.name, 'paused:' || gen_random_uuid(), this_moment,
        _private_pause.paused_until, _private_pause.reason, _private_pause.paused_by)
    on conflict on constraint pauses_pkey do nothing
    returning pause.* into stored;
    if stored.token is null then
        select pause.* into held from :SCHEMA._private_pauses as pause
        where pause.kind = _private_pause.kind and pause.name = _private_pause.name
        for update;
        if held.token is null then
            -- Resumed at this moment: begin again.
            return query select again.* from :SCHEMA._private_pause(
                _private_pause.kind, _private_pause.name, _private_pause.paused_until,
                _private_pause.reason, _private_pause.paused_by, is_extension, moment) as again;
            return;
        end if;
        if held.handed_to is not null or held.paused_until <= this_moment then
            -- The earlier pause is over.
            update :SCHEMA._private_pauses as pause
            set token = 'paused:' || gen_random_uuid(), paused_at = this_moment,
                paused_until = _private_pause.paused_until, reason = _private_pause.reason,
                paused_by = _private_pause.paused_by, handed_to = null
            where pause.kind = held.kind and pause.name = held.name
            returning pause.* into stored;
            held := null;
        elsif not is_extension then
            update :SCHEMA._private_pauses as pause
            set paused_until = _private_pause.paused_until, reason = _private_pause.reason,
                paused_by = _private_pause.paused_by
            where pause.kind = held.kind and pause.name = held.name
            returning pause.* into stored;
        elsif held.paused_until < _private_pause.paused_until or _private_pause.paused_until is null
            and held.paused_until is not null
        then
            update :SCHEMA._private_pauses as pause
            set paused_until = _private_pause.paused_until
            where pause.kind = held.kind and pause.name = held.name
            returning pause.* into stored;
        else
            stored := held;
        end if;
    end if;
    if _private_pause.kind = 'queue' then
        perform :SCHEMA._private_lock_paused_queue(stored.name, stored.token);
    end if;
    perform :SCHEMA._private_notify_control();
    return query select stored.paused_at, stored.paused_until, stored.reason, stored.paused_by, held.token is not null;
end
$$;

-- Ends a pause whose row the caller has locked. The lock of a queue goes to the job of the queue that runs, so that its
-- release frees the queue; without such a job the queue is free. The row of the job is locked until the end of the
-- transaction: its worker cannot end the job and release the queue before the queue has the token of the job.
create or replace function :SCHEMA._private_end_pause(ended :SCHEMA._private_pauses)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
    paused_queue int;
    holder text;
    held_since timestamptz;
begin
    if ended.kind = 'queue' then
        select queue.id into paused_queue from only :SCHEMA._private_job_queues as queue
        where queue.queue_name = ended.name and queue.locked_by = ended.token;
    end if;
    if paused_queue is not null then
        select running.locked_by, running.locked_at into holder, held_since
        from (
            select job.locked_by, job.locked_at, job.id from only :SCHEMA._private_jobs as job
            where job.locked_at is not null and job.job_queue_id = paused_queue
            order by job.id
            for update
        ) as running
        order by running.locked_at desc, running.id
        limit 1;
        update only :SCHEMA._private_job_queues as queue
        set locked_by = holder, locked_at = held_since
        where queue.id = paused_queue and queue.locked_by = ended.token;
    end if;
    if holder is null or starts_with(holder, 'django-worker-') then
        delete from :SCHEMA._private_pauses as pause where pause.kind = ended.kind and pause.name = ended.name;
    else
        update :SCHEMA._private_pauses as pause set handed_to = holder
        where pause.kind = ended.kind and pause.name = ended.name;
    end if;
    perform :SCHEMA._private_notify(1), :SCHEMA._private_notify_control();
end
$$;

-- Ends a pause; returns it, or no row if there is none.
create or replace function :SCHEMA._private_resume(kind text, name text)
returns table (paused_at timestamptz, ends_at timestamptz, stored_reason text, stored_by text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    held :SCHEMA._private_pauses;
begin
    select pause.* into held from :SCHEMA._private_pauses as pause
    where pause.kind = _private_resume.kind and pause.name = _private_resume.name and pause.handed_to is null
    for update;
    if held.token is not null then
        perform :SCHEMA._private_end_pause(held);
        return query select held.paused_at, held.paused_until, held.reason, held.paused_by;
    end if;
end
$$;

-- What workers do with pauses, each at its time and all of them at the same time: end the pauses whose time is over,
-- free queues whose lock was handed to a job that has ended, and lock paused queues again that were unlocked by hand.
-- Returns the pauses that it ended.
create or replace function :SCHEMA._private_settle_pauses(moment timestamptz default null)
returns table (
    kind text, name text, paused_at timestamptz, ends_at timestamptz, stored_reason text, stored_by text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(moment, clock_timestamp());
    held :SCHEMA._private_pauses;
    freed_queue int;
begin
    for held in
        select pause.* from :SCHEMA._private_pauses as pause
        order by pause.kind, pause.name
        for update skip locked
    loop
        if held.handed_to is not null then
            -- Locked first: then the next statement sees every job that the token still has.
            select queue.id into freed_queue from only :SCHEMA._private_job_queues as queue
            where queue.queue_name = held.name and queue.locked_by = held.handed_to
            for no key update;
            if freed_queue is not null and exists (
                select from only :SCHEMA._private_jobs as job
                where job.locked_at is not null and job.job_queue_id = freed_queue and job.locked_by = held.handed_to)
            then
                continue;
            end if;
            if freed_queue is not null then
                update only :SCHEMA._private_job_queues as queue set locked_by = null, locked_at = null
                where queue.id = freed_queue;
                perform :SCHEMA._private_notify(1);
            end if;
            delete from :SCHEMA._private_pauses as pause where pause.kind = held.kind and pause.name = held.name;
        elsif held.paused_until <= this_moment then
            perform :SCHEMA._private_end_pause(held);
            return query select held.kind, held.name, held.paused_at, held.paused_until, held.reason, held.paused_by;
        elsif held.kind = 'queue' and not exists (
            select from only :SCHEMA._private_job_queues as queue
            where queue.queue_name = held.name and queue.locked_by = held.token)
        then
            perform :SCHEMA._private_lock_paused_queue(held.name, held.token);
        end if;
    end loop;
end
$$;

-- Changes the jobs to which the action applies, and returns them. Jobs that a worker is running are left out. With a
-- step, the former values of the jobs are stored in its row.
--
-- run_now: waiting jobs become due. A job that is due stays as it is, so none moves behind others.
-- run_next: due jobs get the priority, which is lower than that of all other jobs.
-- retry: jobs that have failed get all their attempts again and become due, with another payload if one is given.
-- reschedule: the values that are given. A failed job that gets a time also gets its attempts again.
-- fail: waiting jobs have no attempts left. The reason is added to the error that they have, with the attempts that were
-- made: attempts.py reads them there.
create or replace function :SCHEMA._private_change_jobs(
    job_ids bigint[], action text, new_run_at timestamptz, new_priority int, new_attempts int, new_max_attempts int,
    new_payload json, of_revision int, reason text, moment timestamptz
) returns setof :SCHEMA._private_jobs
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(moment, now());
    locked bigint[];
    parked bigint[];
    chosen bigint[];
    job :SCHEMA._private_jobs;
    due bigint := 0;
begin
    -- First locked, then looked at: until then, a sorter may park a job, and a claim may take it out of its lane.
    locked := array(
        select jobs.id from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (_private_change_jobs.job_ids)
            and not :SCHEMA._private_is_held(jobs.locked_at, jobs.locked_by)
            and (of_revision is null or jobs.revision = of_revision)
            and case action
                when 'run_now' then jobs.attempts < jobs.max_attempts and jobs.run_at > this_moment
                when 'run_next' then jobs.attempts < jobs.max_attempts and jobs.priority > new_priority
                    and (jobs.run_at <= this_moment or jobs.run_at = 'infinity')
                when 'retry' then jobs.attempts > 0
                when 'fail' then jobs.attempts < jobs.max_attempts
                when 'reschedule' then true
            end
        order by jobs.id
        for update);
    -- A parked job has its priority in its lane, too, and infinity as its time: it is sorted again.
    if action <> 'run_now' then
        parked := array(
            select limited.job_id from only :SCHEMA._private_limited_jobs as limited
            where limited.job_id = any (locked));
        if cardinality(parked) > 0 then
            perform :SCHEMA._private_unpark_jobs(parked);
        end if;
    end if;

    chosen := array(
        select jobs.id from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (locked) and case action
            when 'run_now' then not (jobs.run_at = 'infinity' and exists (
                select from only :SCHEMA._private_limited_jobs as limited where limited.job_id = jobs.id offset 0))
            when 'run_next' then jobs.run_at <= this_moment
            else true
        end
        order by jobs.id);

    for job in
        update only :SCHEMA._private_jobs as jobs set
            run_at = case
                when new_run_at is not null then new_run_at
                when action = 'run_now' or action = 'retry' and jobs.attempts < jobs.max_attempts
                    then least(jobs.run_at, this_moment)
                when action = 'retry' then this_moment
                else jobs.run_at
            end,
            priority = coalesce(new_priority, jobs.priority),
            attempts = case
                when new_attempts is not null then new_attempts
                when action = 'retry' then 0
                when action = 'fail' then jobs.max_attempts
                when action = 'reschedule' and new_run_at is not null
                    and jobs.attempts >= coalesce(new_max_attempts, jobs.max_attempts) then 0
                else jobs.attempts
            end,
            max_attempts = coalesce(new_max_attempts, jobs.max_attempts),
            last_error = case
                when action <> 'fail' then jobs.last_error
                else concat_ws(E'\n\n', nullif(jobs.last_error, ''), reason, format(
                    'Not tried again after attempt %s of %s.', jobs.attempts, jobs.max_attempts))
            end,
            payload = coalesce(new_payload, jobs.payload),
            revision = jobs.revision + (new_payload is not null)::int,
            updated_at = now()
        where jobs.id = any (chosen)
        returning jobs.*
    loop
        if job.is_available and :SCHEMA._private_is_due(job.run_at) then
            due := due + 1;
        end if;
        return next job;
    end loop;

    -- A job that was cancelled while it ran, and whose worker has been silent for hours, runs again: the marker of its
    -- cancellation would delete it when the old claim ends.
    if action <> 'fail' then
        delete from :SCHEMA._private_cancellations as marker where marker.job_id = any (chosen);
        delete from :SCHEMA._private_stop_requests as request where request.job_id = any (chosen);
    end if;
    perform :SCHEMA._private_notify(due);
end
$$;
