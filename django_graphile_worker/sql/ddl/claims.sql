/* gw:install */
-- How a worker claims jobs: one call, whose cost is in proportion to what it returns.
--
-- The claim goes through the priorities from the lowest number up. The index of graphile-worker that begins with the
-- priority tells in one probe for each priority whether anything is due there. On such a priority each task has a range
-- of its own in an index that begins with the task, up to the due time, so that neither future jobs nor the jobs of
-- unknown tasks are read. A named queue is claimed as a whole, with several of its jobs in order.
--
-- What may not be claimed can stand before what may: jobs of queues that are held, and jobs with a forbidden flag. A
-- claim passes over a bounded number of them and says where it stopped; the next claim goes on there. Held queues are
-- passed queue by queue, however many jobs they have.
--
-- Until a vacuum, and as long as a transaction holds a snapshot, the entries of claimed and deleted jobs stay in the
-- indexes, and a scan reads the row of each. A claim can therefore begin at the places where an earlier one ended, one
-- for each priority. What comes in before them is found by a claim from the start; the worker decides when to make one.
--
-- Rules for the statements:
--
-- - Lower bounds are comparisons of rows, upper bounds are plain comparisons: before PostgreSQL 18 a comparison of rows
--   does not end the scan of an index.
-- - Each statement has one right plan, whatever the statistics say: the planner may not sort, and the order by clauses
--   name the columns down to the id, so that only one index has that order. The two indexes of jobs in queues would
--   both do for the jobs of one queue, so their conditions differ: jobs_queued_index serves statements that say
--   "job_queue_id > 0", which no other statement says.
-- - A row is locked before it is claimed, and judged as it is then. Locking passes over rows that others have locked.
-- - The updates name the key, which they do not change. For a column that an update does not name, PostgreSQL expects
--   the full pages of an index to hold versions of rows that can be removed, and looks for them in the table before it
--   splits a page. Here it never finds one, because the old versions are those of this very statement; the search takes
--   a sixth of the time of a claim of many jobs.

-- The worker of a lock. A worker of this package writes its id, a slash and the number of its claim statement into
-- locked_by; other workers write what they like. A plain expression, so that PostgreSQL inlines it.
create or replace function :SCHEMA._private_worker_of(locked_by text)
returns text language sql immutable parallel safe
return case
    when pg_catalog.starts_with(locked_by, 'django-worker-') then pg_catalog.split_part(locked_by, '/', 1)
    else locked_by
end;

-- The transactions that are writing. Scans pass over the rows that they have locked or changed (xmax) before they try
-- to lock them. A try costs five times as much as the scan of a row. And if another claim commits after the snapshot of
-- this one, a try locks the version of the row that the other has written, until this claim ends, and the other worker
-- cannot delete the row meanwhile. None in a transaction that has written before, because it may have locked rows
-- itself.
create or replace function :SCHEMA._private_running_transactions()
returns xid[] language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if pg_current_xact_id_if_assigned() is not null then
        return '{}';
    end if;
    return array(
        select each.id::xid from pg_snapshot_xip(pg_current_snapshot()) as each(id)
        union all
        -- The snapshot does not list transactions that are newer than all that have ended.
        select (each.number % 4294967296)::text::xid
        from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as number) as next
        cross join generate_series(next.number, next.number + 15) as each(number));
end
$$;

-- The next priority that has available jobs or a known place: when the first job is due, and the place behind which to
-- look, null behind the last priority. Where no place is known, it is that of the first job: so the entries of jobs that
-- are gone are read once. The jobs of a priority with a known place are not looked at here, and the time is null.
create or replace function :SCHEMA._private_next_level(
    behind :SCHEMA._private_continuation, after_priority int,
    out first_run_at timestamptz, out place :SCHEMA._private_place
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    first record;
begin
    select known.* into place
    from unnest(behind.places) as known where known.priority > after_priority order by known.priority limit 1;
    select j.priority, j.run_at into first
    from only :SCHEMA._private_jobs as j
    where j.is_available and j.priority > after_priority and j.priority < coalesce(place.priority, 32768)
    order by j.priority, j.run_at limit 1;
    if found then
        first_run_at := first.run_at;
        place := row(first.priority, first.run_at, 0, first.run_at, 0);
        if first.priority < behind.seen_priority and first.run_at < behind.seen_until then
            place := row(first.priority, behind.seen_until, 0, behind.seen_until, 0);
        end if;
    end if;
end
$$;

-- The known tasks that have due jobs behind a place, without a queue and in queues, and when the first in a queue was
-- due.
create or replace function :SCHEMA._private_due_tasks(
    terms :SCHEMA._private_claim_terms, place :SCHEMA._private_place,
    out plain int[], out queued int[], out first_queued timestamptz
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    select coalesce(array_agg(each.id) filter (where each.is_plain), '{}'),
        coalesce(array_agg(each.id) filter (where each.queued_run_at is not null), '{}'), min(each.queued_run_at)
    into plain, queued, first_queued
    from (
        select task.id, (
            select true from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is null and j.task_id = task.id and j.priority = place.priority
                and (j.run_at, j.id) > (place.run_at, place.id) and j.run_at <= terms.moment
            order by j.run_at, j.id limit 1
        ) as is_plain, (
            select j.run_at from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id > 0 and j.task_id = task.id and j.priority = place.priority
                and (j.run_at, j.id) > (place.queued_run_at, place.queued_id) and j.run_at <= terms.moment
            order by j.run_at, j.id limit 1
        ) as queued_run_at
        from unnest(terms.known_tasks) as task(id)
    ) as each;
end
$$;

-- Locks the first due jobs of one task without a queue: what nearly every claim is. The scan of the index itself passes
-- over what others are claiming. "is_waiting": there are more, which others have locked.
create or replace function :SCHEMA._private_lock_first_jobs(
    terms :SCHEMA._private_claim_terms, place :SCHEMA._private_place, of_task int, most int,
    out tids tid[], out bytes bigint, out last_run_at timestamptz, out last_id bigint, out is_waiting boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    passed xid[] := terms.running;
begin
    loop
        select coalesce(array_agg(locked.tid), '{}'), coalesce(sum(locked.size), 0),
            (array_agg(locked.run_at))[count(*)], (array_agg(locked.id))[count(*)]
        into tids, bytes, last_run_at, last_id
        from (
            select j.ctid as tid, j.run_at, j.id, case when pg_column_compression(j.payload) is null
                then pg_column_size(j.payload) else 1000000000 end as size
            from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is null and j.task_id = of_task and j.priority = place.priority
                and (j.run_at, j.id) > (place.run_at, place.id) and j.run_at <= terms.moment
                and (j.xmax = '0' or j.xmax <> all (passed))
            order by j.run_at, j.id
            limit most
            for update skip locked
        ) as locked;
        exit when passed = '{}' or cardinality(tids) = most;
        passed := '{}';
    end loop;
    perform from only :SCHEMA._private_jobs as j
    where cardinality(tids) < most
        and j.is_available and j.job_queue_id is null and j.task_id = of_task and j.priority = place.priority
        and (j.run_at, j.id) > (place.run_at, place.id) and j.run_at <= terms.moment
    order by j.run_at, j.id
    offset cardinality(tids) limit 1;
    is_waiting := found;
end
$$;

-- Looks at due jobs without a queue on one priority, in order behind a place, at most so many. Returns those that may
-- run, and where the look ended: at infinity if it saw all of them.
create or replace function :SCHEMA._private_look_at_jobs(
    terms :SCHEMA._private_claim_terms, place :SCHEMA._private_place, of_tasks int[], most int,
    out candidates :SCHEMA._private_candidate[], out end_run_at timestamptz, out end_id bigint
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    passed xid[] := terms.running;
    per_task constant int := least(most, 4 + ceil(2.0 * most / greatest(cardinality(of_tasks), 1)));
begin
    loop
        with first as materialized (
            select task.id as task_id, per_task as most, job.*
            from unnest(of_tasks) as task(id)
            cross join lateral (
                select j.ctid as tid, j.run_at, j.id,
                    terms.forbidden_flags is null or (j.flags ?| terms.forbidden_flags) is not true as may_run
                from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.task_id = task.id and j.priority = place.priority
                    and (j.run_at, j.id) > (place.run_at, place.id) and j.run_at <= terms.moment
                    and (j.xmax = '0' or j.xmax <> all (passed))
                order by j.run_at, j.id limit per_task
            ) as job
        ), flagged as materialized (
            -- Tasks of which none of the first jobs may run: a thousand jobs of them are looked at.
            select first.task_id, per_task + 1000 / (count(*) over ())::int as most
            from first group by first.task_id having count(*) = per_task and not bool_or(first.may_run)
        ), entry as materialized (
            select first.* from first
            where not exists (select from flagged where flagged.task_id = first.task_id)
            union all
            select flagged.task_id, flagged.most, job.*
            from flagged
            cross join lateral (
                select j.ctid as tid, j.run_at, j.id, (j.flags ?| terms.forbidden_flags) is not true as may_run
                from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.task_id = flagged.task_id
                    and j.priority = place.priority
                    and (j.run_at, j.id) > (place.run_at, place.id) and j.run_at <= terms.moment
                    and (j.xmax = '0' or j.xmax <> all (passed))
                order by j.run_at, j.id limit flagged.most
            ) as job
        ), bound as materialized (
            -- Behind the last job seen of a task that may have more, the order is not known.
            select last.run_at, last.id
            from (
                select (array_agg(entry.run_at))[min(entry.most)] as run_at,
                    (array_agg(entry.id))[min(entry.most)] as id
                from entry group by entry.task_id
            ) as last
            where last.id is not null
            order by last.run_at, last.id limit 1
        )
        select coalesce(array_agg(row(entry.tid, null, place.priority, entry.run_at, entry.id)
                :::SCHEMA._private_candidate), '{}'),
            coalesce((select bound.run_at from bound), 'infinity'), coalesce((select bound.id from bound), 0)
        into candidates, end_run_at, end_id
        from entry
        where entry.may_run and not exists (
            select from bound where (entry.run_at, entry.id) > (bound.run_at, bound.id));
        exit when passed = '{}' or isfinite(end_run_at) or cardinality(candidates) >= most;
        -- Too few without the rows that others are writing: those are tried, too.
        passed := '{}';
    end loop;
end
$$;

-- The same for jobs in queues: returns the first job of each free queue. The queues that this claim has tried are left
-- out. "is_blocked": some of the jobs cannot run.
create or replace function :SCHEMA._private_look_at_queues(
    terms :SCHEMA._private_claim_terms, place :SCHEMA._private_place, of_tasks int[], tried int[], most int,
    out candidates :SCHEMA._private_candidate[], out end_run_at timestamptz, out end_id bigint, out is_blocked boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    examined constant int := case when terms.forbidden_flags is null then 100 else 1000 end + least(most, 500);
    per_task constant int := 4 + ceil(2.0 * examined / greatest(cardinality(of_tasks), 2));
    queues_seen int;
begin
    with entry as materialized (
        select task.id as task_id, job.run_at, job.id, job.job_queue_id, job.flags
        from unnest(of_tasks) as task(id)
        cross join lateral (
            select j.run_at, j.id, j.job_queue_id, case when terms.forbidden_flags is not null then j.flags end as flags
            from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id > 0 and j.task_id = task.id and j.priority = place.priority
                and (j.run_at, j.id) > (place.queued_run_at, place.queued_id) and j.run_at <= terms.moment
            order by j.run_at, j.id limit per_task
        ) as job
    ), bound as materialized (
        select last.run_at, last.id
        from (
            select (array_agg(entry.run_at))[per_task] as run_at, (array_agg(entry.id))[per_task] as id
            from entry group by entry.task_id
        ) as last
        where last.id is not null
        order by last.run_at, last.id limit 1
    ), head as (
        select distinct on (entry.job_queue_id) entry.job_queue_id, entry.run_at, entry.id
        from entry
        where (terms.forbidden_flags is null or (entry.flags ?| terms.forbidden_flags) is not true)
            and not exists (select from bound where (entry.run_at, entry.id) > (bound.run_at, bound.id))
            and entry.job_queue_id <> all (tried)
        order by entry.job_queue_id, entry.run_at, entry.id
    )
    select coalesce(array_agg(row(null, head.job_queue_id, place.priority, head.run_at, head.id)
            :::SCHEMA._private_candidate), '{}'),
        coalesce((select bound.run_at from bound), 'infinity'), coalesce((select bound.id from bound), 0), (
            select count(distinct entry.job_queue_id) from entry
            where not exists (select from bound where (entry.run_at, entry.id) > (bound.run_at, bound.id)))
    into candidates, end_run_at, end_id, queues_seen
    from head
    -- Not a join: the planner could read all queues for it.
    where (select queue.is_available from only :SCHEMA._private_job_queues as queue where queue.id = head.job_queue_id);
    is_blocked := terms.forbidden_flags is not null or queues_seen > cardinality(candidates);
end
$$;

-- The first due jobs of queues up to a priority, at most so many of each, in order: from one priority of one of its
-- tasks to the next. Of the jobs of a task on a priority at most "examined" are looked at for one without a forbidden
-- flag; null: all of them.
create or replace function :SCHEMA._private_first_of_queues(
    terms :SCHEMA._private_claim_terms, queue_ids int[], max_priority int, most int, examined int
) returns setof :SCHEMA._private_candidate
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return query
    with recursive stair (queue_id, task_id, priority) as (
        select each.id, -2147483648, 0::smallint from unnest(queue_ids) as each(id)
        union all
        select stair.queue_id, ahead.task_id, ahead.priority
        from stair
        cross join lateral (
            select j.task_id, j.priority from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null
                and (j.job_queue_id, j.task_id, j.priority) > (stair.queue_id, stair.task_id, stair.priority)
                and j.job_queue_id <= stair.queue_id
            order by j.job_queue_id, j.task_id, j.priority limit 1
        ) as ahead
    ), ranked as (
        select job.tid, stair.queue_id, stair.priority, job.run_at, job.id, row_number() over (
            partition by stair.queue_id order by stair.priority, job.run_at, job.id) as number
        from stair
        cross join lateral (
            select early.tid, early.run_at, early.id
            from (
                select j.ctid as tid, j.run_at, j.id, j.flags from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null and j.job_queue_id = stair.queue_id
                    and j.task_id = stair.task_id and j.priority = stair.priority and j.run_at <= terms.moment
                order by j.run_at, j.id
                limit case when terms.forbidden_flags is null then most else examined end
            ) as early
            where terms.forbidden_flags is null or (early.flags ?| terms.forbidden_flags) is not true
            order by early.run_at, early.id
            limit most
        ) as job
        where stair.task_id = any (terms.known_tasks) and stair.priority <= max_priority
    )
    select ranked.tid, ranked.queue_id, ranked.priority::int, ranked.run_at, ranked.id
    from ranked where ranked.number <= most;
end
$$;

-- The first due job of each of these queues, unless a limited job of the queue comes first. So many jobs with forbidden
-- flags are passed.
create or replace function :SCHEMA._private_heads_of_queues(
    terms :SCHEMA._private_claim_terms, queue_ids int[], max_forbidden int
) returns :SCHEMA._private_candidate[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return array(
        select row(head.*):::SCHEMA._private_candidate
        from :SCHEMA._private_first_of_queues(terms, queue_ids, 32767, 1, max_forbidden) as head
        left join :SCHEMA._private_first_in_queues(
            case when terms.limited_tasks is null then '{}' else queue_ids end,
            terms.limited_tasks, terms.forbidden_flags, terms.moment
        ) as limited on limited.queue_id = head.queue_id
        where (head.priority, head.run_at, head.id)
            < (limited.job_priority, limited.job_run_at, limited.job_id) is not false);
end
$$;

-- Steps from queue to queue, past those that are held. The first jobs of the free ones are added to those found.
create or replace function :SCHEMA._private_step_over_queues(
    terms :SCHEMA._private_claim_terms, inout steps :SCHEMA._private_steps
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    max_forbidden constant int := 20;
    free_queues int[];
begin
    with recursive step (queue_id, number) as (
        select steps.after_queue, 0
        union all
        select (
            select j.job_queue_id from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null and j.job_queue_id > step.queue_id
            order by j.job_queue_id, j.task_id, j.priority, j.run_at, j.id limit 1
        ), step.number + 1
        from step where step.queue_id is not null and step.number < terms.max_steps
    )
    select coalesce(array_agg(step.queue_id) filter (where step.number > 0 and (
            select queue.is_available from only :SCHEMA._private_job_queues as queue
            where queue.id = step.queue_id)), '{}'),
        (array_agg(step.queue_id order by step.number desc))[1]
    into free_queues, steps.after_queue
    from step;
    steps.heads := steps.heads || :SCHEMA._private_heads_of_queues(terms, array(
        select each.id from unnest(free_queues) as each(id)
        where each.id <> all (array(select head.queue_id from unnest(steps.heads) as head))), max_forbidden);
    steps.are_made := true;
    steps.are_not_enough := steps.are_not_enough or terms.forbidden_flags is not null and exists (
        select from (
            select each.id from unnest(free_queues) as each(id)
            except select each.queue_id from unnest(steps.heads) as each
        ) as other
        cross join lateral (
            select from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null and j.job_queue_id = other.id
            order by j.job_queue_id, j.task_id, j.priority, j.run_at, j.id offset max_forbidden - 1 limit 1
        ) as many);
end
$$;

-- Of the jobs and queues that were found up to a priority, the first, in order, up to where the look at jobs ended.
create or replace function :SCHEMA._private_choose(
    of_priority int, jobs :SCHEMA._private_candidate[], end_run_at timestamptz, end_id bigint,
    queues :SCHEMA._private_candidate[], heads :SCHEMA._private_candidate[], tried int[], most int
) returns :SCHEMA._private_candidate[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return array(
        select row(each.*):::SCHEMA._private_candidate
        from (
            select job.* from unnest(jobs) as job
            union all
            select queue.* from unnest(queues) as queue
            union all
            select other.* from unnest(heads) as other
            where other.priority <= of_priority and other.queue_id <> all (tried)
                and other.queue_id <> all (array(select queue.queue_id from unnest(queues) as queue))
        ) as each
        where end_run_at = 'infinity' or (each.run_at, each.id) <= (end_run_at, end_id)
        order by each.run_at, each.id
        limit most);
end
$$;

-- Moves a place to where a look ended, but not behind the last job that was chosen, and never back. It stays if null.
create or replace function :SCHEMA._private_move(
    inout run_at timestamptz, inout id bigint,
    end_run_at timestamptz, end_id bigint, last_run_at timestamptz, last_id bigint
)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if (end_run_at, end_id) < (last_run_at, last_id) is not true then
        end_run_at := last_run_at; end_id := last_id;
    end if;
    if (run_at, id) < (end_run_at, end_id) then
        run_at := end_run_at; id := end_id;
    end if;
end
$$;

-- The place behind a round, which has looked as far as "ends". Behind the last job that a full round chose, others were
-- left out. "queues_move_on": whether to go on behind the jobs in queues; else they are looked at again.
create or replace function :SCHEMA._private_place_behind(
    inout place :SCHEMA._private_place, ends :SCHEMA._private_place,
    candidates :SCHEMA._private_candidate[], chosen :SCHEMA._private_candidate[],
    is_full boolean, is_locked_out boolean, queues_move_on boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    final constant :SCHEMA._private_candidate := chosen[cardinality(chosen)];
    last :SCHEMA._private_candidate := row(null, null, place.priority, 'infinity', 0);
begin
    if is_full then
        select each.* into last
        from unnest(candidates) as each
        where final.priority = place.priority and (each.run_at, each.id) <= (final.run_at, final.id)
        order by each.run_at desc, each.id desc limit 1;
    end if;
    select * into place.run_at, place.id from :SCHEMA._private_move(
        place.run_at, place.id, ends.run_at, ends.id, last.run_at, last.id);
    if is_locked_out then
        -- None of the queues can be had now. The next claim does not try them again.
        select each.* into last
        from unnest(candidates) as each where each.priority = place.priority and each.queue_id is not null
        order by each.run_at desc, each.id desc limit 1;
    end if;
    if is_locked_out or queues_move_on then
        select * into place.queued_run_at, place.queued_id from :SCHEMA._private_move(
            place.queued_run_at, place.queued_id, ends.queued_run_at, ends.queued_id, last.run_at, last.id);
    end if;
end
$$;

-- Locks queues, and returns their first jobs. A job of a queue does not start before a job of a limited task that comes
-- first. Of these and the jobs without a queue among the candidates, the first "most" are returned, in order.
create or replace function :SCHEMA._private_lock_queues(
    terms :SCHEMA._private_claim_terms, of_priority int, wanted int[],
    candidates :SCHEMA._private_candidate[], most int,
    out chosen :SCHEMA._private_candidate[], out is_waiting boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    held int[];
begin
    held := array(
        select queue.id from only :SCHEMA._private_job_queues as queue
        where queue.id = any (wanted) and queue.is_available
        for no key update skip locked);
    is_waiting := cardinality(held) < cardinality(wanted);
    chosen := array(
        select row(each.*):::SCHEMA._private_candidate
        from (
            select line.tid, line.queue_id, line.priority, line.run_at, line.id
            -- Later priorities have their turn with all other jobs.
            from :SCHEMA._private_first_of_queues(terms, held, of_priority,
                least(terms.per_queue, ceil(2.0 * most / greatest(cardinality(held), 1))::int), null) as line
            left join :SCHEMA._private_first_in_queues(
                case when terms.limited_tasks is null then '{}' else held end,
                terms.limited_tasks, terms.forbidden_flags, terms.moment
            ) as limited on limited.queue_id = line.queue_id
            where (line.priority, line.run_at, line.id)
                < (limited.job_priority, limited.job_run_at, limited.job_id) is not false
            union all
            select job.* from unnest(candidates) as job where job.queue_id is null
        ) as each
        order by each.priority, each.run_at, each.id
        limit most);
end
$$;

-- Locks the jobs that were chosen, and returns those that may start: each is judged as it is now. A job of a queue that
-- another transaction has locked, or has just changed, stops its queue: none of the jobs behind it may start before it.
create or replace function :SCHEMA._private_lock_jobs(
    terms :SCHEMA._private_claim_terms, chosen :SCHEMA._private_candidate[],
    out tids tid[], out queue_ids int[], out bytes bigint, out is_waiting boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    plain tid[]; line tid[]; locked tid[]; line_bytes bigint;
begin
    select array_agg(each.tid) filter (where each.queue_id is null),
        array_agg(each.tid) filter (where each.queue_id is not null), array_agg(distinct each.queue_id)
    into plain, line, queue_ids from unnest(chosen) as each;
    select coalesce(array_agg(job.tid), '{}'), coalesce(sum(job.size), 0) into tids, bytes
    from (
        select j.ctid as tid, case when pg_column_compression(j.payload) is null
            then pg_column_size(j.payload) else 1000000000 end as size
        from only :SCHEMA._private_jobs as j
        -- In a case, so that the planner takes no index for these conditions.
        where j.ctid = any (plain) and case when j.is_available and j.run_at <= terms.moment and j.job_queue_id is null
            then terms.forbidden_flags is null or (j.flags ?| terms.forbidden_flags) is not true end
        for update skip locked
    ) as job;
    is_waiting := cardinality(tids) < cardinality(plain);
    queue_ids := coalesce(array_remove(queue_ids, null), '{}');
    if line is null then
        return;
    end if;
    select coalesce(array_agg(job.tid), '{}'), coalesce(sum(job.size), 0) into locked, line_bytes
    from (
        select j.ctid as tid, case when pg_column_compression(j.payload) is null
            then pg_column_size(j.payload) else 1000000000 end as size
        from only :SCHEMA._private_jobs as j
        where j.ctid = any (line)
            and case when j.is_available and j.run_at <= terms.moment then j.job_queue_id is not null end
        for update skip locked
    ) as job;
    if array(select unnest(locked) order by 1) <> array(select unnest(line) order by 1) then
        select array_agg(each.tid), array_agg(distinct each.queue_id) into line, queue_ids
        from (
            select job.tid, job.queue_id, bool_and(job.tid = any (locked)) over (
                partition by job.queue_id order by job.number) as is_kept
            from unnest(chosen) with ordinality as job(tid, queue_id, priority, run_at, id, number)
            where job.queue_id is not null
        ) as each
        where each.is_kept;
        queue_ids := coalesce(queue_ids, '{}');
        is_waiting := true;
    end if;
    tids := tids || line;
    bytes := bytes + line_bytes;
end
$$;

-- Of locked jobs, in order, those whose payloads fit together into so many bytes, and always the first. Only a
-- compressed payload is read to know its size. The others are left.
create or replace function :SCHEMA._private_within_bytes(
    most bigint, inout tids tid[], out queue_ids int[], out left_jobs :SCHEMA._private_candidate[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    with sized as (
        select j.ctid as tid, j.job_queue_id, j.priority, j.run_at, j.id, row_number() over due_order as number, sum(
            case when pg_column_compression(j.payload) is null then pg_column_size(j.payload)
            else octet_length(j.payload::text) end) over due_order as total
        from only :SCHEMA._private_jobs as j
        where j.ctid = any (tids)
        window due_order as (order by j.priority, j.run_at, j.id)
    ), judged as (
        select sized.*, sized.number = 1 or sized.total <= most as fits from sized
    )
    select array_agg(job.tid) filter (where job.fits),
        coalesce(array_agg(distinct job.job_queue_id) filter (where job.fits and job.job_queue_id is not null), '{}'),
        array_agg(row(job.tid, job.job_queue_id, job.priority, job.run_at, job.id):::SCHEMA._private_candidate
            order by job.number) filter (where not job.fits)
    into tids, queue_ids, left_jobs
    from judged as job;
end
$$;

-- Locks due jobs on one priority behind a place, at most so many. Returns them with the queues among them, and the
-- place behind which the next claim can go on: everything before it was seen. "tried" are the queues that this claim
-- has tried. If held queues hide others, steps are made, once in a claim. "is_cut": there may be more than was seen.
create or replace function :SCHEMA._private_lock_level(
    terms :SCHEMA._private_claim_terms, most int,
    inout steps :SCHEMA._private_steps, inout place :SCHEMA._private_place, inout tried int[],
    out tids tid[], out queue_ids int[], out bytes bigint, out is_cut boolean, out is_waiting boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    due record; plain record; queued record; turn record; locked record;
    candidates :SCHEMA._private_candidate[]; chosen :SCHEMA._private_candidate[]; wanted_queues int[];
    wanted int; tries int; is_full boolean; is_short boolean; is_hidden boolean := false; moves_on boolean;
begin
    tids := '{}'; queue_ids := '{}'; bytes := 0; is_cut := false; is_waiting := false;
    select * into due from :SCHEMA._private_due_tasks(terms, place);
    if due.queued = '{}' and (due.plain = '{}' or cardinality(due.plain) = 1 and terms.forbidden_flags is null)
        and not exists (select from unnest(steps.heads) as each where each.priority <= place.priority)
    then
        select * into locked from :SCHEMA._private_lock_first_jobs(terms, place, due.plain[1], most);
        tids := locked.tids; bytes := locked.bytes; is_waiting := locked.is_waiting;
        is_cut := cardinality(tids) = most;
        if is_cut then
            place.run_at := locked.last_run_at; place.id := locked.last_id;
        end if;
    else
        for round in 1 .. 50 loop
            wanted := most - cardinality(tids);
            tries := coalesce(tries, wanted);
            select * into plain from :SCHEMA._private_look_at_jobs(terms, place, due.plain, wanted);
            select * into queued from :SCHEMA._private_look_at_queues(terms, place, due.queued, tried, tries);
            is_short := isfinite(queued.end_run_at) and cardinality(queued.candidates) < tries;
            is_hidden := is_short and queued.is_blocked;
            if is_hidden and not steps.are_made then
                steps := :SCHEMA._private_step_over_queues(terms, steps);
            end if;
            candidates := :SCHEMA._private_choose(place.priority, plain.candidates, plain.end_run_at, plain.end_id,
                queued.candidates, steps.heads, tried, tries);
            chosen := candidates[:wanted];
            is_full := cardinality(candidates) = tries or cardinality(chosen) = wanted;
            wanted_queues := array(
                select each.queue_id from unnest(candidates) as each where each.queue_id is not null);
            if wanted_queues <> '{}' then
                tried := tried || wanted_queues;
                select * into turn from :SCHEMA._private_lock_queues(
                    terms, place.priority, wanted_queues, candidates, wanted);
                chosen := turn.chosen;
                is_full := is_full or cardinality(chosen) = wanted;
                is_waiting := is_waiting or turn.is_waiting;
            end if;
            select * into locked from :SCHEMA._private_lock_jobs(terms, chosen);
            tids := tids || locked.tids; queue_ids := queue_ids || locked.queue_ids; bytes := bytes + locked.bytes;
            is_waiting := is_waiting or locked.is_waiting;
            -- If others hold all the locks again and again, each round tries twice as many queues.
            tries := case when round >= 10 and locked.tids = '{}' then least(2 * tries, 10000) end;

            moves_on := is_short and (not is_hidden or steps.are_not_enough);
            is_cut := is_full or isfinite(plain.end_run_at) or moves_on;
            place := :SCHEMA._private_place_behind(
                place, row(place.priority, plain.end_run_at, plain.end_id, queued.end_run_at, queued.end_id),
                candidates, chosen, is_full, is_full and locked.tids = '{}', moves_on and not exists (
                    select from unnest(queued.candidates) as each where each.queue_id <> all (tried)));
            -- A round is cheap in which others had the locks of what was chosen.
            exit when not is_cut or cardinality(tids) = most or round >= 5 and not is_full;
        end loop;
    end if;
    if not is_cut then
        -- Everything was seen, but for what is committed late. Jobs of held queues are looked at again, if they are
        -- few.
        place := row(place.priority, terms.seen_until, 0, case when is_hidden or steps.are_not_enough
            then terms.seen_until else least(due.first_queued, terms.seen_until) end, 0);
    elsif place.run_at = 'infinity' then
        place.run_at := terms.seen_until;
    end if;
end
$$;

-- The places at which a claim is, brought back to before a job that it left, but not to before those where it began.
create or replace function :SCHEMA._private_places_before(
    first_left :SCHEMA._private_candidate, began :SCHEMA._private_place[], places :SCHEMA._private_place[]
) returns :SCHEMA._private_place[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return array(
        select case when place.priority < first_left.priority then place else row(
            place.priority, job.run_at, job.id, queued.run_at, queued.id):::SCHEMA._private_place end
        from unnest(places) as place
        left join unnest(began) as known on known.priority = place.priority
        cross join lateral :SCHEMA._private_move(
            coalesce(known.run_at, '-infinity'), coalesce(known.id, 0), place.run_at, place.id,
            first_left.run_at, first_left.id - 1) as job
        cross join lateral :SCHEMA._private_move(
            coalesce(known.queued_run_at, '-infinity'), coalesce(known.queued_id, 0),
            place.queued_run_at, place.queued_id, first_left.run_at, first_left.id - 1) as queued
        where place.priority <= first_left.priority);
end
$$;

-- Where the next claim goes on after one that stopped at a priority, or at none, and has come to these places.
create or replace function :SCHEMA._private_continuation_behind(
    before :SCHEMA._private_continuation, stopped_at int, places :SCHEMA._private_place[], seen_until timestamptz,
    steps :SCHEMA._private_steps, is_full boolean, inout is_cut boolean, out after :SCHEMA._private_continuation
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    after := before;
    after.sees_queues := steps.are_not_enough;
    after.places := array(
        select place from unnest(before.places) as place where place.priority > stopped_at) || places;
    if coalesce(stopped_at, 32768) >= before.seen_priority then
        after.seen_priority := coalesce(stopped_at, 32768); after.seen_until := seen_until;
    end if;
    -- A claim that was cut has not looked at all queues that the steps found. A full one has, but for what comes behind
    -- the jobs that it has taken.
    if before.queue is not null and steps.are_made and (is_full or not is_cut) then
        after.queue := case when is_full then coalesce(steps.after_queue, 0) else steps.after_queue end;
        is_cut := after.queue is not null;
    end if;
    is_cut := is_cut and not is_full;
end
$$;

-- Claims jobs that are locked, and their queues.
create or replace function :SCHEMA._private_take_jobs(holder text, moment timestamptz, tids tid[], queue_ids int[])
returns table (
    job_id bigint, job_task_id int, job_attempts smallint, job_payload text, queue_id int,
    job_priority smallint, job_run_at float8, job_max_attempts smallint, job_key text, job_revision int,
    job_flags text, job_error text, job_created_at float8, job_updated_at float8, name_of_queue text
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    -- The names of the queues by their ids: a look-up for each job would take a tenth of the claim.
    queue_names jsonb;
begin
    if queue_ids <> '{}' then
        with queue as (
            update only :SCHEMA._private_job_queues as queue set locked_by = holder, locked_at = moment
            where queue.id = any (queue_ids)
            returning queue.id, queue.queue_name
        )
        select jsonb_object_agg(queue.id, queue.queue_name) into queue_names from queue;
    end if;
    return query
    update only :SCHEMA._private_jobs as job
    set attempts = job.attempts + 1, locked_by = holder, locked_at = moment, key = job.key
    where job.ctid = any (tids)
    returning job.id, job.task_id, job.attempts, job.payload::text, job.job_queue_id, job.priority,
        date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision, job.flags::text,
        job.last_error, date_part('epoch', job.created_at), date_part('epoch', job.updated_at),
        queue_names->>job.job_queue_id::text;
end
$$;

-- When the next job of a known task falls due on these priorities. Of a crowd of unknown tasks only the first jobs are
-- looked at; then it is the time of the last of them, and the worker looks again.
create or replace function :SCHEMA._private_next_due(
    known_tasks int[], priorities int[], moment timestamptz, out run_at timestamptz
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    select min(coalesce(first.known_run_at, crowd.run_at)) into run_at
    from unnest(priorities) as level(priority)
    cross join lateral (
        select case when j.task_id = any (known_tasks) then j.run_at end as known_run_at
        from only :SCHEMA._private_jobs as j
        where j.is_available and j.priority = level.priority and j.run_at > moment
        order by j.priority, j.run_at limit 1
    ) as first
    cross join lateral (
        select case when bool_or(early.is_known) then min(early.run_at) filter (where early.is_known)
            when count(*) = 100 then max(early.run_at) end as run_at
        from (
            select j.run_at, j.task_id = any (known_tasks) as is_known from only :SCHEMA._private_jobs as j
            where first.known_run_at is null and j.is_available and j.priority = level.priority and j.run_at > moment
            order by j.priority, j.run_at limit 100
        ) as early
    ) as crowd;
end
$$;

-- The claim. Job rows come back in no particular order. The last row has no id and a summary:
--
--   has_more             whether there may be more to claim at once
--   is_cut               whether the claim has ended before it saw everything, though it had room for more jobs
--   is_waiting           whether there are jobs or queues that other transactions have locked
--   seconds_until_next   when the next job falls due, if everything was seen; in seconds, as the worker's clock may
--                        differ from the server's
--   continuation         where the next claim can go on
--   freed_queues         those of the freed queues that have a due job, of which none was claimed
--   seconds              how long the server took
--
-- Parameters:
--
--   known_tasks          the ids of the worker's tasks
--   max_jobs             at most so many jobs, of one queue at most "per_queue"
--   max_bytes            their payloads have so many bytes together, but for the first job
--   limited_tasks        the ids of the limited tasks of the worker, null if it has none. A job of a queue does not
--                        start before a limited job of the queue that comes first
--   behind               the continuation of the claim behind which to go on
--   freed_queues         queues that were freed: their jobs may stand before that
create or replace function :SCHEMA._private_claim_jobs(
    holder text, known_tasks int[], max_jobs int, per_queue int, max_bytes bigint, forbidden_flags text[],
    limited_tasks int[], claimed_at timestamptz, behind json, freed_queues int[]
) returns table (
    job_id bigint, job_task_id int, job_attempts smallint, job_payload text, queue_id int,
    job_priority smallint, job_run_at float8, job_max_attempts smallint, job_key text, job_revision int,
    job_flags text, job_error text, job_created_at float8, job_updated_at float8, name_of_queue text,
    summary json
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    terms :SCHEMA._private_claim_terms;
    before :SCHEMA._private_continuation := json_populate_record(null:::SCHEMA._private_continuation, behind);
    level record; at_place :SCHEMA._private_place; locked record; fitting record; ending record; stopped_at int;
    steps :SCHEMA._private_steps; freed int[] := '{}'; passed int[] := '{}'; places :SCHEMA._private_place[] := '{}';
    tids tid[] := '{}'; queue_ids int[] := '{}'; tried int[] := '{}'; bytes bigint := 0;
    is_cut boolean := false; is_waiting boolean := false; is_full boolean; next_run_at timestamptz;
begin
    terms.moment := coalesce(claimed_at, now());
    terms.seen_until := least(terms.moment, now()) - interval '0.3 seconds';
    terms.known_tasks := known_tasks; terms.limited_tasks := limited_tasks; terms.forbidden_flags := forbidden_flags;
    terms.per_queue := per_queue;
    terms.max_steps := least(1000, 200 + max_jobs) / case when forbidden_flags is null then 1 else 2 end;
    terms.running := case when max_jobs >= 100 then :SCHEMA._private_running_transactions() else '{}' end;
    steps := row('{}', before.queue, before.queue is null, before.sees_queues);
    if freed_queues is not null then
        steps.heads := :SCHEMA._private_heads_of_queues(terms, array(
            select queue.id from only :SCHEMA._private_job_queues as queue
            where queue.id = any (freed_queues) and queue.is_available
        ), greatest(20, 5000 / cardinality(freed_queues)));
        freed := array(select head.queue_id from unnest(steps.heads) as head);
    end if;
    if before.queue > 0 then
        steps := :SCHEMA._private_step_over_queues(terms, steps);
        if steps.are_not_enough and not before.sees_queues then
            -- The claims of this pass had no reason to look behind the first jobs in queues. It begins again.
            before.places := '{}'; before.seen_priority := -32768;
        end if;
    end if;
    loop
        select * into level from :SCHEMA._private_next_level(before, coalesce(at_place.priority, -32769));
        at_place := level.place;
        exit when at_place.priority is null;
        passed := passed || at_place.priority;
        continue when level.first_run_at > terms.moment;
        select * into locked from :SCHEMA._private_lock_level(
            terms, max_jobs - cardinality(tids), steps, at_place, tried);
        steps := locked.steps; tried := locked.tried; places := places || locked.place;
        tids := tids || locked.tids; queue_ids := queue_ids || locked.queue_ids; bytes := bytes + locked.bytes;
        is_waiting := is_waiting or locked.is_waiting; is_cut := locked.is_cut;
        exit when is_cut or bytes > max_bytes or cardinality(tids) >= max_jobs;
    end loop;
    is_full := cardinality(tids) >= max_jobs or bytes > max_bytes;
    stopped_at := at_place.priority;
    if bytes > max_bytes then
        select * into fitting from :SCHEMA._private_within_bytes(max_bytes, tids);
        tids := fitting.tids; queue_ids := fitting.queue_ids;
        if fitting.left_jobs is not null then
            stopped_at := (fitting.left_jobs[1]).priority;
            places := :SCHEMA._private_places_before(fitting.left_jobs[1], before.places, places);
            steps.are_made := steps.are_made and not exists (
                select from unnest(fitting.left_jobs) as job where job.queue_id is not null);
        end if;
    end if;
    select * into ending from :SCHEMA._private_continuation_behind(
        before, stopped_at, places, terms.seen_until, steps, is_full, is_cut);

    if tids <> '{}' then
        return query select taken.*, null::json
        from :SCHEMA._private_take_jobs(holder, terms.moment, tids, queue_ids) as taken;
    end if;
    if not (is_full or ending.is_cut) then
        next_run_at := :SCHEMA._private_next_due(known_tasks, passed, terms.moment);
    end if;
    job_id := null;
    summary := json_build_object(
        'has_more', is_full or ending.is_cut,
        'is_cut', ending.is_cut,
        'is_waiting', is_waiting,
        'seconds_until_next', case when isfinite(next_run_at) then greatest(
            date_part('epoch', next_run_at - coalesce(claimed_at, clock_timestamp())), 0) end,
        'continuation', ending.after,
        'freed_queues', array(select each.id from unnest(freed) as each(id) where each.id <> all (queue_ids)),
        'seconds', date_part('epoch', clock_timestamp() - statement_timestamp()));
    return next;
end
$$;

-- Finds those of the queues that are free and have a job to run. To be called after the
-- transaction that released them: a job that was added before its commit notified
-- workers that could not take it. In each queue it goes from one priority of one task to
-- the next, until a job is due there.
create or replace function :SCHEMA._private_waiting_queues(queue_ids int[], seen_at timestamptz default null)
returns setof int
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = off set enable_incremental_sort = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(seen_at, now());
begin
    return query
    select queue.id
    from unnest(queue_ids) as released(id)
    join only :SCHEMA._private_job_queues as queue on queue.id = released.id
    where queue.is_available and exists (
        with recursive stair (task_id, priority, run_at) as (
            select -2147483648, 0::smallint, timestamptz 'infinity'
            union all
            select ahead.task_id, ahead.priority, ahead.run_at
            from stair
            cross join lateral (
                select job.task_id, job.priority, job.run_at
                from only :SCHEMA._private_jobs as job
                where job.is_available and job.job_queue_id is not null
                    and (job.job_queue_id, job.task_id, job.priority) > (queue.id, stair.task_id, stair.priority)
                    and job.job_queue_id <= queue.id
                order by job.job_queue_id, job.task_id, job.priority, job.run_at
                limit 1
            ) as ahead
            where stair.run_at > this_moment
        )
        select from stair where stair.run_at <= this_moment);
end
$$;
