-- How a worker takes jobs: one call, cost proportional to what it returns.
--
-- The claim goes through the priorities from the lowest number up. On each level
-- every task has its own range of an index, bounded by the due time, so neither
-- future jobs nor tasks of other workers are ever read. A queue is taken as a
-- whole and a stretch of its jobs with it, in order.
--
-- Planner settings are pinned: each statement below has one right plan, and stale
-- statistics right after a bulk load must not talk the planner out of it. For the
-- same reason ranges are written as comparisons of rows, task first: only one index
-- has that order, while with equalities others would do as well, and those hold the
-- jobs of every task.

-- The queues whose turn it is on one priority level, first things first. Queues
-- held by somebody can hide the others behind a long backlog; then the walk goes
-- from queue to queue instead of from job to job, a bounded way from a random start.
create function :SCHEMA._private_pick_queues(
    of_tasks int[], of_priority int, due_at timestamptz, forbidden_flags text[], wanted int
) returns table (queue_id int, head_run_at timestamptz, head_id bigint)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    scanned constant int := greatest(100, wanted * 4);
    steps constant int := 1000;
    seen int;
    start_after int;
    found_queues int[] := '{}';
    due record;
begin
    seen := 0;
    for due in
        select first.job_queue_id, first.run_at, first.id, first.entries, queue.is_available as is_free
        from (
            select entry.job_queue_id, min(entry.run_at) as run_at,
                (array_agg(entry.id order by entry.run_at, entry.id))[1] as id, count(*) as entries
            from (
                select job.job_queue_id, job.run_at, job.id
                from unnest(of_tasks) as task(id)
                cross join lateral (
                    select j.job_queue_id, j.run_at, j.id
                    from :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is not null
                        and (j.task_id, j.priority) >= (task.id, of_priority)
                        and (j.task_id, j.priority, j.run_at) <= (task.id, of_priority, due_at)
                        and (forbidden_flags is null or (j.flags ?| forbidden_flags) is not true)
                    order by j.task_id, j.priority, j.run_at, j.id
                    limit scanned
                ) as job
                order by job.run_at, job.id
                limit scanned
            ) as entry
            group by entry.job_queue_id
        ) as first
        join :SCHEMA._private_job_queues as queue on queue.id = first.job_queue_id
        order by first.run_at, first.id
    loop
        seen := seen + due.entries;
        if due.is_free then
            queue_id := due.job_queue_id;
            head_run_at := due.run_at;
            head_id := due.id;
            found_queues := found_queues || queue_id;
            return next;
            exit when cardinality(found_queues) >= wanted;
        end if;
    end loop;
    if seen < scanned or cardinality(found_queues) >= wanted then
        return;
    end if;

    start_after := floor(random() * coalesce((select max(id) from :SCHEMA._private_job_queues), 0));
    return query
    with recursive walk (job_queue_id, step, wrapped) as (
        select start_after, 0, false
        union all
        select
            case when ahead.job_queue_id is null then 0 else ahead.job_queue_id end,
            walk.step + 1,
            walk.wrapped or ahead.job_queue_id is null
        from walk
        left join lateral (
            select min(next.job_queue_id) as job_queue_id
            from unnest(of_tasks) as task(id)
            cross join lateral (
                select j.job_queue_id
                from :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null
                    and (j.task_id, j.job_queue_id) > (task.id, walk.job_queue_id) and j.task_id <= task.id
                order by j.task_id, j.job_queue_id
                limit 1
            ) as next
        ) as ahead on true
        where walk.step < steps
            and not (walk.wrapped and (ahead.job_queue_id is null or ahead.job_queue_id > start_after))
    )
    select queue.id, head.run_at, head.id
    from walk
    join :SCHEMA._private_job_queues as queue on queue.id = walk.job_queue_id and queue.is_available
    cross join lateral (
        select job.run_at, job.id
        from unnest(of_tasks) as task(id)
        cross join lateral (
            select j.run_at, j.id
            from :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null
                and (j.task_id, j.job_queue_id, j.priority) >= (task.id, queue.id, of_priority)
                and (j.task_id, j.job_queue_id, j.priority, j.run_at) <= (task.id, queue.id, of_priority, due_at)
                and (forbidden_flags is null or (j.flags ?| forbidden_flags) is not true)
            order by j.task_id, j.job_queue_id, j.priority, j.run_at, j.id
            limit 1
        ) as job
        order by job.run_at, job.id
        limit 1
    ) as head
    where not queue.id = any (found_queues)
    limit wanted - cardinality(found_queues);
end
$$;

-- The one claim. Rows come back in no particular order; the last one, with a null
-- id, tells in how many seconds the next job falls due if fewer were found than
-- asked for: seconds, because the worker's clock may be another than this one.
--
-- A claim may resume where the last one ended: what lies before is mostly dead
-- entries that no vacuum has come by to remove, and walking over them again and
-- again would make a long backlog slower and slower.
create function :SCHEMA._private_claim_jobs(
    holder text, known_tasks int[], max_jobs int, max_queues int, stretch int,
    forbidden_flags text[] default null, claimed_at timestamptz default null,
    resume_priority int default null, resume_run_at float8 default null, resume_id bigint default null
) returns table (
    job_id bigint, job_task_id int, job_attempts smallint, job_payload text, queue_id int,
    job_priority smallint, job_run_at float8, job_max_attempts smallint, job_key text, job_revision int,
    job_flags text, job_error text, job_created_at float8, job_updated_at float8, name_of_queue text
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(claimed_at, now());
    wants_flagged boolean := true;
    wants_queued boolean := max_queues > 0;
    remaining int := max_jobs;
    queues_left int := max_queues;
    level int := -32769;
    unqueued_level int; flagged_level int; queued_level int;
    unqueued_levels int[]; flagged_levels int[]; queued_levels int[];
    unqueued_tasks int[]; flagged_tasks int[]; queued_tasks int[];
    picked_queues int[]; picked_run_ats timestamptz[]; picked_ids bigint[];
    allowed_flags jsonb[];
    chosen_jobs tid[]; chosen_queues int[]; held_queues int[];
    candidates int;
    next_run_at timestamptz;
    passed_run_at timestamptz; passed_id bigint;
    taken int;
begin
    while remaining > 0 loop
        -- The next priority of each task, in each of the three kinds of jobs.
        select array_agg(each.unqueued), array_agg(each.flagged), array_agg(each.queued),
            min(each.unqueued), min(each.flagged), min(each.queued)
        into unqueued_levels, flagged_levels, queued_levels, unqueued_level, flagged_level, queued_level
        from (
            select (
                select j.priority from :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is null
                    and (j.task_id, j.priority) > (task.id, level) and j.task_id <= task.id
                order by j.task_id, j.priority limit 1
            ) as unqueued, case when wants_flagged then (
                select j.priority from :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is not null
                    and (j.task_id, j.priority) > (task.id, level) and j.task_id <= task.id
                order by j.task_id, j.priority limit 1
            ) end as flagged, case when wants_queued then (
                select j.priority from :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null
                    and (j.task_id, j.priority) > (task.id, level) and j.task_id <= task.id
                order by j.task_id, j.priority limit 1
            ) end as queued
            from unnest(known_tasks) as task(id)
        ) as each;
        wants_flagged := flagged_level is not null;
        wants_queued := queued_level is not null;
        level := least(unqueued_level, flagged_level, queued_level);
        exit when level is null;
        unqueued_tasks := '{}';
        flagged_tasks := '{}';
        queued_tasks := '{}';
        for place in 1..cardinality(known_tasks) loop
            if unqueued_levels[place] = level then unqueued_tasks := unqueued_tasks || known_tasks[place]; end if;
            if flagged_levels[place] = level then flagged_tasks := flagged_tasks || known_tasks[place]; end if;
            if queued_levels[place] = level then queued_tasks := queued_tasks || known_tasks[place]; end if;
        end loop;

        passed_run_at := '-infinity';
        passed_id := 0;
        if level = resume_priority then
            passed_run_at := to_timestamp(resume_run_at);
            passed_id := resume_id;
        end if;

        -- Queues that are all held and flags that are all forbidden are found out
        -- first: what can be taken beside them shall not pay for them.
        picked_queues := '{}';
        picked_run_ats := '{}';
        picked_ids := '{}';
        if queued_tasks <> '{}' and queues_left > 0 then
            select coalesce(array_agg(pick.queue_id), '{}'), array_agg(pick.head_run_at), array_agg(pick.head_id)
            into picked_queues, picked_run_ats, picked_ids
            from :SCHEMA._private_pick_queues(queued_tasks, level, this_moment, forbidden_flags,
                least(queues_left, remaining) * 2) as pick;
        end if;
        if flagged_tasks <> '{}' and forbidden_flags is not null then
            select coalesce(array_agg(task.id), '{}'), array_agg(allowed.flags)
            into flagged_tasks, allowed_flags
            from unnest(flagged_tasks) as task(id)
            cross join lateral (
                with recursive flag_set (flags) as (
                    (select j.flags from :SCHEMA._private_jobs as j
                     where j.is_available and j.job_queue_id is null and j.flags is not null
                        and j.task_id >= task.id and j.task_id <= task.id
                     order by j.task_id, j.flags limit 1)
                    union all
                    select (select j.flags from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is null and j.flags is not null
                                and (j.task_id, j.flags) > (task.id, flag_set.flags)
                                and j.task_id <= task.id
                            order by j.task_id, j.flags limit 1)
                    from flag_set where flag_set.flags is not null
                )
                select flag_set.flags from flag_set
                where flag_set.flags is not null and not flag_set.flags ?| forbidden_flags
            ) as allowed;
        end if;

        -- One task, no flags, no queues: what nearly every claim is. One pass, and
        -- the index scan itself steps over what others are taking.
        if cardinality(unqueued_tasks) = 1 and flagged_tasks = '{}' and picked_queues = '{}' then
            return query
            update :SCHEMA._private_jobs as job
            set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment
            where job.ctid = any (array(
                select j.ctid from :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is null
                    and (j.task_id, j.priority, j.run_at, j.id)
                        > (unqueued_tasks[1], level, passed_run_at, passed_id)
                    and (j.task_id, j.priority, j.run_at) <= (unqueued_tasks[1], level, this_moment)
                order by j.task_id, j.priority, j.run_at, j.id
                limit remaining
                for update skip locked
            ))
            returning job.id, job.task_id, job.attempts, job.payload::text, null::int, job.priority,
                date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision, null::text,
                job.last_error, date_part('epoch', job.created_at),
                date_part('epoch', job.updated_at), null::text;
            get diagnostics taken = row_count;
            remaining := remaining - taken;
        else
            loop
                -- Look first, lock after: with several sources the order among them
                -- is only known once they are merged.
                select
                    array_agg(merged.tid) filter (where merged.tid is not null),
                    array_agg(merged.queue_id order by merged.run_at, merged.id) filter (where merged.queue_id is not null),
                    count(*),
                    max(merged.run_at),
                    (array_agg(merged.id order by merged.run_at desc, merged.id desc))[1]
                into chosen_jobs, chosen_queues, candidates, passed_run_at, passed_id
                from (
                    select source.tid, source.queue_id, source.run_at, source.id
                    from (
                        select job.tid, null::int as queue_id, job.run_at, job.id
                        from unnest(unqueued_tasks) as task(id)
                        cross join lateral (
                            select j.ctid as tid, j.run_at, j.id from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is null and j.flags is null
                                and (j.task_id, j.priority, j.run_at, j.id)
                                    > (task.id, level, passed_run_at, passed_id)
                                and (j.task_id, j.priority, j.run_at) <= (task.id, level, this_moment)
                            order by j.task_id, j.priority, j.run_at, j.id limit remaining
                        ) as job
                        union all
                        select job.tid, null, job.run_at, job.id
                        from unnest(flagged_tasks) as task(id)
                        cross join lateral (
                            select j.ctid as tid, j.run_at, j.id from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is null and j.flags is not null
                                and (j.task_id, j.priority, j.run_at, j.id)
                                    > (task.id, level, passed_run_at, passed_id)
                                and (j.task_id, j.priority, j.run_at) <= (task.id, level, this_moment)
                            order by j.task_id, j.priority, j.run_at, j.id limit remaining
                        ) as job
                        where forbidden_flags is null
                        union all
                        select job.tid, null, job.run_at, job.id
                        from unnest(flagged_tasks, allowed_flags) as allowed(task_id, flags)
                        cross join lateral (
                            select j.ctid as tid, j.run_at, j.id from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is null and j.flags is not null
                                and (j.task_id, j.flags, j.priority, j.run_at, j.id)
                                    > (allowed.task_id, allowed.flags, level, passed_run_at, passed_id)
                                and (j.task_id, j.flags, j.priority, j.run_at)
                                    <= (allowed.task_id, allowed.flags, level, this_moment)
                            order by j.task_id, j.flags, j.priority, j.run_at, j.id limit remaining
                        ) as job
                        where forbidden_flags is not null
                        union all
                        select null, pick.queue_id, pick.head_run_at, pick.head_id
                        from unnest(picked_queues, picked_run_ats, picked_ids) as pick(queue_id, head_run_at, head_id)
                    ) as source
                    order by source.run_at, source.id
                    limit remaining
                ) as merged;
                exit when candidates = 0;

                if chosen_jobs is not null then
                    return query
                    update :SCHEMA._private_jobs as job
                    set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment
                    where job.ctid = any (array(
                        select j.ctid from :SCHEMA._private_jobs as j
                        where j.ctid = any (chosen_jobs) and j.is_available
                        for update skip locked
                    ))
                    returning job.id, job.task_id, job.attempts, job.payload::text, null::int, job.priority,
                        date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision,
                        job.flags::text, job.last_error, date_part('epoch', job.created_at),
                        date_part('epoch', job.updated_at), null::text;
                    get diagnostics taken = row_count;
                    remaining := remaining - taken;
                end if;

                if chosen_queues is not null then
                    with taken_queue as (
                        update :SCHEMA._private_job_queues as queue
                        set locked_by = holder, locked_at = this_moment
                        where queue.id = any (array(
                            select q.id from :SCHEMA._private_job_queues as q
                            where q.id = any (chosen_queues) and q.is_available
                            order by array_position(chosen_queues, q.id)
                            limit queues_left
                            for no key update skip locked
                        ))
                        returning queue.id
                    )
                    select array_agg(id) into held_queues from taken_queue;

                    return query
                    with recursive stair (queue_id, task_id, priority) as (
                        select held.id, task.id, (
                            select j.priority from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is not null
                                and (j.task_id, j.job_queue_id) >= (task.id, held.id)
                                and (j.task_id, j.job_queue_id) <= (task.id, held.id)
                            order by j.task_id, j.job_queue_id, j.priority limit 1)
                        from unnest(held_queues) as held(id) cross join unnest(known_tasks) as task(id)
                        union all
                        select stair.queue_id, stair.task_id, (
                            select j.priority from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is not null
                                and (j.task_id, j.job_queue_id, j.priority)
                                    > (stair.task_id, stair.queue_id, stair.priority)
                                and (j.task_id, j.job_queue_id) <= (stair.task_id, stair.queue_id)
                            order by j.task_id, j.job_queue_id, j.priority limit 1)
                        from stair where stair.priority is not null
                    ), next_in_line as (
                        select job.tid, row_number() over (
                            partition by stair.queue_id order by stair.priority, job.run_at, job.id) as place
                        from stair
                        cross join lateral (
                            select j.ctid as tid, j.run_at, j.id from :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is not null
                                and (j.task_id, j.job_queue_id, j.priority)
                                    >= (stair.task_id, stair.queue_id, stair.priority)
                                and (j.task_id, j.job_queue_id, j.priority, j.run_at)
                                    <= (stair.task_id, stair.queue_id, stair.priority, this_moment)
                                and (forbidden_flags is null or (j.flags ?| forbidden_flags) is not true)
                            order by j.task_id, j.job_queue_id, j.priority, j.run_at, j.id limit stretch
                        ) as job
                    )
                    update :SCHEMA._private_jobs as job
                    set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment
                    where job.ctid = any (array(
                        select j.ctid from :SCHEMA._private_jobs as j
                        where j.ctid = any (array(select tid from next_in_line where place <= stretch)) and j.is_available
                        for update skip locked
                    ))
                    returning job.id, job.task_id, job.attempts, job.payload::text, job.job_queue_id, job.priority,
                        date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision,
                        job.flags::text, job.last_error, date_part('epoch', job.created_at),
                        date_part('epoch', job.updated_at),
                        (select q.queue_name from :SCHEMA._private_job_queues as q where q.id = job.job_queue_id);
                    get diagnostics taken = row_count;

                    -- A queue whose jobs slipped away in between is let go again.
                    update :SCHEMA._private_job_queues as queue
                    set locked_by = null, locked_at = null
                    where queue.id = any (held_queues) and not exists (
                        select from :SCHEMA._private_jobs as j
                        where j.locked_by = holder and j.locked_at = this_moment and j.job_queue_id = queue.id
                    );
                    remaining := remaining - taken;
                    queues_left := queues_left - coalesce(cardinality(held_queues), 0);
                    picked_queues := '{}';
                    picked_run_ats := '{}';
                    picked_ids := '{}';
                end if;
                exit when remaining < 1 or candidates < remaining;
            end loop;
        end if;

        -- Still room: remember when the first of what lies ahead falls due.
        if remaining > 0 then
            if unqueued_level = level then
                select least(next_run_at, min(n.run_at)) into next_run_at
                from unnest(unqueued_tasks) as task(id)
                cross join lateral (
                    select j.run_at from :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is null
                        and (j.task_id, j.priority, j.run_at) > (task.id, level, this_moment)
                        and (j.task_id, j.priority) <= (task.id, level)
                    order by j.task_id, j.priority, j.run_at limit 1
                ) as n;
            end if;
            if flagged_level = level then
                select least(next_run_at, min(n.run_at)) into next_run_at
                from unnest(flagged_tasks) as task(id)
                cross join lateral (
                    select j.run_at from :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is not null
                        and (j.task_id, j.priority, j.run_at) > (task.id, level, this_moment)
                        and (j.task_id, j.priority) <= (task.id, level)
                    order by j.task_id, j.priority, j.run_at limit 1
                ) as n;
            end if;
            if queued_level = level then
                select least(next_run_at, min(n.run_at)) into next_run_at
                from unnest(queued_tasks) as task(id)
                cross join lateral (
                    select j.run_at from :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is not null
                        and (j.task_id, j.priority, j.run_at) > (task.id, level, this_moment)
                        and (j.task_id, j.priority) <= (task.id, level)
                    order by j.task_id, j.priority, j.run_at limit 1
                ) as n;
            end if;
        end if;
    end loop;

    if remaining > 0 then
        job_id := null;
        job_run_at := date_part('epoch', next_run_at - coalesce(claimed_at, clock_timestamp()));
        return next;
    end if;
end
$$;

-- How claims end. A claim is known by its id, its holder and the attempt it began;
-- a cancelled job has its attempts at the maximum and updated_at past locked_at, and
-- is still the same claim. A row that a transaction of the site is just changing is
-- left for the next round, so that one of them never holds up a batch.
create function :SCHEMA._private_complete_claims(holder text, job_ids bigint[], begun_attempts smallint[])
returns setof bigint
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    delete from :SCHEMA._private_jobs as gone
    where gone.ctid = any (array(
        select job.ctid
        from unnest(job_ids, begun_attempts) as ended(id, attempts)
        join :SCHEMA._private_jobs as job on job.id = ended.id
        where job.locked_by = holder and (
            job.attempts = ended.attempts
            or (job.attempts = job.max_attempts and job.updated_at > job.locked_at))
        for update of job skip locked))
    returning gone.id;
end
$$;

create function :SCHEMA._private_fail_claims(
    holder text, job_ids bigint[], begun_attempts smallint[], errors text[], delays float8[],
    permanent boolean[], payloads text[], failed_at timestamptz default null
) returns table (failed_id bigint, seconds_until_next float8)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(failed_at, now());
begin
    return query
    with failing as materialized (
        select job.ctid as tid, ended.error, ended.delay, ended.permanent, ended.payload
        from unnest(job_ids, begun_attempts, errors, delays, permanent, payloads)
            as ended(id, attempts, error, delay, permanent, payload)
        join :SCHEMA._private_jobs as job on job.id = ended.id
        where job.locked_by = holder and (
            job.attempts = ended.attempts
            or (job.attempts = job.max_attempts and job.updated_at > job.locked_at))
        for update of job skip locked
    )
    update :SCHEMA._private_jobs as job
    set last_error = failing.error,
        run_at = greatest(this_moment, job.run_at) + interval '1 second' * coalesce(
            failing.delay, exp(least(job.attempts, 10))),
        attempts = case when failing.permanent then job.max_attempts else job.attempts end,
        payload = coalesce(failing.payload::json, job.payload),
        -- When it failed. No claim can take this for a cancellation: the next one is not before run_at.
        updated_at = this_moment,
        locked_by = null,
        locked_at = null
    from failing
    where job.ctid = failing.tid
    returning job.id, case when job.attempts < job.max_attempts then
        date_part('epoch', job.run_at - this_moment) end;
end
$$;

-- The attempt is given back, unless the job was cancelled meanwhile: that one must
-- not come to life again.
create function :SCHEMA._private_return_claims(holder text, job_ids bigint[], begun_attempts smallint[])
returns setof bigint
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with returning_job as materialized (
        select job.ctid as tid
        from unnest(job_ids, begun_attempts) as ended(id, attempts)
        join :SCHEMA._private_jobs as job on job.id = ended.id
        where job.locked_by = holder and (
            job.attempts = ended.attempts
            or (job.attempts = job.max_attempts and job.updated_at > job.locked_at))
        for update of job skip locked
    )
    update :SCHEMA._private_jobs as job
    set attempts = case
            when job.attempts = job.max_attempts and job.updated_at > job.locked_at then job.attempts
            else greatest(job.attempts - 1, 0) end,
        locked_by = null,
        locked_at = null
    from returning_job
    where job.ctid = returning_job.tid
    returning job.id;
end
$$;
