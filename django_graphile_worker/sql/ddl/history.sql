/* gw:install */
-- Whether there may be something to record: what these settings keep, a result of an
-- earlier attempt, or a session that waits. Nothing for a role that may not write results:
-- what it does must not fail because of a record.
create or replace function :SCHEMA._private_records_anything(ended :SCHEMA._private_ended_attempt[], keeping jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    if (keeping ->> 'history')::boolean or keeping ->> 'default' is not null
        or exists (select from unnest(ended) as attempt where attempt.keep is not null)
        or exists (select from jsonb_each_text(keeping -> 'tasks') as task(identifier, seconds) where seconds is not null)
    then
        return true;
    end if;
    if not has_table_privilege(':SCHEMA._private_results', 'insert')
        or not has_table_privilege(':SCHEMA._private_waiters', 'select') then
        return false;
    end if;
    return exists (select from only :SCHEMA._private_results) or exists (select from only :SCHEMA._private_waiters);
end
$$;

-- Notifies of jobs that have ended, if a session waits for them. The rows of the jobs were locked by earlier statements,
-- so a session that registered before it looked at the job is seen here. A transaction with one snapshot cannot see it,
-- and notifies in any case.
create or replace function :SCHEMA._private_notify_waiters(job_ids bigint[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    has_one_snapshot constant boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
begin
    if (has_one_snapshot or exists (select from only :SCHEMA._private_waiters))
        and pg_notification_queue_usage() < 0.9 then
        perform pg_notify('jobs:result', json_build_object(
            'schema', :'SCHEMA'::text, 'jobs', json_agg(ended.job_id))::text)
        from (
            select given.job_id, row_number() over () / 300 as part
            from unnest(job_ids) as given(job_id)
            where has_one_snapshot or exists (
                select from only :SCHEMA._private_waiters as waiter where waiter.job_id = given.job_id)
        ) as ended
        group by ended.part;
    end if;
end
$$;

-- The names and numbers that records of attempts have. A job that was removed or replaced under its key while it ran has
-- lost its key and the attempts that were left: the marker has both. A function that PostgreSQL inlines, as it is called
-- for nearly every job.
create or replace function :SCHEMA._private_described_attempts(ended :SCHEMA._private_ended_attempt[])
returns table (
    attempt :SCHEMA._private_ended_attempt, identifier text, worker_id text, number int, job_key text, queue_name text)
language sql stable
begin atomic
    select attempt,
        coalesce(attempt.task_identifier, (
            select task.identifier from only :SCHEMA._private_tasks as task
            where task.id operator(pg_catalog.=) attempt.task_id)),
        :SCHEMA._private_worker_of(attempt.token),
        case when attempt.attempts operator(pg_catalog.<) attempt.max_attempts then attempt.attempts else coalesce((
            select marker.attempts from :SCHEMA._private_cancellations as marker
            where marker.job_id operator(pg_catalog.=) attempt.job_id
                and marker.locked_by operator(pg_catalog.=) attempt.token), attempt.attempts) end,
        case when attempt.job_key is not null or attempt.attempts operator(pg_catalog.<) attempt.max_attempts
            then attempt.job_key else (
                select marker.job_key from :SCHEMA._private_cancellations as marker
                where marker.job_id operator(pg_catalog.=) attempt.job_id
                    and marker.locked_by operator(pg_catalog.=) attempt.token) end,
        case when attempt.job_queue_id is not null then (
            select queue.queue_name from only :SCHEMA._private_job_queues as queue
            where queue.id operator(pg_catalog.=) attempt.job_queue_id) end
    from pg_catalog.unnest(ended) as attempt;
end;

-- Records attempts that have ended: in the history, and in the results of their jobs. Each function that ends a claim
-- calls it in the same transaction, if there is something to record: so there is no record without the end of its
-- attempt, and no end without its record. The jobs may be gone by then.
--
-- "keeping" has the settings: "history" says whether there is one, "tasks" for how many seconds the results of tasks are
-- kept that differ from the "default". A result that is not kept is stored only if the job has a row already, or if a
-- session waits for it.
create or replace function :SCHEMA._private_record_attempts(ended :SCHEMA._private_ended_attempt[], keeping jsonb)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    if ended is null or not :SCHEMA._private_records_anything(ended, keeping) then
        return;
    end if;
    if (keeping ->> 'history')::boolean then
        insert into :SCHEMA._private_history (
            ended_at, started_at, added_at, run_at, job_id, attempt, outcome, task_identifier, worker_id, queue_name,
            job_key, error, payload)
        select (known.attempt).ended_at, (known.attempt).started_at, (known.attempt).added_at, (known.attempt).run_at,
            (known.attempt).job_id, known.number, (known.attempt).outcome, known.identifier, known.worker_id,
            known.queue_name, known.job_key, (known.attempt).error, (known.attempt).history_payload
        from :SCHEMA._private_described_attempts(ended) as known;
    end if;
    if not exists (select from unnest(ended) as attempt where attempt.status is not null) then
        return;
    end if;
    insert into :SCHEMA._private_results as known (
        job_id, task_identifier, queue_name, job_key, status, revision, payload, added_at, first_started_at,
        last_started_at, finished_at, value, attempts, expires_at)
    select attempt.job_id, known.identifier, known.queue_name, known.job_key, attempt.status, attempt.revision,
        attempt.kept_payload, attempt.added_at, attempt.started_at, attempt.started_at,
        case when attempt.status <> 0 then attempt.ended_at end, attempt.value,
        -- A job that was removed, or cancelled while it waited, made no attempt.
        case when attempt.outcome = 6 or known.worker_id is null and attempt.exception_class is null then '[]' else jsonb_build_array(
            jsonb_build_object('worker_id', case when attempt.outcome <> 9 then known.worker_id end,
                'started_at', date_part('epoch', attempt.started_at), 'ended_at', date_part('epoch', attempt.ended_at),
                'exception_class', attempt.exception_class, 'traceback', attempt.error)) end,
        coalesce(attempt.ended_at + kept.seconds * interval '1 second', clock_timestamp() + interval '1 day')
    from :SCHEMA._private_described_attempts(ended) as known
    cross join lateral (select (known.attempt).*) as attempt
    cross join lateral (select case
        when attempt.keep is not null then attempt.keep
        when keeping -> 'tasks' ? known.identifier then (keeping -> 'tasks' ->> known.identifier)::float8
        else (keeping ->> 'default')::float8 end as seconds) as kept
    where attempt.status is not null and (kept.seconds is not null
        or exists (select from only :SCHEMA._private_results as result where result.job_id = attempt.job_id)
        -- Not before the end: the attempts of a job without a kept result write no row that could follow this one.
        or attempt.status <> 0 and exists (
            select from only :SCHEMA._private_waiters as waiter where waiter.job_id = attempt.job_id))
    on conflict on constraint results_pkey do update set
        task_identifier = excluded.task_identifier, queue_name = excluded.queue_name, job_key = excluded.job_key,
        status = excluded.status, revision = excluded.revision,
        payload = coalesce(excluded.payload, known.payload), added_at = excluded.added_at,
        first_started_at = coalesce(
            case when known.revision = excluded.revision then known.first_started_at end, excluded.first_started_at),
        last_started_at = coalesce(
            excluded.last_started_at, case when known.revision = excluded.revision then known.last_started_at end),
        finished_at = excluded.finished_at, value = excluded.value,
        -- At most the last hundred attempts.
        attempts = case
            when known.revision <> excluded.revision then excluded.attempts
            when jsonb_array_length(known.attempts) >= 100 and excluded.attempts <> '[]'
                then (known.attempts - 0) || excluded.attempts
            else known.attempts || excluded.attempts end,
        expires_at = greatest(known.expires_at, excluded.expires_at);
    perform :SCHEMA._private_notify_waiters(array(
        select attempt.job_id from unnest(ended) as attempt where attempt.status <> 0));
end
$$;

-- Records that an operator, or a call of the API, ended jobs that did not run: removed or
-- completed them (outcome 6), or failed them for good (outcome 7). "ended" has the jobs as
-- the functions of the schema return them. Jobs that still run are left out: their workers
-- record their ends.
create or replace function :SCHEMA._private_record_operator(
    ended :SCHEMA._private_jobs[], outcome smallint, keeping jsonb
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
    has_failed constant boolean := outcome = 7;
begin
    perform :SCHEMA._private_record_attempts(array_agg(row(
        job.id, job.task_id, job.job_queue_id, job.revision, job.created_at, job.run_at, job.attempts, job.max_attempts,
        job.key, null, null, outcome, case when has_failed then 2 else 3 end, null, clock_timestamp(),
        case when has_failed then job.last_error end,
        case when has_failed then 'django_graphile_worker.exceptions.FailedByOperatorError' end,
        null, null, null, null):::SCHEMA._private_ended_attempt), keeping)
    from unnest(ended) as job
    where job.id is not null and not exists (
        select from only :SCHEMA._private_jobs as later where later.id = job.id and later.locked_at is not null);
end
$$;

-- What is recorded of a job that was cancelled: who cancelled it and why, and the error with which its run ended. Without
-- a token, the job waited.
create or replace function :SCHEMA._private_cancelled_attempt(
    job :SCHEMA._private_jobs, token text, started_at timestamptz, ended_at timestamptz, reason text, cancelled_by text,
    error text, history_payload text
) returns :SCHEMA._private_ended_attempt
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select row(
        job.id, job.task_id, job.job_queue_id, job.revision, job.created_at, job.run_at, job.attempts, job.max_attempts,
        job.key, token, null, 8, 4, started_at, ended_at,
        concat_ws(E'\n', concat('Cancelled', ' by ' || nullif(cancelled_by, ''), coalesce(': ' || nullif(reason, ''), '.')),
            error),
        case when token is not null then 'django_graphile_worker.exceptions.JobCancelledError' end,
        json_build_object('by', cancelled_by, 'reason', reason)::text, null, history_payload,
        null):::SCHEMA._private_ended_attempt
$$;

-- Whether the result of a job says how it ended. A role that may not read results gets no answer.
create or replace function :SCHEMA._private_has_result(job_id bigint)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    return has_table_privilege(':SCHEMA._private_results', 'select') and exists (
        select from only :SCHEMA._private_results as result
        where result.job_id = _private_has_result.job_id and result.status <> 0);
end
$$;

-- Deletes some of the results that have expired, the oldest first from a moment on; returns
-- how many were found, and where the next call goes on. The result of a job that still
-- waits or runs stays for another day.
create or replace function :SCHEMA._private_prune_results(
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

-- The partitions of the history, one for each day in UTC. Only the owner of a table can
-- make and drop its partitions: these functions do it for the roles that run workers.

-- The BRIN index of a partition.
create or replace function :SCHEMA._private_history_ranges(partition regclass)
returns regclass language sql stable set search_path = pg_catalog, pg_temp as $$
    select index.indexrelid::regclass
    from pg_index as index
    join pg_class as class on class.oid = index.indexrelid
    join pg_am as method on method.oid = class.relam
    where index.indrelid = partition and method.amname = 'brin'
$$;

-- Makes the missing partitions of the days around a moment; returns how many. Rows of such
-- a day that are in the default partition already move, unless they are too many: then the
-- day stays there. Does nothing while another session changes the partitions.
create or replace function :SCHEMA._private_make_history_partitions(days_ahead int, moment timestamptz default null)
returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    first_day constant date := (coalesce(moment, now()) at time zone 'UTC')::date;
    day date;
    name text;
    beginning timestamptz; ending timestamptz;
    made int := 0;
begin
    for day in select first_day + ahead from generate_series(0, days_ahead) as ahead loop
        name := '_private_history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(format('%s.%I', ':SCHEMA', name)) is not null;
        begin
            lock table only :SCHEMA._private_history in share update exclusive mode nowait;
        exception when lock_not_available then
            return made;
        end;
        beginning := day::timestamp at time zone 'UTC';
        ending := (day + 1)::timestamp at time zone 'UTC';
        -- Another session may have made it before this one had the lock.
        continue when to_regclass(format('%s.%I', ':SCHEMA', name)) is not null;
        continue when (
            select count(*) > 10000 from (
                select from only :SCHEMA._private_history_default as early
                where early.ended_at >= beginning and early.ended_at < ending limit 10001) as found);
        execute format('create table %s.%I (like %s including defaults including constraints)',
            ':SCHEMA', name, ':SCHEMA._private_history');
        execute format('alter table %s.%I enable row level security', ':SCHEMA', name);
        if beginning <= clock_timestamp() then
            -- Attempts of this day may end now. One that has chosen the default partition already, and waits for it,
            -- would be refused after the attachment: so none may choose before.
            lock table only :SCHEMA._private_history in share row exclusive mode;
        end if;
        lock table only :SCHEMA._private_history_default in access exclusive mode;
        execute format(
            'with moved as (delete from only %s where ended_at >= $1 and ended_at < $2 returning *)
            insert into %s.%I select * from moved', ':SCHEMA._private_history_default', ':SCHEMA', name)
            using beginning, ending;
        execute format('alter table %s attach partition %s.%I for values from (%L) to (%L)',
            ':SCHEMA._private_history', ':SCHEMA', name, beginning, ending);
        -- An empty index has a summary of its first pages, which every row on them would
        -- change, at ten times the cost of the row.
        perform brin_desummarize_range(ranges.id, 0)
        from :SCHEMA._private_history_ranges(format('%s.%I', ':SCHEMA', name)::regclass) as ranges(id);
        made := made + 1;
    end loop;
    return made;
end
$$;
revoke execute on function :SCHEMA._private_make_history_partitions(int, timestamptz) from public;

-- Does one step of forgetting the history before a moment, and returns what is left to do:
-- true if there may be another step. A partition is first detached, which takes a moment
-- in which no attempt can end, and then dropped, for which nobody waits. Rows in the
-- default partition are deleted, a few at a time.
create or replace function :SCHEMA._private_drop_history(before timestamptz, most int)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    last_day constant text := '_private_history_' || to_char((before at time zone 'UTC')::date, 'YYYYMMDD');
    name text;
    deleted int;
begin
    select class.relname into name
    from pg_class as class
    where class.relnamespace = ':SCHEMA'::regnamespace and class.relkind = 'r' and not class.relispartition
        and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname < last_day
    order by class.relname limit 1;
    if found then
        execute format('drop table %s.%I', ':SCHEMA', name);
        return true;
    end if;
    select class.relname into name
    from pg_inherits as child
    join pg_class as class on class.oid = child.inhrelid
    where child.inhparent = ':SCHEMA._private_history'::regclass
        and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname < last_day
    order by class.relname limit 1;
    if found then
        begin
            execute format('alter table %s detach partition %s.%I', ':SCHEMA._private_history', ':SCHEMA', name);
        exception when lock_not_available then
            return false;
        end;
        return true;
    end if;
    delete from only :SCHEMA._private_history_default as old
    where old.ctid = any (array(
        select each.ctid from only :SCHEMA._private_history_default as each
        where each.ended_at < before limit most));
    get diagnostics deleted = row_count;
    return deleted >= most;
end
$$;
revoke execute on function :SCHEMA._private_drop_history(timestamptz, int) from public;

-- Does one step of indexing the history, and returns whether there may be another step:
-- a day that has been over for some minutes gets its B-trees, one at a time, and the BRIN
-- index of the other days is brought up to date.
create or replace function :SCHEMA._private_index_history(moment timestamptz default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    this_day constant text := '_private_history_' || to_char(
        (coalesce(moment, now()) - interval '10 minutes') at time zone 'UTC', 'YYYYMMDD');
    name text;
    suffix text;
    definition text;
    partition regclass;
    ranges regclass;
    block bigint;
begin
    select class.relname, wanted.suffix, wanted.definition into name, suffix, definition
    from pg_inherits as child
    join pg_class as class on class.oid = child.inhrelid
    cross join (values
        ('_job_id', '(job_id)'),
        -- The words of payloads. A text could be too long for the type, so only its beginning has entries.
        ('_payload', 'using gin (to_tsvector(''pg_catalog.simple'', "left"(payload, 20000))) where payload is not null'),
        -- The last of a day: a search relies on the others if it finds this one.
        ('_task', '(task_identifier, ended_at)')) as wanted(suffix, definition)
    where child.inhparent = ':SCHEMA._private_history'::regclass
        and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname < this_day
        and to_regclass(format('%s.%I', ':SCHEMA', class.relname || wanted.suffix)) is null
    order by class.relname, wanted.suffix limit 1;
    if found then
        execute format('create index %I on only %s.%I %s', name || suffix, ':SCHEMA', name, definition);
        return true;
    end if;
    -- Only ranges of pages that are full, from the last one back to one that has a summary:
    -- a summary of the pages that are written now would slow the writers down.
    for partition in
        select class.oid::regclass
        from pg_inherits as child
        join pg_class as class on class.oid = child.inhrelid
        where child.inhparent = ':SCHEMA._private_history'::regclass
            and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname >= this_day
    loop
        ranges := :SCHEMA._private_history_ranges(partition);
        block := pg_relation_size(partition) / current_setting('block_size')::bigint / 32 * 32 - 32;
        while block >= 0 loop
            exit when brin_summarize_range(ranges, block) = 0;
            block := block - 32;
        end loop;
    end loop;
    return false;
end
$$;
revoke execute on function :SCHEMA._private_index_history(timestamptz) from public;
