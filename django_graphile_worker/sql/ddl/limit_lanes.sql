/* gw:install */
-- How limited jobs get into lanes, and how lanes become ready again.
--
-- Locks: a sorter locks jobs (skipping locked ones), then lanes in the order of their identity. A claim locks lanes
-- (skipping locked ones), then all keys that it needs, once, in the order of their ids. What frees places or closes keys
-- locks keys once, in the same order, and lanes only if they are not locked. So no two of them can wait for each other
-- in a ring. Keys are locked "for no key update": a sorter that holds a key against its deletion does not wait for them.
--
-- Planner settings are pinned, as in claim_jobs_v3.sql. Tables are joined with arrays by lateral subqueries that end
-- with "offset 0", or by "= any": each row is looked up by an index, whatever the planner believes about the tables.

-- The first ready lanes of each task, at most so many, and the place of each among those of its task. Lanes with a
-- forbidden flag are passed by their sets of flags, of which at most a thousand are looked at.
create function :SCHEMA._private_ready_lanes_v1(of_tasks int[], of_shapes int[], forbidden_flags text[], most int)
returns table (lane_id bigint, lane_priority smallint, lane_run_at timestamptz, place bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    if forbidden_flags is null then
        return query
        select ready.id, ready.priority, ready.head_run_at, ready.place
        from unnest(of_tasks, of_shapes) as known(task_id, shape)
        cross join lateral (
            select l.id, l.priority, l.head_run_at, row_number() over () as place
            from (
                select l.id, l.priority, l.head_run_at from only :SCHEMA._private_limit_lanes as l
                where l.state = 1 and l.task_id = known.task_id and l.shape = known.shape
                order by l.priority, l.turn, l.id limit most
            ) as l
        ) as ready;
        return;
    end if;
    return query
    with recursive allowed (number, task_id, shape, flags) as (
        select 1, known.task_id, known.shape, (
            select l.flags from only :SCHEMA._private_limit_lanes as l
            where l.state = 1 and l.task_id = known.task_id and l.shape = known.shape
            order by l.flags limit 1)
        from unnest(of_tasks, of_shapes) as known(task_id, shape)
        union all
        select allowed.number + 1, allowed.task_id, allowed.shape, (
            select l.flags from only :SCHEMA._private_limit_lanes as l
            where l.state = 1 and l.task_id = allowed.task_id and l.shape = allowed.shape and l.flags > allowed.flags
            order by l.flags limit 1)
        from allowed where allowed.flags is not null and allowed.number < 1000
    )
    select ready.id, ready.priority, ready.head_run_at, row_number() over (
        partition by allowed.task_id order by ready.priority, ready.turn, ready.id)
    from allowed
    cross join lateral (
        select l.id, l.priority, l.head_run_at, l.turn from only :SCHEMA._private_limit_lanes as l
        where l.state = 1 and l.task_id = allowed.task_id and l.shape = allowed.shape and l.flags = allowed.flags
        order by l.priority, l.turn, l.id limit most
    ) as ready
    where (allowed.flags ?| forbidden_flags) is not true;
end
$$;

-- Picks due jobs of limited tasks that are not sorted, and locks them: some of the first and some of the last of each
-- task and priority, so that a small tenant does not wait until all earlier jobs of a large one are sorted. The last
-- row has no id and a summary:
--
--   has_more              whether there may be more that are due
--   has_ready             whether a lane of these tasks is ready that has none of the forbidden flags, or a time has come
--                         for which lanes waited
--   seconds_until_next    when the next job falls due, or the next such time comes; null if nothing is known. A time
--                         that has come is not among them: a claim must look, and there may be no free slot for it
--
-- A process that stands still between this and the parking of the jobs must not keep them locked: the server ends a
-- transaction that is idle for so many milliseconds, unless it is null.
create function :SCHEMA._private_unsorted_jobs_v1(
    of_tasks int[], of_shapes int[], claimed_at timestamptz, clock timestamptz, most int, idle_milliseconds int,
    forbidden_flags text[]
) returns table (
    job_id bigint, job_task_id int, job_payload text, queue_id int, job_flags text, job_revision int, summary json
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    this_moment constant timestamptz := coalesce(claimed_at, now());
    task int; kind int; level int; level_run_at timestamptz; next_run_at timestamptz;
    source_tasks int[] := '{}'; source_kinds int[] := '{}'; source_levels int[] := '{}';
    per_source int; picked bigint[] := '{}'; found bigint[]; has_more boolean := false;
    moment constant timestamptz := coalesce(clock, clock_timestamp());
    wait_until timestamptz;
begin
    -- Where anything is due: a probe for each kind of jobs, and each of its priorities.
    foreach task in array of_tasks loop
        for kind in 1..3 loop
            level := -32769;
            loop
                if kind = 1 then
                    select j.priority, j.run_at into level, level_run_at from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is null
                        and j.task_id = task and j.priority > level
                    order by j.priority, j.run_at, j.id limit 1;
                elsif kind = 2 then
                    select j.priority, j.run_at into level, level_run_at from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is not null
                        and j.task_id = task and j.priority > level
                    order by j.priority, j.run_at, j.id limit 1;
                else
                    select j.priority, j.run_at into level, level_run_at from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is not null
                        and j.task_id = task and j.priority > level
                    order by j.priority, j.run_at, j.id limit 1;
                end if;
                exit when level is null;
                if level_run_at <= this_moment then
                    source_tasks := source_tasks || task;
                    source_kinds := source_kinds || kind;
                    source_levels := source_levels || level;
                elsif isfinite(level_run_at) then
                    next_run_at := least(next_run_at, level_run_at);
                end if;
            end loop;
        end loop;
    end loop;
    per_source := ceil(most::float8 / greatest(cardinality(source_tasks), 1) / 2);
    for place in 1..cardinality(source_tasks) loop
        task := source_tasks[place];
        level := source_levels[place];
        if source_kinds[place] = 1 then
            found := array(
                select j.id from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is null
                    and j.task_id = task and j.priority = level and j.run_at <= this_moment
                order by j.run_at, j.id limit per_source for update skip locked);
            if cardinality(found) = per_source then
                found := found || array(
                    select j.id from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is null
                        and j.task_id = task and j.priority = level and j.run_at <= this_moment
                    order by j.run_at desc, j.id desc limit per_source for update skip locked);
                has_more := true;
            end if;
        elsif source_kinds[place] = 2 then
            found := array(
                select j.id from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is null and j.flags is not null
                    and j.task_id = task and j.priority = level and j.run_at <= this_moment
                order by j.run_at, j.id limit per_source for update skip locked);
            if cardinality(found) = per_source then
                found := found || array(
                    select j.id from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is not null
                        and j.task_id = task and j.priority = level and j.run_at <= this_moment
                    order by j.run_at desc, j.id desc limit per_source for update skip locked);
                has_more := true;
            end if;
        else
            found := array(
                select j.id from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null
                    and j.task_id = task and j.priority = level and j.run_at <= this_moment
                order by j.run_at, j.id limit per_source for update skip locked);
            if cardinality(found) = per_source then
                found := found || array(
                    select j.id from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is not null
                        and j.task_id = task and j.priority = level and j.run_at <= this_moment
                    order by j.run_at desc, j.id desc limit per_source for update skip locked);
                has_more := true;
            end if;
        end if;
        picked := picked || found;
    end loop;
    return query
    select j.id, j.task_id, j.payload::text, j.job_queue_id, j.flags::text, j.revision, null::json
    from only :SCHEMA._private_jobs as j
    where j.id = any (picked);
    if picked <> '{}' and idle_milliseconds is not null then
        perform set_config('idle_in_transaction_session_timeout', idle_milliseconds::text, true);
    end if;
    wait_until := least(
        (select k.opens_at from only :SCHEMA._private_limit_keys as k
         where k.opens_at is not null order by k.opens_at, k.id limit 1),
        (select l.ready_at from only :SCHEMA._private_limit_lanes as l
         where l.state = 3 order by l.ready_at, l.id limit 1));
    job_id := null;
    summary := json_build_object(
        'has_more', has_more,
        'has_ready', wait_until <= moment is true or exists (
            select from :SCHEMA._private_ready_lanes_v1(of_tasks, of_shapes, forbidden_flags, 1)),
        'seconds_until_next', greatest(least(
            date_part('epoch', next_run_at - coalesce(claimed_at, clock_timestamp())),
            case when wait_until > moment then date_part('epoch', wait_until - moment) end), case
            when next_run_at is not null or wait_until > moment then 0 end));
    return next;
end
$$;

-- Puts picked jobs into their lanes, and parks them. Each job has the number of its lane, and the time of its own at which
-- it expires; each key has the number of the lane that has it, and whether it takes turns. Returns how many jobs were parked, and how many of their lanes are ready.
create function :SCHEMA._private_park_jobs_v1(
    job_ids bigint[], job_revisions int[], job_lanes int[], job_expiries float8[],
    lane_tasks int[], lane_shapes int[], lane_queues int[], lane_flags text[],
    key_lanes int[], key_names text[], key_texts text[], key_turns boolean[], out parked int, out ready int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- Hash joins join arrays with arrays. The tables are read by lateral subqueries, each by its index.
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_nestloop = on
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    lane_ids bigint[]; lane_keys bigint[]; parked_ids bigint[];
begin
    loop
        insert into :SCHEMA._private_limit_keys (limit_name, key_text)
        select distinct entry.name, entry.key
        from unnest(key_names, key_texts) as entry(name, key)
        where not exists (
            select from only :SCHEMA._private_limit_keys as known
            where known.limit_name = entry.name and known.key_text = entry.key offset 0)
        order by entry.name, entry.key
        on conflict (limit_name, key_text) do nothing;
        -- Holds the keys against their deletion until the lanes that name them are committed.
        select array_agg(known.id order by entry.number) into lane_keys
        from unnest(key_names, key_texts) with ordinality as entry(name, key, number)
        cross join lateral (
            select k.id from only :SCHEMA._private_limit_keys as k
            where k.limit_name = entry.name and k.key_text = entry.key for key share) as known;
        -- A key may have been deleted between the two statements.
        exit when coalesce(cardinality(lane_keys), 0) = cardinality(key_names);
    end loop;

    with keys as (
        select entry.lane, array_agg(entry.key_id order by entry.key_id) as key_ids,
            max(entry.key_id) filter (where entry.takes_turns) as turn_key
        from unnest(key_lanes, lane_keys, key_turns) as entry(lane, key_id, takes_turns) group by entry.lane
    ), head as (
        select distinct on (entry.lane) entry.lane, job.priority, job.run_at, entry.id
        from unnest(job_ids, job_revisions, job_lanes) as entry(id, revision, lane)
        cross join lateral (
            select j.priority, j.run_at from only :SCHEMA._private_jobs as j
            where j.id = entry.id and j.revision = entry.revision and j.is_available and isfinite(j.run_at)
            offset 0) as job
        order by entry.lane, job.priority, job.run_at, entry.id
    ), lane as (
        select lane.number, lane.task_id, lane.shape, lane.queue_id, coalesce(lane.flags, '{}') as flags, keys.turn_key,
            coalesce(keys.key_ids, '{}') as key_ids, head.priority, head.run_at, head.id as head_id,
            case when keys.turn_key is null then head.run_at else coalesce((
                select k.served_at from only :SCHEMA._private_limit_keys as k where k.id = keys.turn_key offset 0
            ), '-infinity') end as turn
        from unnest(lane_tasks, lane_shapes, lane_queues, lane_flags::jsonb[]) with ordinality
            as lane(task_id, shape, queue_id, flags, number)
        join head on head.lane = lane.number
        left join keys on keys.lane = lane.number
    ), filled as (
        insert into :SCHEMA._private_limit_lanes as known (
            task_id, shape, key_ids, queue_id, flags, turn_key, state, priority, head_run_at, head_id, turn, sorted_at)
        select lane.task_id, lane.shape, lane.key_ids, lane.queue_id, lane.flags, lane.turn_key, 1, lane.priority,
            lane.run_at, lane.head_id, lane.turn, clock_timestamp()
        from lane
        order by lane.task_id, lane.shape, lane.key_ids, lane.queue_id, md5(lane.flags::text)
        on conflict (task_id, shape, key_ids, queue_id, md5(flags::text)) do update
        set (priority, head_run_at, head_id, turn) = (
                select head.priority, head.run_at, head.id,
                    case when known.turn_key is null then head.run_at else excluded.turn end
                from (
                    select excluded.priority, excluded.head_run_at as run_at, excluded.head_id as id
                    union all
                    select known.priority, known.head_run_at, known.head_id where known.state > 0
                    order by 1, 2, 3 limit 1
                ) as head),
            -- A lane that waits for its turn may have the best job now.
            state = case when known.state in (0, 4) then 1 else known.state end,
            sorted_at = excluded.sorted_at
        returning known.id, known.task_id, known.shape, known.key_ids, known.queue_id, known.flags, known.state
    ), linked as (
        insert into :SCHEMA._private_limit_lane_keys (key_id, lane_id)
        select key.id, filled.id from filled cross join lateral unnest(filled.key_ids) as key(id)
        where not exists (
            select from only :SCHEMA._private_limit_lane_keys as known
            where known.key_id = key.id and known.lane_id = filled.id offset 0)
        on conflict do nothing
    )
    select array_agg(filled.id order by number.number), count(*) filter (where filled.state = 1)
    into lane_ids, ready
    from generate_series(1, cardinality(lane_tasks)) as number
    left join lane on lane.number = number.number
    left join filled on filled.key_ids = lane.key_ids and filled.task_id = lane.task_id
        and filled.shape = lane.shape and filled.queue_id = lane.queue_id
        and filled.flags = lane.flags;

    with kept as (
        insert into :SCHEMA._private_limited_jobs as limited (
            job_id, lane_id, task_id, priority, run_at, revision, expires_at)
        select job.id, lane_ids[entry.lane], job.task_id, job.priority, job.run_at, job.revision,
            case when job.was_started then 'infinity' else to_timestamp(entry.expiry) end
        from unnest(job_ids, job_revisions, job_lanes, job_expiries) as entry(id, revision, lane, expiry)
        cross join lateral (
            select j.id, j.task_id, j.priority, j.run_at, j.revision,
                j.attempts > 0 or j.last_error is not null as was_started
            from only :SCHEMA._private_jobs as j
            where j.id = entry.id and j.revision = entry.revision and j.is_available and isfinite(j.run_at)
            offset 0) as job
        where lane_ids[entry.lane] is not null
        -- The row of a job that was parked before, and then changed.
        on conflict (job_id) do update
        set lane_id = excluded.lane_id, task_id = excluded.task_id, priority = excluded.priority,
            run_at = excluded.run_at, revision = excluded.revision, expires_at = excluded.expires_at,
            parked_at = clock_timestamp()
        returning limited.job_id
    )
    select array_agg(kept.job_id), count(*) into parked_ids, parked from kept;
    update only :SCHEMA._private_jobs as job set run_at = 'infinity' where job.id = any (parked_ids);
end
$$;

-- Makes lanes ready that wait for these keys: of each key and each task so many, in order. Lanes that another session
-- has locked are left out. Returns how many became ready.
create function :SCHEMA._private_wake_lanes_v1(of_keys bigint[], wanted int[]) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    lanes bigint[];
begin
    with recursive waiting (key_id, wanted, task_id) as (
        select entry.key_id, entry.wanted, (
            select l.task_id from only :SCHEMA._private_limit_lanes as l
            where l.state = 2 and l.blocked_by = entry.key_id
            order by l.task_id, l.priority, l.turn, l.id limit 1)
        from unnest(of_keys, wanted) as entry(key_id, wanted)
        union all
        select waiting.key_id, waiting.wanted, (
            select l.task_id from only :SCHEMA._private_limit_lanes as l
            where l.state = 2 and l.blocked_by = waiting.key_id and l.task_id > waiting.task_id
            order by l.task_id, l.priority, l.turn, l.id limit 1)
        from waiting
        where waiting.task_id is not null
    )
    select array_agg(lane.id) into lanes
    from waiting
    cross join lateral (
        select l.id from only :SCHEMA._private_limit_lanes as l
        where l.state = 2 and l.blocked_by = waiting.key_id and l.task_id = waiting.task_id
        order by l.priority, l.turn, l.id
        limit greatest(waiting.wanted, 0)
        for no key update skip locked
    ) as lane;
    if lanes is null then
        return 0;
    end if;
    perform :SCHEMA._private_make_ready_v1(lanes);
    return cardinality(lanes);
end
$$;

-- Makes lanes ready that the caller has locked. If keys take turns, the turn is that of the key.
create function :SCHEMA._private_make_ready_v1(lanes bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    update only :SCHEMA._private_limit_lanes as lane
    set state = 1, blocked_by = null, ready_at = null,
        -- A lane that is looked at again, and still waits for its queue, has waited since then.
        blocked_at = case when lane.state = 3 then lane.blocked_at end,
        turn = case when lane.turn_key is null then lane.turn else coalesce((
            select k.served_at from only :SCHEMA._private_limit_keys as k where k.id = lane.turn_key offset 0
        ), '-infinity') end
    where lane.id = any (lanes);
end
$$;

-- Makes the first lane of each kind ready that waits for one of these queues: a kind has the task and the flags in
-- common, because a worker may know some tasks only, or forbid flags. Returns how many became ready.
create function :SCHEMA._private_wake_queues_v1(queue_ids int[]) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    lanes bigint[];
begin
    lanes := array(
        select first.lane_id from :SCHEMA._private_first_lanes_v1(queue_ids) as first where first.lane_state in (3, 4));
    if lanes <> '{}' then
        lanes := array(
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.id = any (lanes) and l.state in (3, 4) for no key update skip locked);
        perform :SCHEMA._private_make_ready_v1(lanes);
    end if;
    return cardinality(lanes);
end
$$;

-- The first lane of each kind in these queues, among those from which a job could start if the queue were free.
create function :SCHEMA._private_first_lanes_v1(queue_ids int[])
returns table (
    queue_id int, lane_task_id int, lane_shape int, lane_flags jsonb, lane_id bigint, lane_state smallint,
    lane_priority smallint, lane_run_at timestamptz, lane_job_id bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with recursive kind (queue_id, task_id, shape, flags) as (
        select queue.id, -2147483648, -2147483648, 'null'::jsonb from unnest(queue_ids) as queue(id)
        union all
        select kind.queue_id, ahead.task_id, ahead.shape, ahead.flags
        from kind
        cross join lateral (
            select l.task_id, l.shape, l.flags from only :SCHEMA._private_limit_lanes as l
            where l.queue_id > 0 and l.state in (1, 3, 4) and l.queue_id = kind.queue_id
                and (l.task_id, l.shape, l.flags) > (kind.task_id, kind.shape, kind.flags)
            order by l.queue_id, l.task_id, l.shape, l.flags limit 1
        ) as ahead
    )
    select kind.queue_id, kind.task_id, kind.shape, kind.flags, lane.id, lane.state, lane.priority, lane.head_run_at,
        lane.head_id
    from kind
    cross join lateral (
        select l.id, l.state, l.priority, l.head_run_at, l.head_id from only :SCHEMA._private_limit_lanes as l
        where l.queue_id > 0 and l.state in (1, 3, 4) and l.queue_id = kind.queue_id
            and l.task_id = kind.task_id and l.shape = kind.shape and l.flags = kind.flags
        order by l.priority, l.head_run_at, l.head_id limit 1
    ) as lane
    where kind.flags <> 'null';
end
$$;

-- The first job of each of these queues that is due and may start as far as limits go: of the lanes of the limited
-- tasks, and of the jobs of other tasks (others) that are not parked. A job that is parked names its lane.
create function :SCHEMA._private_first_in_queues_v1(
    queue_ids int[], others int[], of_tasks int[], of_shapes int[], forbidden_flags text[], moment timestamptz
) returns table (queue_id int, lane_id bigint, job_priority smallint, job_run_at timestamptz, job_id bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with recursive stair (queue_id, task_id, priority) as (
        select queue.id, -2147483648, 0::smallint from unnest(queue_ids) as queue(id)
        union all
        select stair.queue_id, ahead.task_id, ahead.priority
        from stair
        cross join lateral (
            select j.task_id, j.priority from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is not null and j.job_queue_id = stair.queue_id
                and (j.task_id, j.priority) > (stair.task_id, stair.priority)
            order by j.job_queue_id, j.task_id, j.priority limit 1
        ) as ahead
    ), found as (
        select first.queue_id, first.lane_id, first.lane_priority as priority, first.lane_run_at as run_at,
            first.lane_job_id as id
        from :SCHEMA._private_first_lanes_v1(queue_ids) as first
        where first.lane_shape = of_shapes[array_position(of_tasks, first.lane_task_id)]
            and (forbidden_flags is null or (first.lane_flags ?| forbidden_flags) is not true)
        union all
        select stair.queue_id, null, stair.priority, job.run_at, job.id
        from stair
        cross join lateral (
            select early.run_at, early.id
            from (
                select j.run_at, j.id, j.flags from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null and j.job_queue_id = stair.queue_id
                    and j.task_id = stair.task_id and j.priority = stair.priority and j.run_at <= moment
                order by j.run_at, j.id limit 50
            ) as early
            where forbidden_flags is null or (early.flags ?| forbidden_flags) is not true
            order by early.run_at, early.id limit 1
        ) as job
        where stair.task_id = any (others || of_tasks)
    )
    select distinct on (found.queue_id) found.queue_id, found.lane_id, found.priority, found.run_at, found.id
    from found
    order by found.queue_id, found.priority, found.run_at, found.id;
end
$$;

-- Of the lanes of a key that takes turns one is ready, for each kind: the first by priority and due time. The others wait
-- for the turn of the key. The caller has locked the keys.
create function :SCHEMA._private_offer_turns_v1(of_lanes bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    kind record; first_id bigint; first_state smallint;
begin
    for kind in
        select distinct l.turn_key, l.task_id, l.shape, l.flags
        from only :SCHEMA._private_limit_lanes as l where l.id = any (of_lanes) and l.turn_key is not null
    loop
        select first.id, first.state into first_id, first_state
        from (values (1), (4)) as known(state)
        cross join lateral (
            select l.id, l.state, l.priority, l.head_run_at, l.head_id from only :SCHEMA._private_limit_lanes as l
            where l.turn_key is not null and l.state in (1, 4) and l.turn_key = kind.turn_key
                and l.task_id = kind.task_id and l.shape = kind.shape and l.flags = kind.flags and l.state = known.state
            order by l.priority, l.head_run_at, l.head_id limit 1
        ) as first
        order by first.priority, first.head_run_at, first.head_id limit 1;
        continue when first_id is null;
        -- Whoever made these ready, by a job that was added or has ended, has paid for this.
        update only :SCHEMA._private_limit_lanes as lane set state = 4
        where lane.id = any (array(
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.turn_key is not null and l.state in (1, 4) and l.turn_key = kind.turn_key
                and l.task_id = kind.task_id and l.shape = kind.shape and l.flags = kind.flags and l.state = 1
                and l.id <> first_id
            limit 1000 for no key update skip locked));
        if first_state = 4 then
            perform :SCHEMA._private_make_ready_v1(array(
                select l.id from only :SCHEMA._private_limit_lanes as l
                where l.id = first_id and l.state = 4 for no key update skip locked));
        end if;
    end loop;
end
$$;

-- How many jobs of each key may start now, up to a number. The caller has locked the keys. A key that is full by its
-- places is looked at again without the places whose claims have ended, which are deleted.
create function :SCHEMA._private_limit_rooms_v1(
    of_keys bigint[], most int, moment timestamptz,
    limit_names text[], concurrencies int[], rate_counts int[], rate_windows float8[], bursts int[],
    out key_ids bigint[], out rooms int[], out counts_places boolean[], out keep_starts int[], out margins float8[],
    out windows float8[], out burst_counts int[], out burst_windows float8[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    -- How much later than its claim a start may be recorded: see the parameter slack of the claim.
    most_slack constant interval := '5 seconds';
    full_keys bigint[]; late_keys bigint[];
    places_of int[]; closed boolean[]; last_starts bigint[]; places int[];
begin
    select array_agg(number.id order by number.id), array_agg(number.concurrency order by number.id),
        array_agg(number.is_closed order by number.id), array_agg(number.starts order by number.id),
        array_agg(number.has_numbers order by number.id),
        array_agg(number.rate_count order by number.id), array_agg(number.margin order by number.id),
        array_agg(number.seconds + number.margin order by number.id),
        array_agg(number.burst order by number.id),
        array_agg(number.seconds * number.burst / number.rate_count + number.margin order by number.id),
        array_agg(number.id) filter (where number.concurrency is not null and number.taken >= number.concurrency),
        array_agg(number.id) filter (where number.rate_count is not null and number.last_start > moment + most_slack),
        array_agg(number.taken order by number.id)
    into key_ids, places_of, closed, last_starts, counts_places, keep_starts, margins, windows, burst_counts,
        burst_windows, full_keys, late_keys, places
    from (
        select known.id, known.starts, known.is_closed, known.concurrency, known.rate_count,
            known.seconds, known.burst, known.has_numbers,
            -- A job starts a moment after its claim: windows are longer by the time within which it must start.
            least(greatest(known.seconds / 100, 0.05), 0.5) as margin,
            case when known.concurrency is not null then (
                select count(*) from (
                    select from only :SCHEMA._private_limit_places as place
                    where place.key_id = known.id limit known.concurrency
                ) as taken) end as taken,
            case when known.rate_count is not null then (
                select start.started_at from only :SCHEMA._private_limit_starts as start
                where start.key_id = known.id and start.number = known.starts) end as last_start
        from (
            select k.id, k.starts, coalesce(k.closed_until > moment, false) as is_closed,
                case when stored.limit_name is null then concurrencies[named.place] else stored.concurrency end
                    as concurrency,
                case when stored.limit_name is null then rate_counts[named.place] else stored.rate_count end
                    as rate_count,
                case when stored.limit_name is null then rate_windows[named.place]
                    else stored.rate_seconds::float8 end as seconds,
                case when stored.limit_name is null then bursts[named.place] else stored.burst end as burst,
                -- A limit without concurrency may be given one, and then the jobs that run already count.
                stored.limit_name is not null or coalesce(concurrencies[named.place], rate_counts[named.place])
                    is not null as has_numbers
            from unnest(of_keys) as asked(id)
            cross join lateral (
                select known.id, known.limit_name, known.starts, known.closed_until
                from only :SCHEMA._private_limit_keys as known where known.id = asked.id offset 0) as k
            left join lateral (
                select o.limit_name, o.concurrency, o.rate_count, o.rate_seconds, o.burst
                from only :SCHEMA._private_limit_overrides as o where o.limit_name = k.limit_name offset 0
            ) as stored on true
            cross join lateral (select array_position(limit_names, k.limit_name) as place) as named
        ) as known
    ) as number;
    if full_keys is not null then
        delete from only :SCHEMA._private_limit_places as place
        where place.key_id = any (full_keys) and not exists (
            select from only :SCHEMA._private_jobs as job
            where job.id = place.job_id and job.locked_by = place.token offset 0);
        select array_agg((
            select count(*) from only :SCHEMA._private_limit_places as place where place.key_id = key.id
        ) order by key.id) into places
        from unnest(key_ids) as key(id);
    end if;
    if late_keys is not null then
        -- The clock of the server was set back. As far as anybody can tell, these jobs start now.
        update only :SCHEMA._private_limit_starts as start set started_at = moment + most_slack
        where start.key_id = any (late_keys) and start.started_at > moment + most_slack;
    end if;
    select array_agg(case when key.is_closed then 0 else least(
            most, key.concurrency - key.taken,
            case when key.rate_count is not null then (
                select coalesce(min(start.number) - (key.starts - key.rate_count + 1), least(most, key.rate_count))
                from only :SCHEMA._private_limit_starts as start
                where start.key_id = key.id and start.number > key.starts - key.rate_count
                    and start.number <= key.starts - key.rate_count + most
                    and start.started_at > moment - key.seconds * interval '1 second') end,
            case when key.burst is not null then (
                select coalesce(min(start.number) - (key.starts - key.burst + 1), least(most, key.burst))
                from only :SCHEMA._private_limit_starts as start
                where start.key_id = key.id and start.number > key.starts - key.burst
                    and start.number <= key.starts - key.burst + most
                    and start.started_at > moment - key.burst_seconds * interval '1 second') end
        ) end order by key.id)
    into rooms
    from unnest(key_ids, places_of, closed, last_starts, places, keep_starts, windows, burst_counts, burst_windows)
        as key(id, concurrency, is_closed, starts, taken, rate_count, seconds, burst, burst_seconds);
end
$$;

-- Frees the places of claims that have ended, and makes lanes ready that waited for them, or for these queues. Returns
-- how many became ready.
create function :SCHEMA._private_free_places_v1(job_ids bigint[], tokens text[], queue_ids int[]) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    keys bigint[]; freed bigint[]; counts int[]; woken int := 0;
begin
    keys := array(
        select distinct place.key_id
        from unnest(job_ids, tokens) as ended(job_id, token)
        cross join lateral (
            select p.key_id from only :SCHEMA._private_limit_places as p
            where p.job_id = ended.job_id and p.token = ended.token offset 0) as place);
    if keys <> '{}' then
        perform from (
            select k.id from only :SCHEMA._private_limit_keys as k
            where k.id = any (keys) order by k.id for no key update) as locked;
        with gone as (
            -- By their place in the table, which nothing changes while the keys are locked.
            delete from only :SCHEMA._private_limit_places as place
            where place.ctid = any (array(
                select found.tid
                from unnest(job_ids, tokens) as ended(job_id, token)
                cross join lateral (
                    select p.ctid as tid, p.key_id from only :SCHEMA._private_limit_places as p
                    where p.job_id = ended.job_id and p.token = ended.token offset 0) as found
                where found.key_id = any (keys) and not exists (
                    select from only :SCHEMA._private_jobs as job
                    where job.id = ended.job_id and job.locked_by = ended.token offset 0)))
            returning place.key_id
        )
        select array_agg(counted.key_id), array_agg(counted.places) into freed, counts
        from (select gone.key_id, count(*)::int as places from gone group by gone.key_id) as counted
        cross join lateral (
            select k.opens_at from only :SCHEMA._private_limit_keys as k where k.id = counted.key_id offset 0) as key
        -- Lanes of a key that waits for time become ready then.
        where (key.opens_at > clock_timestamp()) is not true;
        woken := :SCHEMA._private_attend_to_keys_v1(freed, counts, clock_timestamp());
    end if;
    if queue_ids is not null then
        if keys = '{}' then
            -- A claim that found the queue held may be about to commit that the lane waits: wait for it, with no key
            -- locked, and in the order in which a sorter locks lanes.
            perform from (
                select l.id from only :SCHEMA._private_limit_lanes as l
                where l.id = any (array(
                    select first.lane_id from :SCHEMA._private_first_lanes_v1(queue_ids) as first))
                order by l.task_id, l.shape, l.key_ids, l.queue_id, md5(l.flags::text)
                for no key update) as locked;
        end if;
        woken := woken + :SCHEMA._private_wake_queues_v1(queue_ids);
    end if;
    return woken;
end
$$;

-- Makes so many lanes of each key ready. If lanes that wait are locked, a claim looks at the key again at once. The
-- caller has locked the keys.
create function :SCHEMA._private_attend_to_keys_v1(of_keys bigint[], wanted int[], moment timestamptz) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    woken int; unattended bigint[];
begin
    if of_keys is null or of_keys = '{}' then
        return 0;
    end if;
    woken := :SCHEMA._private_wake_lanes_v1(of_keys, wanted);
    if woken < (select sum(entry.wanted) from unnest(wanted) as entry(wanted)) then
        unattended := array(
            select key.id
            from unnest(of_keys) as key(id)
            where exists (
                select from only :SCHEMA._private_limit_lanes as l
                where l.state = 2 and l.blocked_by = key.id offset 0));
        update only :SCHEMA._private_limit_keys as k set opens_at = moment
        where k.id = any (unattended) and k.opens_at is distinct from moment;
    end if;
    return woken;
end
$$;

-- Closes keys for so many seconds: no job of them starts meanwhile. A key that is closed for longer stays closed.
create function :SCHEMA._private_close_keys_v1(
    key_names text[], key_texts text[], seconds float8[], clock timestamptz
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    keys bigint[]; untils timestamptz[];
begin
    insert into :SCHEMA._private_limit_keys (limit_name, key_text)
    select distinct entry.name, entry.key
    from unnest(key_names, key_texts) as entry(name, key)
    order by entry.name, entry.key
    on conflict (limit_name, key_text) do nothing;
    select array_agg(found.id), array_agg(coalesce(clock, clock_timestamp()) + found.seconds * interval '1 second')
    into keys, untils
    from (
        select k.id, max(entry.seconds) as seconds
        from unnest(key_names, key_texts, seconds) as entry(name, key, seconds)
        cross join lateral (
            select known.id from only :SCHEMA._private_limit_keys as known
            where known.limit_name = entry.name and known.key_text = entry.key offset 0) as k
        group by k.id
    ) as found;
    perform from (
        select k.id from only :SCHEMA._private_limit_keys as k
        where k.id = any (keys) order by k.id for no key update) as locked;
    update only :SCHEMA._private_limit_keys as k
    set closed_until = greatest(k.closed_until, untils[array_position(keys, k.id)])
    where k.id = any (keys);
end
$$;

-- Ends the parking of jobs: they have their true run_at again. Returns how many.
create function :SCHEMA._private_unpark_jobs_v1(job_ids bigint[]) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    locked bigint[];
begin
    locked := array(
        select job.id from only :SCHEMA._private_jobs as job
        where job.id = any (job_ids) order by job.id for update skip locked);
    update only :SCHEMA._private_jobs as job
    set run_at = limited.run_at
    from only :SCHEMA._private_limited_jobs as limited
    where job.id = any (locked) and limited.job_id = any (locked) and limited.job_id = job.id
        and job.run_at = 'infinity';
    -- A row of a job that is gone, too. The row of a job that another session has locked stays.
    delete from only :SCHEMA._private_limited_jobs as limited
    where limited.job_id = any (job_ids) and (limited.job_id = any (locked) or not exists (
        select from only :SCHEMA._private_jobs as job where job.id = limited.job_id offset 0));
    return cardinality(locked);
end
$$;

-- Frees places whose claims have ended although nothing told of it, because their worker died. Then looks at some keys
-- for which lanes wait, in the order of their ids, and makes lanes ready if such a key has room: its numbers may have
-- changed. Only keys of limits whose numbers are given are looked at. Lanes that wait for a queue which is free become
-- ready, too: a pause that ends, or an operator, may have freed it. Returns how many lanes became ready, and the key and
-- the queue after which the next call goes on; null after the last.
create function :SCHEMA._private_sweep_limits_v1(
    after_key bigint, after_queue int, most int, clock timestamptz,
    limit_names text[], concurrencies int[], rate_counts int[], rate_windows float8[], bursts int[],
    out woken int, out next_key bigint, out next_queue int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    walked bigint[]; stale bigint[]; held bigint[]; ready bigint[]; counts int[]; queues int[];
begin
    stale := array(
        select place.key_id from only :SCHEMA._private_limit_places as place
        where not exists (
            select from only :SCHEMA._private_jobs as job
            where job.id = place.job_id and job.locked_by = place.token offset 0)
        limit 10000);
    with recursive walk (key_id, step) as (
        select coalesce(after_key, 0), 0
        union all
        select (
            select l.blocked_by from only :SCHEMA._private_limit_lanes as l
            where l.state = 2 and l.blocked_by > walk.key_id order by l.blocked_by limit 1), walk.step + 1
        from walk where walk.key_id is not null and walk.step < most
    )
    select array_agg(walk.key_id) filter (where walk.key_id is not null),
        max(walk.key_id) filter (where walk.step = most)
    into walked, next_key
    from walk where walk.step > 0;
    held := array(
        select k.id
        from only :SCHEMA._private_limit_keys as k
        where k.id = any (stale || walked) and (k.id = any (stale) or k.limit_name = any (limit_names))
        order by k.id for no key update skip locked);
    delete from only :SCHEMA._private_limit_places as place
    where place.key_id = any (held) and place.key_id = any (stale) and not exists (
        select from only :SCHEMA._private_jobs as job
        where job.id = place.job_id and job.locked_by = place.token offset 0);
    select array_agg(key.id), array_agg(key.room) into ready, counts
    from :SCHEMA._private_limit_rooms_v1(held, 100, coalesce(clock, clock_timestamp()),
        limit_names, concurrencies, rate_counts, rate_windows, bursts) as rooms
    cross join lateral unnest(rooms.key_ids, rooms.rooms) as key(id, room)
    where key.room > 0 and exists (
        select from only :SCHEMA._private_limit_lanes as l where l.state = 2 and l.blocked_by = key.id offset 0);
    woken := :SCHEMA._private_attend_to_keys_v1(ready, counts, coalesce(clock, clock_timestamp()));
    with recursive waiting (queue_id, step) as (
        select coalesce(after_queue, 0), 0
        union all
        select (
            select l.queue_id from only :SCHEMA._private_limit_lanes as l
            where l.queue_id > 0 and l.state in (1, 3, 4) and l.queue_id > waiting.queue_id
            order by l.queue_id limit 1), waiting.step + 1
        from waiting where waiting.queue_id is not null and waiting.step < most
    )
    select array_agg(waiting.queue_id) filter (where exists (
            select from only :SCHEMA._private_job_queues as q
            where q.id = waiting.queue_id and q.is_available offset 0)),
        max(waiting.queue_id) filter (where waiting.step = most)
    into queues, next_queue
    from waiting where waiting.step > 0 and waiting.queue_id is not null;
    woken := woken + :SCHEMA._private_wake_queues_v1(coalesce(queues, '{}'));
end
$$;

-- Ends the parking of some jobs of these tasks: all of them for tasks without a shape, which have no limits any more,
-- else those of lanes with another shape into which nothing was sorted for a while. Returns how many. No claim looks at
-- such a lane, so this function notes that it is empty: then the lane is not looked at again, and is deleted later.
create function :SCHEMA._private_unpark_tasks_v1(of_tasks int[], of_shapes int[], seconds float8, most int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    old_lanes bigint[]; unparked int;
begin
    -- Locked: the sorter of a worker with the old code may put jobs into them.
    old_lanes := array(
        select lane.id
        from unnest(of_tasks, of_shapes) as known(task_id, shape)
        cross join lateral (
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.task_id = known.task_id and l.shape is distinct from known.shape and l.state > 0
                and (known.shape is null or l.sorted_at < clock_timestamp() - seconds * interval '1 second')
            limit most
            for no key update skip locked
        ) as lane
        limit most);
    unparked := :SCHEMA._private_unpark_jobs_v1(array(
        select w.job_id
        from unnest(of_tasks, of_shapes) as known(task_id, shape)
        cross join lateral (
            select w.job_id
            from only :SCHEMA._private_limited_jobs as w
            where w.task_id = known.task_id and known.shape is null
            order by w.task_id, w.job_id
            limit most
        ) as w
        union all
        select w.job_id
        from unnest(old_lanes) as lane(id)
        cross join lateral (
            select w.job_id from only :SCHEMA._private_limited_jobs as w
            where w.lane_id = lane.id order by w.priority, w.run_at, w.job_id limit most
        ) as w
        limit most));
    update only :SCHEMA._private_limit_lanes as lane
    set state = 0, blocked_by = null, blocked_at = null, ready_at = null
    where lane.id = any (old_lanes) and not exists (
        select from only :SCHEMA._private_limited_jobs as w where w.lane_id = lane.id offset 0);
    return unparked;
end
$$;

-- Deletes some of the lanes that have been empty for so long. Returns how many.
create function :SCHEMA._private_forget_lanes_v1(seconds float8, most int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    horizon constant timestamptz := clock_timestamp() - seconds * interval '1 second';
    lanes bigint[];
begin
    lanes := array(
        select l.id from only :SCHEMA._private_limit_lanes as l
        where l.state = 0 and l.sorted_at < horizon
        order by l.sorted_at, l.id limit most for update skip locked);
    with gone as (
        delete from only :SCHEMA._private_limit_lanes as lane where lane.id = any (lanes)
        returning lane.id, lane.key_ids
    )
    delete from only :SCHEMA._private_limit_lane_keys as known
    using gone cross join lateral unnest(gone.key_ids) as key(id)
    where known.key_id = key.id and known.lane_id = gone.id;
    return cardinality(lanes);
end
$$;

-- Looks at some keys, in the order of their ids, and deletes those that no lane has and no window needs. Returns how many,
-- and the key after which the next call goes on; null after the last.
create function :SCHEMA._private_forget_keys_v1(
    seconds float8, most int, after_key bigint, limit_names text[], rate_windows float8[],
    out forgotten int, out next_key bigint
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    horizon constant timestamptz := clock_timestamp() - seconds * interval '1 second';
    keys bigint[];
begin
    select max(k.id) filter (where k.number = most), array_agg(k.id) filter (
        where k.created_at < horizon and (k.closed_until < horizon) is not false and (k.served_at < horizon) is not false)
    into next_key, keys
    from (
        select k.id, k.created_at, k.closed_until, k.served_at, row_number() over () as number
        from (
            select k.id, k.created_at, k.closed_until, k.served_at from only :SCHEMA._private_limit_keys as k
            where k.id > coalesce(after_key, 0) order by k.id limit most
        ) as k
    ) as k;
    keys := array(
        select k.id from only :SCHEMA._private_limit_keys as k
        where k.id = any (keys) order by k.id for update skip locked);
    -- After the locks: a sorter that held a key may have committed a lane that has it.
    keys := array(
        select k.id from only :SCHEMA._private_limit_keys as k
        where k.id = any (keys)
            and not exists (select from only :SCHEMA._private_limit_lane_keys as l where l.key_id = k.id offset 0)
            and not exists (select from only :SCHEMA._private_limit_places as place where place.key_id = k.id offset 0)
            and not exists (
                select from only :SCHEMA._private_limit_starts as start
                where start.key_id = k.id and start.number = k.starts and start.started_at > horizon - coalesce(
                    rate_windows[array_position(limit_names, k.limit_name)], 2678400) * interval '1 second' offset 0));
    delete from only :SCHEMA._private_limit_starts as start where start.key_id = any (keys);
    delete from only :SCHEMA._private_limit_keys as k where k.id = any (keys);
    forgotten := cardinality(keys);
end
$$;
