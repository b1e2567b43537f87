/* gw:install */
-- Workers that are late: silent for half of what they promised, or with a beat that lies
-- in the future because the server's clock was set back. Beats are written and read by
-- the server's clock alone. Also the number of registered workers.
create or replace function :SCHEMA._private_late_workers(
    own_timeout float8, own_heartbeat float8, moment timestamptz default null
) returns table (
    worker_id text, beaten_at float8, silent_seconds float8, timeout_seconds float8, heartbeat_seconds float8,
    workers bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    this_moment constant float8 := date_part('epoch', coalesce(moment, now()));
begin
    return query
    with worker as materialized (
        select each.id, date_part('epoch', each.last_heartbeat_at) as beaten_at,
            this_moment - date_part('epoch', each.last_heartbeat_at) as silent_seconds,
            coalesce(each.timeout_seconds, greatest(own_timeout, 300)) as timeout_seconds,
            coalesce(each.heartbeat_seconds, own_heartbeat) as heartbeat_seconds
        from only :SCHEMA._private_workers as each
    )
    select late.id, late.beaten_at, late.silent_seconds, late.timeout_seconds, late.heartbeat_seconds, counted.number
    from (select count(*) as number from worker) as counted
    left join worker as late
        on late.silent_seconds > late.timeout_seconds / 2 or late.silent_seconds < -late.heartbeat_seconds;
end
$$;

-- Workers of this package that hold locks and are not registered, so dead: claims that
-- were committed after their worker was removed from the register, and what an earlier
-- recovery left over. Only locks that are older than the given seconds, oldest first from
-- a moment on, about as many as asked for; "reached" is where the next look should go on,
-- null after the last lock.
create or replace function :SCHEMA._private_orphans(
    older_than float8, looked_at timestamptz default null, go_on_at float8 default null
) returns table (worker_ids text[], reached float8)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
declare
    most constant int := 1000;
    since constant timestamptz := coalesce(to_timestamp(go_on_at), '-infinity');
    until timestamptz := coalesce(looked_at, now()) - interval '1 second' * older_than;
    names text[];
    last_seen timestamptz;
    seen bigint;
begin
    select array_agg(distinct job.locked_by), max(job.locked_at), count(*)
    into names, last_seen, seen
    from (
        select each.locked_by, each.locked_at
        from only :SCHEMA._private_jobs as each
        where each.locked_at is not null and each.locked_at >= since and each.locked_at < until
        order by each.locked_at
        fetch first (most) rows with ties
    ) as job;
    reached := null;
    if seen >= most then
        -- All rows of that moment were read. The next look begins a microsecond later.
        last_seen := greatest(last_seen, timestamptz '0001-01-01 00:00:00+00');
        reached := date_part('epoch', last_seen + interval '1 microsecond');
        until := last_seen + interval '1 microsecond';
    end if;
    select array_agg(distinct holder.worker_id)
    into worker_ids
    from (
        select :SCHEMA._private_worker_of(name) as worker_id from unnest(names) as name
        union
        select :SCHEMA._private_worker_of(queue.locked_by)
        from only :SCHEMA._private_job_queues as queue
        where queue.locked_at is not null and queue.locked_at >= since and queue.locked_at < until
    ) as holder
    where starts_with(holder.worker_id, 'django-worker-') and not exists (
        select from only :SCHEMA._private_workers as worker where worker.id = holder.worker_id);
    return next;
end
$$;

-- Locks the jobs of dead workers, and returns their places. Without workers: the jobs that workers which are not registered
-- have held since this moment or longer.
create or replace function :SCHEMA._private_lock_lost_jobs(dead_workers text[], held_since timestamptz, most int)
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    return array(
        select job.ctid from only :SCHEMA._private_jobs as job
        where job.locked_at is not null and job.locked_at <= coalesce(held_since, 'infinity')
            and case when dead_workers is null then not exists (
                    select from only :SCHEMA._private_workers as worker
                    where worker.id = :SCHEMA._private_worker_of(job.locked_by))
                else :SCHEMA._private_worker_of(job.locked_by) in (
                    select dead.id from unnest(dead_workers) as dead(id)) end
        limit most for update of job skip locked);
end
$$;

-- Gives the jobs of dead workers back, and records the lost attempts. The first time a job keeps its place, as if it had
-- not begun. After that it waits, each job for another while: one that kills its worker
-- must not take the same neighbours along every time. From the given number of deaths on
-- the attempt counts. A job that was replaced under its key since the last recovery has
-- no error text any more: it is another job now, and the deaths of its predecessor do not count.
--
-- Without workers: gives back the jobs of workers that are not registered here and have held them for so many seconds,
-- such workers tell nothing of themselves. The attempt counts. Their locked_by may repeat, so a marker counts only if it
-- is younger than the lock.
create or replace function :SCHEMA._private_recover_jobs(
    dead_workers text[], older_than float8, most int, poison_limit int, keeping jsonb,
    recovered_at timestamptz default null
) returns table (job_id bigint, is_exhausted boolean, worker_id text, held_since timestamptz, held_seconds float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    this_moment constant timestamptz := coalesce(recovered_at, now());
    are_stale constant boolean := dead_workers is null;
    error_class constant text := 'django_graphile_worker.exceptions.WorkerDiedError';
    tids constant tid[] := :SCHEMA._private_lock_lost_jobs(
        dead_workers, this_moment - interval '1 second' * older_than, most);
    lost record; attempts :SCHEMA._private_ended_attempt[];
begin
    for lost in
        with orphan as materialized (
            select job.ctid as tid, job.*, holder.id as worker_id, held.seconds, died.recoveries,
                coalesce(marker.attempts, job.attempts) - case
                    when are_stale then (marker.job_id is not null)::int
                    else (died.recoveries < poison_limit)::int end as attempts_left,
                :SCHEMA._private_is_dropped(marker.kind, job.payload) as is_dropped,
                format('%s: The worker %s ', error_class, holder.id) || case
                    when are_stale then format('had held this job for %s hours and was taken for dead.',
                        round(held.seconds::numeric / 3600, 1))
                    when died.recoveries = 1 then 'died while it held this job (the first time).'
                    else format('died while it held this job (%s times; from %s on the attempt counts).',
                        died.recoveries, poison_limit) end as error
            from only :SCHEMA._private_jobs as job
            left join :SCHEMA._private_job_recoveries as earlier on earlier.job_id = job.id
            left join :SCHEMA._private_cancellations as marker on marker.job_id = job.id
                and marker.locked_by = job.locked_by and (marker.cancelled_at >= job.locked_at or not are_stale)
            cross join lateral (select :SCHEMA._private_worker_of(job.locked_by) as id) as holder
            -- Not the difference of the times: before PostgreSQL 17, an infinite time has none.
            cross join lateral (
                select date_part('epoch', this_moment) - date_part('epoch', job.locked_at) as seconds) as held
            cross join lateral (select case when not are_stale then
                case when job.last_error is null then 0 else coalesce(earlier.recoveries, 0) end + 1 end as recoveries
            ) as died
            where job.ctid = any (tids)
        ), dropped as (
            delete from only :SCHEMA._private_jobs as job
            where job.ctid = any (array(select orphan.tid from orphan where orphan.is_dropped))
        ), remembered as (
            insert into :SCHEMA._private_job_recoveries as known (job_id, recoveries)
            select orphan.id, orphan.recoveries from orphan where not orphan.is_dropped and not are_stale
            on conflict on constraint job_recoveries_pkey do update set recoveries = excluded.recoveries
        ), freed as (
            update only :SCHEMA._private_jobs as job
            set attempts = greatest(orphan.attempts_left, 0),
                run_at = case
                    when orphan.recoveries = 1 then job.run_at
                    else greatest(job.run_at, this_moment) + interval '1 second' * case when are_stale then 0
                        else :SCHEMA._private_backoff(orphan.recoveries) * (0.5 + random()) end end,
                last_error = orphan.error,
                updated_at = this_moment,
                locked_by = null,
                locked_at = null
            from orphan
            where job.ctid = orphan.tid and not orphan.is_dropped
        )
        select orphan.*, not is_dropped and greatest(attempts_left, 0) >= max_attempts as is_exhausted from orphan
    loop
        attempts := array_append(attempts, row(
            lost.id, lost.task_id, lost.job_queue_id, lost.revision, lost.created_at, lost.run_at, lost.attempts,
            lost.max_attempts, lost.key, lost.locked_by, null, 5,
            case when lost.is_dropped then 3 when lost.is_exhausted then 2 else 0 end, null,
            coalesce(recovered_at, clock_timestamp()), case when lost.is_dropped
                then format('The worker %s died while it held this job.', lost.worker_id) else lost.error end,
            error_class, null, null, null, null):::SCHEMA._private_ended_attempt);
        job_id := lost.id;
        is_exhausted := lost.is_exhausted;
        worker_id := lost.worker_id;
        held_since := lost.locked_at;
        held_seconds := lost.seconds;
        return next;
    end loop;
    perform :SCHEMA._private_record_attempts(attempts, keeping);
end
$$;

-- Releases the queues of dead workers, each only when none of its jobs is locked by such a worker any more: otherwise a
-- later job of the queue could start before an earlier one. Without workers: the queues that workers which are not
-- registered have held for so many seconds.
create or replace function :SCHEMA._private_recover_queues(
    dead_workers text[], older_than float8 default null, recovered_at timestamptz default null
) returns setof int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    held_since constant timestamptz := coalesce(
        coalesce(recovered_at, now()) - interval '1 second' * older_than, 'infinity');
begin
    return query
    with unfinished as materialized (
        select distinct job.job_queue_id as id
        from only :SCHEMA._private_jobs as job
        where job.locked_at is not null and job.locked_at <= held_since and job.job_queue_id is not null
            and case when dead_workers is null then not exists (
                    select from only :SCHEMA._private_workers as worker
                    where worker.id = :SCHEMA._private_worker_of(job.locked_by))
                else :SCHEMA._private_worker_of(job.locked_by) in (
                    select dead.id from unnest(dead_workers) as dead(id)) end
    )
    update only :SCHEMA._private_job_queues as queue
    set locked_by = null, locked_at = null
    where queue.ctid = any (array(
        select each.ctid
        from only :SCHEMA._private_job_queues as each
        where each.locked_at is not null and each.locked_at <= held_since
            and case when dead_workers is null then not exists (
                    select from only :SCHEMA._private_workers as worker
                    where worker.id = :SCHEMA._private_worker_of(each.locked_by))
                else :SCHEMA._private_worker_of(each.locked_by) in (
                    select dead.id from unnest(dead_workers) as dead(id)) end
            and not exists (select from unfinished where unfinished.id = each.id)
        for update of each skip locked))
    returning queue.id;
end
$$;

-- Forgets deaths of jobs that are gone, and markers and requests of claims that have ended.
create or replace function :SCHEMA._private_forget_ended()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from :SCHEMA._private_job_recoveries as known
    where not exists (select from only :SCHEMA._private_jobs as job where job.id = known.job_id);
    delete from :SCHEMA._private_cancellations as marker
    where not exists (
        select from only :SCHEMA._private_jobs as job
        where job.id = marker.job_id and job.locked_by = marker.locked_by);
    delete from :SCHEMA._private_stop_requests as request
    where not exists (
        select from only :SCHEMA._private_jobs as job
        where job.id = request.job_id and job.locked_by = request.token);
end
$$;

-- Makes the old locks of a living worker young again: workers of Node.js take what is four
-- hours old. A row that another transaction is changing is left for the next time. Jobs
-- of atomic tasks are spared: at REPEATABLE READ their transaction could not delete a row
-- that has changed since it began.
create or replace function :SCHEMA._private_renew_claims(worker_id text, older_than float8, spared bigint[] default '{}')
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    limit_of_age constant timestamptz := now() - interval '1 second' * older_than;
begin
    update only :SCHEMA._private_job_queues as queue
    set locked_at = now()
    where queue.ctid = any (array(
        select each.ctid
        from only :SCHEMA._private_job_queues as each
        where each.locked_at is not null and each.locked_at < limit_of_age
            and :SCHEMA._private_worker_of(each.locked_by) = worker_id
        for update of each skip locked));
    update only :SCHEMA._private_jobs as job
    set locked_at = now()
    where job.ctid = any (array(
        select each.ctid
        from only :SCHEMA._private_jobs as each
        where each.locked_at is not null and each.locked_at < limit_of_age
            and :SCHEMA._private_worker_of(each.locked_by) = worker_id
            and each.id <> all (spared)
        for update of each skip locked));
end
$$;
