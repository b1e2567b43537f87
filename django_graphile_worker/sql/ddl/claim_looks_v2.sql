/* gw:install */
-- How a claim looks for what it may take: the functions that claim_jobs_v2.sql calls, with
-- its planner settings in force.

-- The queues with due jobs, by periods of 1024 seconds: the walk steps from queue to queue
-- within a period. Many jobs of a held queue are few steps, and queues whose jobs are all
-- for later periods are not met at all.
create index jobs_queue_periods_index on :SCHEMA._private_jobs (
    task_id, priority,
    pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.timezone('UTC', run_at)) / 1024::pg_catalog.float8),
    job_queue_id)
    where is_available and job_queue_id is not null;

-- Looks at due jobs of named queues on one priority, in order, at most so many. Returns the
-- free queues among them with the first job of each that may run, the place where the look
-- ended, and whether it ended before the last due job.
create function :SCHEMA._private_look_at_queued_v2(
    of_tasks int[], of_priority int, due_at timestamptz, forbidden_flags text[],
    after_run_at timestamptz, after_id bigint, examined int,
    out queue_ids int[], out run_ats timestamptz[], out ids bigint[],
    out end_run_at timestamptz, out end_id bigint, out is_cut boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    per_task constant int := ceil(2.0 * examined / greatest(cardinality(of_tasks), 2)) + 4;
begin
    with entry as materialized (
        select task.id as task_id, job.run_at, job.id, job.job_queue_id, job.flags
        from unnest(of_tasks) as task(id)
        cross join lateral (
            select j.run_at, j.id, j.job_queue_id, j.flags
            from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null
                and j.task_id = task.id and j.priority = of_priority
                and (j.run_at, j.id) > (after_run_at, after_id) and j.run_at <= due_at
            order by j.run_at, j.id
            limit per_task
        ) as job
    ), bound as (
        -- Behind the last job seen of a task that has more, the order is not known.
        select last.run_at, last.id
        from (
            select (array_agg(entry.run_at))[per_task] as run_at, (array_agg(entry.id))[per_task] as id
            from entry group by entry.task_id
        ) as last
        where last.id is not null
        order by last.run_at, last.id
        limit 1
    ), head as (
        select entry.job_queue_id,
            (array_agg(entry.run_at order by entry.run_at, entry.id))[1] as run_at,
            (array_agg(entry.id order by entry.run_at, entry.id))[1] as id
        from entry
        where (forbidden_flags is null or (entry.flags ?| forbidden_flags) is not true)
            and not exists (select from bound where (entry.run_at, entry.id) > (bound.run_at, bound.id))
        group by entry.job_queue_id
    ), free as (
        select head.job_queue_id, head.run_at, head.id
        from head
        join only :SCHEMA._private_job_queues as queue on queue.id = head.job_queue_id
        where queue.is_available
    )
    select
        coalesce((select array_agg(free.job_queue_id order by free.run_at, free.id) from free), '{}'),
        (select array_agg(free.run_at order by free.run_at, free.id) from free),
        (select array_agg(free.id order by free.run_at, free.id) from free),
        (select bound.run_at from bound), (select bound.id from bound), exists (select from bound)
    into queue_ids, run_ats, ids, end_run_at, end_id, is_cut;
end
$$;

-- Looks at due jobs with flags and without a queue on one priority, in order, at most so
-- many. Returns those without a forbidden flag, the place where the look ended, and whether
-- it ended before the last due job.
create function :SCHEMA._private_look_at_flagged_v2(
    of_tasks int[], of_priority int, due_at timestamptz, forbidden_flags text[],
    after_run_at timestamptz, after_id bigint, examined int,
    out tids tid[], out run_ats timestamptz[], out ids bigint[],
    out end_run_at timestamptz, out end_id bigint, out is_cut boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    per_task constant int := ceil(2.0 * examined / greatest(cardinality(of_tasks), 2)) + 4;
begin
    with entry as materialized (
        select task.id as task_id, job.tid, job.run_at, job.id, job.flags
        from unnest(of_tasks) as task(id)
        cross join lateral (
            select j.ctid as tid, j.run_at, j.id, j.flags
            from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is null and j.flags is not null
                and j.task_id = task.id and j.priority = of_priority
                and (j.run_at, j.id) > (after_run_at, after_id) and j.run_at <= due_at
            order by j.run_at, j.id
            limit per_task
        ) as job
    ), bound as (
        select last.run_at, last.id
        from (
            select (array_agg(entry.run_at))[per_task] as run_at, (array_agg(entry.id))[per_task] as id
            from entry group by entry.task_id
        ) as last
        where last.id is not null
        order by last.run_at, last.id
        limit 1
    ), allowed as (
        select entry.tid, entry.run_at, entry.id
        from entry
        where (entry.flags ?| forbidden_flags) is not true
            and not exists (select from bound where (entry.run_at, entry.id) > (bound.run_at, bound.id))
    )
    select
        coalesce((select array_agg(allowed.tid) from allowed), '{}'),
        (select array_agg(allowed.run_at) from allowed),
        (select array_agg(allowed.id) from allowed),
        (select bound.run_at from bound), (select bound.id from bound), exists (select from bound)
    into tids, run_ats, ids, end_run_at, end_id, is_cut;
end
$$;

-- Walks from queue to queue on one priority, task by task, at most so many steps. Returns the
-- free queues with a job that may run, the place where the walk ended, and whether it ended
-- before the last queue. Of the jobs of a free queue only the first are looked at for one
-- without a forbidden flag.
create function :SCHEMA._private_walk_queues_v2(
    of_tasks int[], of_priority int, due_at timestamptz, forbidden_flags text[],
    after_task int, after_period float8, after_queue int, steps int,
    out queue_ids int[], out run_ats timestamptz[], out ids bigint[],
    out end_task int, out end_period float8, out end_queue int, out is_cut boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    this_period constant float8 := floor(date_part('epoch', timezone('UTC', due_at)) / 1024::float8);
begin
    with recursive walk (place, period, queue_id, step) as (
        select coalesce(array_position(of_tasks, after_task), 1), coalesce(after_period, '-infinity'),
            coalesce(after_queue, 0), 0
        union all
        -- From the last queue of a task the walk goes on to the next task.
        select
            case when ahead.queue_id is null then walk.place + 1 else walk.place end,
            coalesce(ahead.period, '-infinity'),
            coalesce(ahead.queue_id, 0),
            walk.step + 1
        from walk
        left join lateral (
            select
                floor(date_part('epoch', timezone('UTC', j.run_at)) / 1024::float8) as period,
                j.job_queue_id as queue_id
            from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null
                and j.task_id = of_tasks[walk.place] and j.priority = of_priority
                and (floor(date_part('epoch', timezone('UTC', j.run_at)) / 1024::float8), j.job_queue_id)
                    > (walk.period, walk.queue_id)
                and floor(date_part('epoch', timezone('UTC', j.run_at)) / 1024::float8) <= this_period
            order by floor(date_part('epoch', timezone('UTC', j.run_at)) / 1024::float8), j.job_queue_id
            limit 1
        ) as ahead on true
        where walk.step < steps and walk.place <= cardinality(of_tasks)
    ), found as (
        select walk.queue_id, head.run_at, head.id
        from walk
        join only :SCHEMA._private_job_queues as queue on queue.id = walk.queue_id
        cross join lateral (
            select entry.run_at, entry.id
            from (
                select j.run_at, j.id, j.flags
                from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null
                    and j.task_id = of_tasks[walk.place] and j.job_queue_id = walk.queue_id
                    and j.priority = of_priority and j.run_at <= due_at
                order by j.run_at, j.id
                limit case when forbidden_flags is null then 1 else 20 end
            ) as entry
            where forbidden_flags is null or (entry.flags ?| forbidden_flags) is not true
            order by entry.run_at, entry.id
            limit 1
        ) as head
        where walk.step > 0 and walk.queue_id > 0 and queue.is_available
    ), first as (
        select distinct on (found.queue_id) found.queue_id, found.run_at, found.id
        from found order by found.queue_id, found.run_at, found.id
    ), last as (
        select walk.place, walk.period, walk.queue_id from walk order by walk.step desc limit 1
    )
    select
        coalesce((select array_agg(first.queue_id order by first.run_at, first.id) from first), '{}'),
        (select array_agg(first.run_at order by first.run_at, first.id) from first),
        (select array_agg(first.id order by first.run_at, first.id) from first),
        of_tasks[last.place], last.period, last.queue_id, last.place <= cardinality(of_tasks)
    into queue_ids, run_ats, ids, end_task, end_period, end_queue, is_cut
    from last;
end
$$;

-- Of locked jobs, in order, those whose payloads fit together into so many bytes; a number
-- of jobs at the beginning is not counted. Only a compressed payload is read to know its size.
create function :SCHEMA._private_within_bytes_v2(
    tids tid[], uncounted int, most bigint, out kept tid[], out bytes bigint
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    select coalesce(array_agg(sized.tid), '{}'), coalesce(max(sized.total), 0)
    into kept, bytes
    from (
        select job.tid, job.place, sum(case when job.place > uncounted then job.size else 0 end)
            over (order by job.place) as total
        from (
            select j.ctid as tid, row_number() over (order by j.priority, j.run_at, j.id) as place,
                case when pg_column_compression(j.payload) is null then pg_column_size(j.payload)
                    else octet_length(j.payload::text) end as size
            from only :SCHEMA._private_jobs as j
            where j.ctid = any (tids)
        ) as job
    ) as sized
    where sized.place <= uncounted or sized.total <= most;
end
$$;

-- Of the tasks that a worker knows, those that have jobs of a kind at all. To be asked when
-- there are many: as many probes as there are tasks with such jobs.
create function :SCHEMA._private_present_tasks_v2(
    known_tasks int[], known_ranges int4multirange, kind text
) returns int[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    present int[];
begin
    with recursive step (task_id, number) as (
        select -2147483648, 0
        union all
        select case kind
            when 'unqueued' then (
                select j.task_id from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is null and j.task_id > step.task_id
                order by j.task_id, j.priority, j.run_at, j.id limit 1)
            when 'flagged' then (
                select j.task_id from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is not null and j.task_id > step.task_id
                order by j.task_id, j.priority, j.run_at, j.id limit 1)
            else (
                select j.task_id from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null and j.task_id > step.task_id
                order by j.task_id, j.priority, j.run_at, j.id limit 1)
            end, step.number + 1
        from step where step.task_id is not null and step.number <= cardinality(known_tasks)
    )
    select array_agg(step.task_id) into present from step where step.number > 0;
    if array_position(present, null) is null then
        return known_tasks;
    end if;
    return array(select step.id from unnest(present) as step(id) where known_ranges @> step.id);
end
$$;
