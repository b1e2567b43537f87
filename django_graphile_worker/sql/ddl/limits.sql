/* gw:install */
-- How limited jobs get into lanes, how lanes become ready again, and how jobs are claimed from them.
--
-- Locks: a sorter locks jobs (skipping locked ones), then lanes in the order of their identity. A claim locks lanes
-- (skipping locked ones), then all keys that it needs, once, in the order of their ids. What frees places or closes keys
-- locks keys once, in the same order, and lanes only if they are not locked; if queues were freed, it waits for lanes
-- before that, as a sorter does. So no two of them can wait for each other in a ring. Keys are locked "for no key
-- update": a sorter that holds a key against its deletion does not wait for them.
--
-- Planner settings are pinned, as in claims.sql, by the functions that workers call; those that only other functions call
-- have them from there. Tables are joined with arrays by lateral subqueries that end with "offset 0", or by "= any": each
-- row is looked up by an index, whatever the planner believes about the tables.

-- Locks due jobs of a task and a priority, with or without a queue: the first, and if there are more, as many of the last.
-- A small tenant must not wait until all earlier jobs of a large one are sorted.
create or replace function :SCHEMA._private_pick_unsorted(
    of_task int, is_queued boolean, of_priority int, moment timestamptz, most int
) returns bigint[]
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    first_ids constant bigint[] := case when is_queued then array(
            select j.id from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id > 0
                and j.task_id = of_task and j.priority = of_priority and j.run_at <= moment
            order by j.run_at, j.id limit most for update skip locked)
        else array(
            select j.id from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is null
                and j.task_id = of_task and j.priority = of_priority and j.run_at <= moment
            order by j.run_at, j.id limit most for update skip locked) end;
begin
    return first_ids || case when cardinality(first_ids) < most then '{}'
        when is_queued then array(
            select j.id from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id > 0
                and j.task_id = of_task and j.priority = of_priority and j.run_at <= moment
            order by j.run_at desc, j.id desc limit most for update skip locked)
        else array(
            select j.id from only :SCHEMA._private_jobs as j
            where j.is_available and j.job_queue_id is null
                and j.task_id = of_task and j.priority = of_priority and j.run_at <= moment
            order by j.run_at desc, j.id desc limit most for update skip locked) end;
end
$$;

-- When a key opens, or a lane is to be looked at again.
create or replace function :SCHEMA._private_next_opening() returns timestamptz
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return least(
        (select k.opens_at from only :SCHEMA._private_limit_keys as k
         where k.opens_at is not null order by k.opens_at, k.id limit 1),
        (select l.ready_at from only :SCHEMA._private_limit_lanes as l
         where l.ready_at is not null order by l.ready_at, l.id limit 1));
end
$$;

-- The first ready lanes of each task, at most so many, and the place of each among those of its task. Lanes with a
-- forbidden flag are passed by their sets of flags, of which at most a thousand are looked at.
create or replace function :SCHEMA._private_ready_lanes(of_tasks int[], forbidden_flags text[], most int)
returns table (lane_id bigint, lane_priority smallint, lane_run_at timestamptz, place bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    if forbidden_flags is null then
        return query
        select ready.id, ready.priority, ready.head_run_at, ready.place
        from unnest(of_tasks) as known(task_id)
        cross join lateral (
            select l.id, l.priority, l.head_run_at, row_number() over () as place
            from (
                select l.id, l.priority, l.head_run_at from only :SCHEMA._private_limit_lanes as l
                where l.state = 1 and l.task_id = known.task_id
                order by l.priority, l.turn, l.id limit most
            ) as l
        ) as ready;
        return;
    end if;
    return query
    with recursive allowed (number, task_id, flags) as (
        select 1, known.task_id, (
            select l.flags from only :SCHEMA._private_limit_lanes as l
            where l.state = 1 and l.task_id = known.task_id
            order by l.flags limit 1)
        from unnest(of_tasks) as known(task_id)
        union all
        select allowed.number + 1, allowed.task_id, (
            select l.flags from only :SCHEMA._private_limit_lanes as l
            where l.state = 1 and l.task_id = allowed.task_id and l.flags > allowed.flags
            order by l.flags limit 1)
        from allowed where allowed.flags is not null and allowed.number < 1000
    )
    select ready.id, ready.priority, ready.head_run_at, row_number() over (
        partition by allowed.task_id order by ready.priority, ready.turn, ready.id)
    from allowed
    cross join lateral (
        select l.id, l.priority, l.head_run_at, l.turn from only :SCHEMA._private_limit_lanes as l
        where l.state = 1 and l.task_id = allowed.task_id and l.flags = allowed.flags
        order by l.priority, l.turn, l.id limit most
    ) as ready
    where (allowed.flags ?| forbidden_flags) is not true;
end
$$;

-- Picks due jobs of limited tasks that are not sorted, and locks them. The last row has no id and a summary:
--
--   has_more              whether there may be more that are due
--   has_ready             whether a lane of these tasks is ready that has none of the forbidden flags, or a time has come
--                         for which lanes waited
--   seconds_until_next    when the next job falls due, or the next such time comes; null if nothing is known. A time
--                         that has come is not among them: a claim must look, and there may be no free slot for it
--
-- A process that stands still between this and the parking of the jobs must not keep them locked: the server ends a
-- transaction that is idle for so many milliseconds, unless it is null.
create or replace function :SCHEMA._private_unsorted_jobs(
    of_tasks int[], claimed_at timestamptz, clock timestamptz, most int, idle_milliseconds int, forbidden_flags text[]
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
    moment constant timestamptz := coalesce(clock, clock_timestamp());
    source record; next_run_at timestamptz; per_level int;
    picked bigint[] := '{}'; found bigint[]; has_more boolean := false;
    wait_until timestamptz;
begin
    -- Each priority of the jobs of each task with and without a queue, and the due time of the first.
    for source in
        with recursive level (task_id, is_queued, priority, run_at) as (
            select task.id, kind.is_queued, -32769, null::timestamptz
            from unnest(of_tasks) as task(id) cross join (values (false), (true)) as kind(is_queued)
            union all
            select level.task_id, level.is_queued, ahead.priority::int, ahead.run_at
            from level
            cross join lateral (
                (select j.priority, j.run_at from only :SCHEMA._private_jobs as j
                 where not level.is_queued and j.is_available and j.job_queue_id is null
                    and j.task_id = level.task_id and j.priority > level.priority
                 order by j.priority, j.run_at, j.id limit 1)
                union all
                (select j.priority, j.run_at from only :SCHEMA._private_jobs as j
                 where level.is_queued and j.is_available and j.job_queue_id > 0
                    and j.task_id = level.task_id and j.priority > level.priority
                 order by j.priority, j.run_at, j.id limit 1)
            ) as ahead
        )
        select level.*, count(*) filter (where level.run_at <= this_moment) over () as due_levels
        from level where isfinite(level.run_at)
    loop
        if source.run_at > this_moment then
            next_run_at := least(next_run_at, source.run_at);
            continue;
        end if;
        per_level := ceil(most::float8 / source.due_levels / 2);
        found := :SCHEMA._private_pick_unsorted(
            source.task_id, source.is_queued, source.priority, this_moment, per_level);
        has_more := has_more or cardinality(found) >= per_level;
        picked := picked || found;
    end loop;
    return query
    select j.id, j.task_id, j.payload::text, j.job_queue_id, j.flags::text, j.revision, null::json
    from only :SCHEMA._private_jobs as j
    where j.id = any (picked);
    if picked <> '{}' and idle_milliseconds is not null then
        perform set_config('idle_in_transaction_session_timeout', idle_milliseconds::text, true);
    end if;
    wait_until := :SCHEMA._private_next_opening();
    job_id := null;
    summary := json_build_object(
        'has_more', has_more,
        'has_ready', wait_until <= moment is true or exists (
            select from :SCHEMA._private_ready_lanes(of_tasks, forbidden_flags, 1)),
        'seconds_until_next', least(
            case when next_run_at is not null then
                greatest(date_part('epoch', next_run_at - coalesce(claimed_at, clock_timestamp())), 0) end,
            case when wait_until > moment then date_part('epoch', wait_until - moment) end));
    return next;
end
$$;

-- The ids of keys, in the order in which they are given. Those that are not there are made, and all are held against
-- their deletion.
create or replace function :SCHEMA._private_keys_named(key_names text[], key_texts text[]) returns bigint[]
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    ids bigint[];
begin
    loop
        insert into :SCHEMA._private_limit_keys (limit_name, key_text)
        select distinct entry.name, entry.key
        from unnest(key_names, key_texts) as entry(name, key)
        order by entry.name, entry.key
        on conflict (limit_name, key_text) do nothing;
        select array_agg(known.id order by entry.number) into ids
        from unnest(key_names, key_texts) with ordinality as entry(name, key, number)
        cross join lateral (
            select k.id from only :SCHEMA._private_limit_keys as k
            where k.limit_name = entry.name and k.key_text = entry.key for key share) as known;
        -- A key may have been deleted between the two statements.
        exit when coalesce(cardinality(ids), 0) = cardinality(key_names);
    end loop;
    return coalesce(ids, '{}');
end
$$;

-- Puts picked jobs into their lanes, and parks them. Each job has the number of its lane, and the time of its own at which
-- it expires; each key has the number of the lane that has it, and whether it takes turns. Returns how many jobs were
-- parked, and how many of their lanes are ready.
create or replace function :SCHEMA._private_park_jobs(
    job_ids bigint[], job_revisions int[], job_lanes int[], job_expiries float8[],
    lane_tasks int[], lane_queues int[], lane_flags text[],
    key_lanes int[], key_names text[], key_texts text[], key_turns boolean[], out parked int, out ready int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- Hash joins join arrays with arrays. The tables are read by lateral subqueries, each by its index.
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_nestloop = on
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    lane_keys constant bigint[] := :SCHEMA._private_keys_named(key_names, key_texts);
    parked_ids bigint[];
begin
    with job as (
        select j.id, j.priority, j.run_at, j.revision, entry.lane,
            case when j.attempts > 0 or j.last_error is not null then 'infinity'
                else to_timestamp(entry.expiry) end as expires_at
        from unnest(job_ids, job_revisions, job_lanes, job_expiries) as entry(id, revision, lane, expiry)
        cross join lateral (
            select known.* from only :SCHEMA._private_jobs as known
            where known.id = entry.id and known.revision = entry.revision and known.is_available
                and isfinite(known.run_at) offset 0) as j
    ), head as (
        select distinct on (job.lane) job.lane, job.priority, job.run_at, job.id
        from job order by job.lane, job.priority, job.run_at, job.id
    ), keys as (
        select entry.lane, array_agg(entry.key_id order by entry.key_id) as key_ids,
            max(entry.key_id) filter (where entry.takes_turns) as turn_key
        from unnest(key_lanes, lane_keys, key_turns) as entry(lane, key_id, takes_turns) group by entry.lane
    ), lane as (
        select lane.number, lane.task_id, lane.queue_id, coalesce(lane.flags, '{}') as flags, keys.turn_key,
            coalesce(keys.key_ids, '{}') as key_ids, head.priority, head.run_at, head.id as head_id,
            case when keys.turn_key is null then head.run_at else coalesce((
                select k.served_at from only :SCHEMA._private_limit_keys as k where k.id = keys.turn_key offset 0
            ), '-infinity') end as turn
        from unnest(lane_tasks, lane_queues, lane_flags::jsonb[]) with ordinality as lane(task_id, queue_id, flags, number)
        join head on head.lane = lane.number
        left join keys on keys.lane = lane.number
    ), filled as (
        insert into :SCHEMA._private_limit_lanes as known (
            task_id, key_ids, queue_id, flags, turn_key, state, priority, head_run_at, head_id, turn, sorted_at)
        select lane.task_id, lane.key_ids, lane.queue_id, lane.flags, lane.turn_key, 1, lane.priority,
            lane.run_at, lane.head_id, lane.turn, clock_timestamp()
        from lane
        order by lane.task_id, lane.key_ids, lane.queue_id, md5(lane.flags::text)
        on conflict (task_id, key_ids, queue_id, md5(flags::text)) do update
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
        returning known.id, known.task_id, known.key_ids, known.queue_id, known.flags, known.state
    ), linked as (
        insert into :SCHEMA._private_limit_lane_keys (key_id, lane_id)
        select key.id, filled.id from filled cross join lateral unnest(filled.key_ids) as key(id)
        on conflict do nothing
    ), kept as (
        insert into :SCHEMA._private_limited_jobs as limited (
            job_id, lane_id, task_id, priority, run_at, revision, expires_at)
        select job.id, filled.id, filled.task_id, job.priority, job.run_at, job.revision, job.expires_at
        from job
        join lane on lane.number = job.lane
        join filled on filled.key_ids = lane.key_ids and filled.task_id = lane.task_id
            and filled.queue_id = lane.queue_id and filled.flags = lane.flags
        -- The row of a job that was parked before, and then changed.
        on conflict (job_id) do update
        set lane_id = excluded.lane_id, task_id = excluded.task_id, priority = excluded.priority,
            run_at = excluded.run_at, revision = excluded.revision, expires_at = excluded.expires_at
        returning limited.job_id
    )
    select array_agg(kept.job_id), count(*), (select count(*) from filled where filled.state = 1)
    into parked_ids, parked, ready from kept;
    update only :SCHEMA._private_jobs as job set run_at = 'infinity' where job.id = any (parked_ids);
end
$$;

-- Makes lanes ready that the caller has locked. If keys take turns, the turn is that of the key.
create or replace function :SCHEMA._private_make_ready(lanes bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    update only :SCHEMA._private_limit_lanes as lane
    set state = 1, blocked_by = null, blocked_at = null, ready_at = null,
        turn = case when lane.turn_key is null then lane.turn else coalesce((
            select k.served_at from only :SCHEMA._private_limit_keys as k where k.id = lane.turn_key offset 0
        ), '-infinity') end
    where lane.id = any (lanes);
end
$$;

-- Makes lanes ready that wait for these keys: of each key and each task so many, in order. Returns how many. Lanes that
-- another session has locked are left out: then a claim looks at the key again at once, if the caller has locked the keys
-- and gives a time.
create or replace function :SCHEMA._private_wake_lanes(of_keys bigint[], wanted int[], look_again_at timestamptz)
returns int
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    lanes bigint[];
begin
    lanes := array(
        with recursive waiting (key_id, wanted, task_id) as (
            select entry.key_id, entry.wanted, -2147483648 from unnest(of_keys, wanted) as entry(key_id, wanted)
            union all
            select waiting.key_id, waiting.wanted, (
                select l.task_id from only :SCHEMA._private_limit_lanes as l
                where l.state = 2 and l.blocked_by = waiting.key_id and l.task_id > waiting.task_id
                order by l.task_id, l.priority, l.turn, l.id limit 1)
            from waiting
            where waiting.task_id is not null
        )
        select lane.id
        from waiting
        cross join lateral (
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.state = 2 and l.blocked_by = waiting.key_id and l.task_id = waiting.task_id
            order by l.priority, l.turn, l.id
            limit greatest(waiting.wanted, 0)
            for no key update skip locked
        ) as lane);
    if lanes <> '{}' then
        perform :SCHEMA._private_make_ready(lanes);
    end if;
    if look_again_at is not null
        and cardinality(lanes) < (select sum(entry.wanted) from unnest(wanted) as entry(wanted))
    then
        update only :SCHEMA._private_limit_keys as k set opens_at = look_again_at
        where k.id = any (of_keys) and k.opens_at is distinct from look_again_at and exists (
            select from only :SCHEMA._private_limit_lanes as l where l.state = 2 and l.blocked_by = k.id offset 0);
    end if;
    return cardinality(lanes);
end
$$;

-- The first lane of each kind in these queues, among those from which a job could start if the queue were free: a kind has
-- the task and the flags in common, because a worker may know some tasks only, or forbid flags.
create or replace function :SCHEMA._private_first_lanes(queue_ids int[]) returns setof :SCHEMA._private_limit_lanes
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    with recursive kind (queue_id, task_id, flags) as (
        select queue.id, -2147483648, 'null'::jsonb from unnest(queue_ids) as queue(id)
        union all
        select kind.queue_id, ahead.task_id, ahead.flags
        from kind
        cross join lateral (
            select l.task_id, l.flags from only :SCHEMA._private_limit_lanes as l
            where l.queue_id > 0 and l.state in (1, 3, 4) and l.queue_id = kind.queue_id
                and (l.task_id, l.flags) > (kind.task_id, kind.flags)
            order by l.queue_id, l.task_id, l.flags limit 1
        ) as ahead
    )
    select lane.*
    from kind
    cross join lateral (
        select l.* from only :SCHEMA._private_limit_lanes as l
        where l.queue_id > 0 and l.state in (1, 3, 4) and l.queue_id = kind.queue_id
            and l.task_id = kind.task_id and l.flags = kind.flags
        order by l.priority, l.head_run_at, l.head_id limit 1
    ) as lane
    where kind.flags <> 'null';
end
$$;

-- Makes the first lane of each kind ready that waits for one of these queues. Returns how many became ready.
create or replace function :SCHEMA._private_wake_queues(queue_ids int[]) returns int
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    lanes bigint[] := array(
        select lane.id
        from (select first.id from :SCHEMA._private_first_lanes(queue_ids) as first where first.state in (3, 4)) as first
        cross join lateral (
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.id = first.id and l.state in (3, 4) for no key update skip locked) as lane);
begin
    if lanes <> '{}' then
        perform :SCHEMA._private_make_ready(lanes);
    end if;
    return cardinality(lanes);
end
$$;

-- Of the lanes of a key that takes turns one is ready, for each kind: the first by priority and due time. The others wait
-- for the turn of the key. The caller has locked the keys.
create or replace function :SCHEMA._private_offer_turns(of_lanes bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    kind record; first_lane record;
begin
    for kind in
        select distinct l.turn_key, l.task_id, l.flags
        from only :SCHEMA._private_limit_lanes as l where l.id = any (of_lanes) and l.turn_key is not null
    loop
        select first.id, first.state into first_lane
        from (values (1), (4)) as known(state)
        cross join lateral (
            select l.id, l.state, l.priority, l.head_run_at, l.head_id from only :SCHEMA._private_limit_lanes as l
            where l.turn_key is not null and l.state in (1, 4) and l.turn_key = kind.turn_key
                and l.task_id = kind.task_id and l.flags = kind.flags and l.state = known.state
            order by l.priority, l.head_run_at, l.head_id limit 1
        ) as first
        order by first.priority, first.head_run_at, first.head_id limit 1;
        continue when first_lane.id is null;
        -- Whoever made these ready, by a job that was added or has ended, has paid for this.
        update only :SCHEMA._private_limit_lanes as lane set state = 4
        where lane.id = any (array(
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.turn_key is not null and l.state in (1, 4) and l.turn_key = kind.turn_key
                and l.task_id = kind.task_id and l.flags = kind.flags and l.state = 1
                and l.id <> first_lane.id
            limit 1000 for no key update skip locked));
        if first_lane.state = 4 then
            perform :SCHEMA._private_make_ready(array(
                select l.id from only :SCHEMA._private_limit_lanes as l
                where l.id = first_lane.id and l.state = 4 for no key update skip locked));
        end if;
    end loop;
end
$$;

-- The first job of these tasks in each of these queues, parked or due and not parked; nothing for a queue without one. It
-- keeps the order of a queue whose jobs are claimed by two statements: an ordinary job does not start before a limited
-- one that comes first, parked or not sorted yet, nor a limited job before any other.
create or replace function :SCHEMA._private_first_in_queues(
    queue_ids int[], limited_tasks int[], forbidden_flags text[], moment timestamptz
) returns table (queue_id int, job_priority smallint, job_run_at timestamptz, job_id bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_incremental_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
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
        select lane.queue_id, lane.priority, lane.head_run_at as run_at, lane.head_id as id
        from :SCHEMA._private_first_lanes(queue_ids) as lane
        where lane.task_id = any (limited_tasks)
            and (forbidden_flags is null or (lane.flags ?| forbidden_flags) is not true)
        union all
        select stair.queue_id, stair.priority, job.run_at, job.id
        from stair
        cross join lateral (
            select early.run_at, early.id
            from (
                select j.run_at, j.id, j.flags from only :SCHEMA._private_jobs as j
                where j.is_available and j.job_queue_id is not null and j.job_queue_id = stair.queue_id
                    and j.task_id = stair.task_id and j.priority = stair.priority and j.run_at <= moment
                order by j.run_at, j.id limit case when forbidden_flags is null then 1 end
            ) as early
            where forbidden_flags is null or (early.flags ?| forbidden_flags) is not true
            order by early.run_at, early.id limit 1
        ) as job
        where stair.task_id = any (limited_tasks)
    )
    select distinct on (found.queue_id) found.queue_id, found.priority, found.run_at, found.id
    from found
    order by found.queue_id, found.priority, found.run_at, found.id;
end
$$;

-- The numbers of keys: those that an operator has stored for a limit, else those of the code, which the worker sends. The
-- room is only that of a key that is closed or not.
create or replace function :SCHEMA._private_limit_numbers(
    of_keys bigint[], most int, moment timestamptz,
    limit_names text[], concurrencies int[], rate_counts int[], rate_windows float8[], bursts int[]
) returns setof :SCHEMA._private_key_room
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select k.id, case when k.closed_until > moment then 0 else most end, named.place is not null,
        -- A limit without concurrency may be given one, and then the jobs that run already count.
        stored.limit_name is not null or coalesce(concurrencies[named.place], rate_counts[named.place]) is not null,
        number.concurrency,
        case when number.concurrency is not null then (
            select count(*)::int from (
                select from only :SCHEMA._private_limit_places as place
                where place.key_id = k.id limit number.concurrency) as taken) end,
        k.starts, number.rate_count, number.seconds + number.margin,
        number.burst, number.seconds * number.burst / number.rate_count + number.margin
    from unnest(of_keys) as asked(id)
    cross join lateral (
        select known.id, known.limit_name, known.starts, known.closed_until
        from only :SCHEMA._private_limit_keys as known where known.id = asked.id offset 0) as k
    left join lateral (
        select o.limit_name, o.concurrency, o.rate_count, o.rate_seconds, o.burst
        from only :SCHEMA._private_limit_overrides as o where o.limit_name = k.limit_name offset 0) as stored on true
    cross join lateral (select array_position(limit_names, k.limit_name) as place) as named
    cross join lateral (
        select each.*,
            -- A job starts a moment after its claim, and not always after the same time: windows are a little longer.
            least(greatest(each.seconds / 10, 0.05), 0.5) as margin
        from (
            select stored.concurrency, stored.rate_count, stored.rate_seconds::float8 as seconds, stored.burst
            where stored.limit_name is not null
            union all
            select concurrencies[named.place], rate_counts[named.place], rate_windows[named.place], bursts[named.place]
            where stored.limit_name is null
        ) as each
    ) as number;
end
$$;

-- How many jobs of each key may start now, up to a number. The caller has locked the keys. A key that is full by its
-- places is looked at again without the places whose claims have ended, which are deleted.
--
-- A worker knows the numbers of the limits of its tasks. Other keys have room: whoever knows their numbers decides.
create or replace function :SCHEMA._private_limit_rooms(
    of_keys bigint[], most int, moment timestamptz,
    limit_names text[], concurrencies int[], rate_counts int[], rate_windows float8[], bursts int[]
) returns setof :SCHEMA._private_key_room
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    keys :SCHEMA._private_key_room[] := array(
        select key from :SCHEMA._private_limit_numbers(
            of_keys, most, moment, limit_names, concurrencies, rate_counts, rate_windows, bursts) as key);
    full_keys bigint[] := array(select key.key_id from unnest(keys) as key where key.taken >= key.concurrency);
    late_keys bigint[] := array(
        select key.key_id from unnest(keys) as key
        where key.rate_count is not null and moment < (
            select start.started_at from only :SCHEMA._private_limit_starts as start
            where start.key_id = key.key_id and start.number = key.starts));
begin
    if full_keys <> '{}' then
        delete from only :SCHEMA._private_limit_places as place
        where place.key_id = any (full_keys) and not exists (
            select from only :SCHEMA._private_jobs as job
            where job.id = place.job_id and job.locked_by = place.token offset 0);
    end if;
    if late_keys <> '{}' then
        -- The clock of the server was set back. As far as anybody can tell, these jobs start now.
        update only :SCHEMA._private_limit_starts as start set started_at = moment
        where start.key_id = any (late_keys) and start.started_at > moment;
    end if;
    return query
    select key.key_id, least(
            key.room,
            key.concurrency - case when key.key_id = any (full_keys) then (
                select count(*)::int from only :SCHEMA._private_limit_places as place where place.key_id = key.key_id)
                else key.taken end,
            (select min(coalesce(earliest.number - (key.starts - span.count + 1), least(most, span.count)))
             from (values (key.rate_count, key.rate_seconds), (key.burst, key.burst_seconds)) as span(count, seconds)
             cross join lateral (
                select min(start.number) as number from only :SCHEMA._private_limit_starts as start
                where start.key_id = key.key_id and start.number > key.starts - span.count
                    and start.number <= key.starts - span.count + most
                    and start.started_at > moment - span.seconds * interval '1 second'
             ) as earliest
             where span.count is not null)::int),
        key.is_known, key.counts_places, key.concurrency, key.taken, key.starts, key.rate_count, key.rate_seconds,
        key.burst, key.burst_seconds
    from unnest(keys) as key;
end
$$;

-- Frees the places of claims that have ended, and makes lanes ready that waited for them, or for these queues. Returns
-- how many became ready.
create or replace function :SCHEMA._private_free_places(job_ids bigint[], tokens text[], queue_ids int[]) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    keys bigint[]; freed bigint[]; counts int[]; woken int := 0;
begin
    if queue_ids is not null then
        -- A claim that found the queue held may be about to commit that the lane waits: wait for it, before a key is
        -- locked, and in the order in which a sorter locks lanes.
        perform from (
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.id = any (array(
                select first.id from :SCHEMA._private_first_lanes(queue_ids) as first))
            order by l.task_id, l.key_ids, l.queue_id, md5(l.flags::text)
            for no key update) as locked;
    end if;
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
        woken := :SCHEMA._private_wake_lanes(freed, counts, clock_timestamp());
    end if;
    if queue_ids is not null then
        woken := woken + :SCHEMA._private_wake_queues(queue_ids);
    end if;
    return woken;
end
$$;

-- Closes keys for so many seconds: no job of them starts meanwhile. A key that is closed for longer stays closed.
create or replace function :SCHEMA._private_close_keys(
    key_names text[], key_texts text[], seconds float8[], clock timestamptz
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    keys constant bigint[] := :SCHEMA._private_keys_named(key_names, key_texts);
begin
    perform from (
        select k.id from only :SCHEMA._private_limit_keys as k
        where k.id = any (keys) order by k.id for no key update) as locked;
    update only :SCHEMA._private_limit_keys as k
    set closed_until = greatest(k.closed_until, coalesce(clock, clock_timestamp()) + interval '1 second' * (
        select max(entry.seconds) from unnest(keys, seconds) as entry(id, seconds) where entry.id = k.id))
    where k.id = any (keys);
end
$$;

-- Ends the parking of jobs: they have their true run_at again. Returns how many.
create or replace function :SCHEMA._private_unpark_jobs(job_ids bigint[]) returns int
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

-- Ends the parking of some jobs of tasks that have no limits any more. Returns how many. No claim looks at their lanes, so
-- this function notes which of them are empty: then they are deleted later.
create or replace function :SCHEMA._private_unpark_tasks(of_tasks int[], most int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    jobs bigint[]; lanes bigint[]; unparked int;
begin
    select array_agg(w.job_id), array_agg(distinct w.lane_id) into jobs, lanes
    from (
        select w.job_id, w.lane_id
        from unnest(of_tasks) as task(id)
        cross join lateral (
            select w.job_id, w.lane_id from only :SCHEMA._private_limited_jobs as w
            where w.task_id = task.id order by w.task_id, w.job_id limit most
        ) as w
        limit most
    ) as w;
    unparked := :SCHEMA._private_unpark_jobs(coalesce(jobs, '{}'));
    -- Locked: the sorter of a worker with the old code may put jobs into them.
    lanes := array(
        select l.id from only :SCHEMA._private_limit_lanes as l where l.id = any (lanes)
        for no key update skip locked);
    update only :SCHEMA._private_limit_lanes as lane
    set state = 0, blocked_by = null, blocked_at = null, ready_at = null
    where lane.id = any (lanes) and not exists (
        select from only :SCHEMA._private_limited_jobs as w where w.lane_id = lane.id offset 0);
    return unparked;
end
$$;

-- Frees places whose claims have ended without a release, because their worker died. Then looks at some keys
-- for which lanes wait, in the order of their ids, and makes lanes ready if such a key has room: its numbers may have
-- changed. Only keys of limits whose numbers are given are looked at. Lanes that wait for a queue which is free become
-- ready, too: a pause that ends, or an operator, may have freed it. Returns how many lanes became ready, and the key and
-- the queue after which the next call goes on; null after the last.
create or replace function :SCHEMA._private_sweep_limits(
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
    moment constant timestamptz := coalesce(clock, clock_timestamp());
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
    select array_agg(key.key_id), array_agg(key.room) into ready, counts
    from :SCHEMA._private_limit_rooms(held, 100, moment, limit_names, concurrencies, rate_counts, rate_windows, bursts)
        as key
    where key.room > 0 and exists (
        select from only :SCHEMA._private_limit_lanes as l where l.state = 2 and l.blocked_by = key.key_id offset 0);
    woken := :SCHEMA._private_wake_lanes(ready, counts, moment);
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
    woken := woken + :SCHEMA._private_wake_queues(coalesce(queues, '{}'));
end
$$;

-- Deletes some of the lanes that have been empty for so long. Returns how many.
create or replace function :SCHEMA._private_forget_lanes(seconds float8, most int) returns int
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

-- Looks at some keys, in the order of their ids, and deletes those that no lane has and no window needs. Returns the key
-- after which the next call goes on; null after the last.
create or replace function :SCHEMA._private_forget_keys(
    seconds float8, most int, after_key bigint, limit_names text[], rate_windows float8[], out next_key bigint
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
                -- The window of the code, or that of an operator.
                where start.key_id = k.id and start.number = k.starts and start.started_at > horizon - greatest(
                    coalesce(rate_windows[array_position(limit_names, k.limit_name)], 2678400), (
                        select override.rate_seconds from only :SCHEMA._private_limit_overrides as override
                        where override.limit_name = k.limit_name)) * interval '1 second' offset 0));
    delete from only :SCHEMA._private_limit_starts as start where start.key_id = any (keys);
    delete from only :SCHEMA._private_limit_keys as k where k.id = any (keys);
end
$$;

-- Locks the lanes that a claim looks at: the first ready lanes of all tasks together, without those that another claim
-- holds, and the next lanes of their keys if keys take turns. A few more than jobs are wanted: some may be full. Before
-- that, it makes lanes ready that wait for a time that has come; opened are the keys whose time has come.
create or replace function :SCHEMA._private_lock_lanes(
    of_tasks int[], forbidden_flags text[], max_jobs int, moment timestamptz,
    out lanes :SCHEMA._private_limit_lanes[], out opened bigint[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    most constant int := max_jobs + least(max_jobs, 8);
    retried constant bigint[] := array(
        select l.id from only :SCHEMA._private_limit_lanes as l
        where l.ready_at <= moment order by l.ready_at, l.id limit most for no key update skip locked);
begin
    opened := array(
        select k.id from only :SCHEMA._private_limit_keys as k
        where k.opens_at <= moment order by k.opens_at, k.id limit 20);
    if opened <> '{}' then
        perform :SCHEMA._private_wake_lanes(opened, array_fill(max_jobs, array[cardinality(opened)]), null);
    end if;
    if retried <> '{}' then
        perform :SCHEMA._private_make_ready(retried);
    end if;
    lanes := array(
        select lane.l
        from (
            select ready.lane_id
            from :SCHEMA._private_ready_lanes(of_tasks, forbidden_flags, most + 8) as ready
            order by ready.lane_priority, ready.place, ready.lane_run_at, ready.lane_id
            limit most + 8
        ) as first
        cross join lateral (
            select l from only :SCHEMA._private_limit_lanes as l
            where l.id = first.lane_id and l.state = 1 for no key update skip locked) as lane
        limit most);
    if exists (select from unnest(lanes) as lane where lane.turn_key is not null) then
        lanes := lanes || array(
            select lane.l
            from (
                select distinct l.turn_key, l.task_id, l.flags from unnest(lanes) as l where l.turn_key is not null
            ) as kind
            cross join lateral (
                select l from only :SCHEMA._private_limit_lanes as l
                where l.turn_key is not null and l.state in (1, 4) and l.turn_key = kind.turn_key
                    and l.task_id = kind.task_id and l.flags = kind.flags and l.state = 4
                order by l.priority, l.head_run_at, l.head_id
                limit ceil(max_jobs::float8 / cardinality(lanes))::int
                for no key update skip locked
            ) as lane);
    end if;
end
$$;

-- The lanes from which a job may start as far as their queues go: of the lanes of a free queue, which is locked here, only
-- that with the first job, and none while a job of the queue that is not parked comes before it. And the lanes of which
-- another transaction has locked the queue: a claim that may leave it as it is, and then nobody wakes them.
--
-- A lane that has the key of an unknown limit was filled by code in which the limit had another name, or the key was
-- deleted by hand. Its jobs are sorted again: they must not start without a limit.
create or replace function :SCHEMA._private_startable_lanes(
    lanes :SCHEMA._private_limit_lanes[], known_keys bigint[], of_tasks int[], forbidden_flags text[],
    moment timestamptz, out startable bigint[], out busy bigint[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    unknown_lanes constant bigint[] := array(
        select lane.id from unnest(lanes) as lane where not lane.key_ids <@ known_keys);
    queue_ids constant int[] := array(select lane.queue_id from unnest(lanes) as lane where lane.queue_id > 0);
    locked_queues int[]; busy_queues int[]; first_jobs bigint[];
begin
    if unknown_lanes <> '{}' then
        perform :SCHEMA._private_unpark_jobs(array(
            select w.job_id
            from unnest(unknown_lanes) as lane(id)
            cross join lateral (
                select w.job_id from only :SCHEMA._private_limited_jobs as w
                where w.lane_id = lane.id order by w.priority, w.run_at, w.job_id limit 100
            ) as w));
    end if;
    if queue_ids <> '{}' then
        locked_queues := array(
            select q.id from only :SCHEMA._private_job_queues as q
            where q.id = any (queue_ids) and q.is_available order by q.id for update skip locked);
        busy_queues := array(
            select q.id from only :SCHEMA._private_job_queues as q
            where q.id = any (queue_ids) and q.is_available and q.id <> all (locked_queues));
        first_jobs := array(
            select first.job_id from :SCHEMA._private_first_in_queues(
                locked_queues, of_tasks, forbidden_flags, moment) as first);
    end if;
    startable := array(
        select lane.id from unnest(lanes) as lane
        where not lane.id = any (unknown_lanes) and (lane.queue_id = 0 or lane.head_id = any (first_jobs)));
    busy := array(
        select lane.id from unnest(lanes) as lane
        where case when lane.id = any (unknown_lanes) then exists (
                -- Its first job is locked, and could not be sorted again.
                select from only :SCHEMA._private_limited_jobs as w
                where w.job_id = lane.head_id and w.lane_id = lane.id)
            else lane.queue_id = any (busy_queues) end);
end
$$;

-- The first jobs of these lanes, in the order in which they start: tasks take turns on a priority. Among the lanes of a task
-- the due time decides, or if keys take turns the round and the time of the last claim. The spots are the places of the
-- keys of the lane in a list of keys.
create or replace function :SCHEMA._private_limited_candidates(
    lanes :SCHEMA._private_limit_lanes[], of_keys bigint[], per_lane int,
    of_tasks int[], task_expiries float8[], moment timestamptz
) returns table (
    job_id bigint, revision int, is_expired boolean,
    lane_id bigint, task_id int, queue_id int, turn_key bigint, key_ids bigint[], spots int[]
)
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select entry.job_id, entry.revision, entry.is_expired,
        entry.lane_id, entry.task_id, entry.queue_id, entry.turn_key, entry.key_ids, entry.spots
    from (
        select head.*, row_number() over (
            partition by head.task_id
            order by head.priority, case when head.turn is not null then head.round end,
                coalesce(head.turn, head.run_at), head.run_at, head.job_id) as place
        from (
            select waiting.job_id, waiting.revision, waiting.priority, waiting.run_at,
                -- A millisecond later, so that the worker comes to the same result.
                coalesce(waiting.expires_at, waiting.run_at + interval '1 second' * lane.expires)
                    + interval '1 millisecond' < moment is true as is_expired,
                lane.id as lane_id, lane.task_id, lane.queue_id, lane.turn_key, lane.key_ids, lane.spots, lane.turn,
                row_number() over (
                    partition by coalesce(lane.turn_key, -lane.id)
                    order by waiting.priority, waiting.run_at, waiting.job_id) as round
            from (
                select l.id, l.task_id, l.queue_id, l.head_id, l.turn_key, l.key_ids,
                    task_expiries[array_position(of_tasks, l.task_id)] as expires,
                    array(select array_position(of_keys, key.id) from unnest(l.key_ids) as key(id)) as spots,
                    -- Not that of the lane: another lane of the key may have been served since.
                    case when l.turn_key is not null then coalesce((
                        select k.served_at from only :SCHEMA._private_limit_keys as k where k.id = l.turn_key
                    ), '-infinity') end as turn
                from unnest(lanes) as l offset 0
            ) as lane
            cross join lateral (
                select w.job_id, w.revision, w.priority, w.run_at, w.expires_at
                from only :SCHEMA._private_limited_jobs as w
                where w.lane_id = lane.id
                order by w.priority, w.run_at, w.job_id
                limit case when lane.queue_id > 0 then 1 else per_lane end
            ) as waiting
            -- If the first job of a lane is another by now, the lane may not be the first of its queue.
            where lane.queue_id = 0 or waiting.job_id = lane.head_id
        ) as head
    ) as entry
    order by entry.priority, entry.place, entry.run_at, entry.job_id;
end
$$;

-- Chooses jobs of these lanes as far as their keys have room, and locks them. The room of the keys afterwards comes back,
-- too, and the lanes of which a job could not be locked.
--
-- A job whose row another session has locked is left for a moment, and the next job of its lane is taken, if it has no
-- queue: a transaction that holds the first jobs of a lane for long must not hold up the others. A job that was changed,
-- or deleted, while it was parked is sorted again: it may have other keys.
--
-- A job that has expired is chosen, too, and not counted: the worker that gets it ends it.
create or replace function :SCHEMA._private_choose_limited(
    lanes :SCHEMA._private_limit_lanes[], max_jobs int, of_tasks int[], task_expiries float8[], moment timestamptz,
    inout keys :SCHEMA._private_key_room[], out chosen :SCHEMA._private_chosen_job[], out busy_lanes bigint[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    key_ids constant bigint[] := array(select key.key_id from unnest(keys) as key);
    looked :SCHEMA._private_limit_lanes[] := lanes;
    per_lane int := ceil(2.0 * max_jobs / greatest(cardinality(lanes), 1)) + 2;
    candidate record; spot int; is_allowed boolean; tried bigint[] := '{}'; failed bigint[];
begin
    chosen := '{}';
    busy_lanes := '{}';
    for attempt in 1..2 loop
        failed := '{}';
        for candidate in
            select each.* from :SCHEMA._private_limited_candidates(
                looked, key_ids, per_lane, of_tasks, task_expiries, moment) as each
            where not each.job_id = any (tried)
        loop
            exit when cardinality(chosen) >= max_jobs;
            is_allowed := true;
            foreach spot in array candidate.spots loop
                is_allowed := is_allowed and (candidate.is_expired or keys[spot].room > 0);
            end loop;
            continue when not is_allowed;
            tried := tried || candidate.job_id;
            perform from only :SCHEMA._private_jobs as j
            where j.id = candidate.job_id and j.is_available and j.run_at = 'infinity'
                and j.revision = candidate.revision and j.task_id = candidate.task_id
                and coalesce(j.job_queue_id, 0) = candidate.queue_id
            for update skip locked;
            if not found then
                failed := failed || candidate.job_id;
                continue;
            end if;
            chosen := chosen || row(candidate.job_id, candidate.lane_id, candidate.queue_id, candidate.turn_key,
                candidate.key_ids, not candidate.is_expired):::SCHEMA._private_chosen_job;
            if not candidate.is_expired then
                foreach spot in array candidate.spots loop
                    keys[spot].room := keys[spot].room - 1;
                end loop;
            end if;
        end loop;
        exit when failed = '{}';
        perform :SCHEMA._private_unpark_jobs(failed);
        busy_lanes := busy_lanes || array(
            select w.lane_id from only :SCHEMA._private_limited_jobs as w where w.job_id = any (failed));
        looked := array(select lane from unnest(lanes) as lane where lane.id = any (busy_lanes) and lane.queue_id = 0);
        per_lane := 1000;
    end loop;
end
$$;

-- Counts the chosen jobs: writes their places and their starts, and which keys have taken their turn.
create or replace function :SCHEMA._private_count_chosen(
    holder text, chosen :SCHEMA._private_chosen_job[], keys :SCHEMA._private_key_room[], moment timestamptz
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    place_keys constant bigint[] := array(select key.key_id from unnest(keys) as key where key.counts_places);
    started record;
begin
    insert into :SCHEMA._private_limit_places as known (key_id, job_id, token, taken_at)
    select key.id, job.job_id, holder, moment
    from unnest(chosen) as job cross join lateral unnest(job.key_ids) as key(id)
    where job.is_counted and key.id = any (place_keys)
    on conflict on constraint limit_places_pkey do update set token = excluded.token, taken_at = excluded.taken_at;
    update only :SCHEMA._private_limit_keys as k set served_at = moment
    where k.id = any (array(
        select distinct job.turn_key from unnest(chosen) as job where job.is_counted and job.turn_key is not null));
    for started in
        select key.key_id, key.rate_count, key.starts as before, key.starts + count(*) as after
        from unnest(chosen) as job
        cross join lateral unnest(job.key_ids) as job_key(id)
        join unnest(keys) as key on key.key_id = job_key.id
        where job.is_counted and key.rate_count is not null
        group by key.key_id, key.rate_count, key.starts
    loop
        update only :SCHEMA._private_limit_keys as k set starts = started.after where k.id = started.key_id;
        insert into :SCHEMA._private_limit_starts (key_id, number, started_at)
        select started.key_id, number, moment from generate_series(started.before + 1, started.after) as number;
        -- What no window needs any more. A few more than were added, if the rate has become lower.
        delete from only :SCHEMA._private_limit_starts as old
        where old.ctid = any (array(
            select start.ctid from only :SCHEMA._private_limit_starts as start
            where start.key_id = started.key_id and start.number <= started.after - started.rate_count
            order by start.number limit started.after - started.before + 100));
    end loop;
end
$$;

-- What becomes of the lanes after a claim: those of a full key wait for it, those that another lane of the queue comes
-- before, or that have a job in it, for their queue, and those whose first jobs are locked for a moment.
create or replace function :SCHEMA._private_settle_lanes(
    lanes :SCHEMA._private_limit_lanes[], startable bigint[], busy_lanes bigint[],
    chosen :SCHEMA._private_chosen_job[], keys :SCHEMA._private_key_room[], moment timestamptz
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    lane_ids constant bigint[] := array(select lane.id from unnest(lanes) as lane);
    full_keys constant bigint[] := array(select key.key_id from unnest(keys) as key where key.room < 1);
    used_queues constant int[] := array(select job.queue_id from unnest(chosen) as job);
    served_lanes constant bigint[] := array(select job.lane_id from unnest(chosen) as job);
    served_keys constant bigint[] := array(
        select job.turn_key from unnest(chosen) as job where job.is_counted and job.turn_key is not null);
    passed_queues int[];
begin
    with settled as (
        update only :SCHEMA._private_limit_lanes as lane
        set state = coming.state, blocked_by = case when coming.state = 2 then coming.full_key end,
            blocked_at = case when coming.state = 2 then
                case when lane.id = any (served_lanes) then moment else coalesce(lane.blocked_at, moment) end end,
            ready_at = case when coming.state = 3 and coming.is_busy then moment + interval '0.1 seconds' end,
            priority = coming.priority, head_run_at = coming.run_at, head_id = coming.head_id,
            turn = case when lane.turn_key is null then coming.run_at
                when lane.turn_key = any (served_keys) then moment else lane.turn end,
            sorted_at = case when coming.state = 0 then clock_timestamp() else lane.sorted_at end
        from (
            select l.id, coalesce(head.priority, l.priority) as priority, coalesce(head.run_at, l.head_run_at) as run_at,
                coalesce(head.job_id, l.head_id) as head_id, now_is.full_key, now_is.is_busy,
                case when head.job_id is null then 0 when now_is.full_key is not null then 2
                    when now_is.is_busy or now_is.waits_for_queue then 3 else l.state end as state
            from unnest(lanes) as l
            left join lateral (
                select w.priority, w.run_at, w.job_id from only :SCHEMA._private_limited_jobs as w
                where w.lane_id = l.id order by w.priority, w.run_at, w.job_id limit 1
            ) as head on true
            cross join lateral (
                select (select max(key.id) from unnest(l.key_ids) as key(id) where key.id = any (full_keys)) as full_key,
                    l.id = any (busy_lanes) and not l.id = any (served_lanes) as is_busy,
                    l.queue_id > 0 and (l.queue_id = any (used_queues) or not l.id = any (startable)) as waits_for_queue
            ) as now_is
        ) as coming
        where lane.id = any (lane_ids) and lane.id = coming.id and (
            coming.state <> lane.state or lane.id = any (served_lanes) or lane.head_id <> coming.head_id
            or lane.turn_key = any (served_keys))
        returning lane.id, lane.queue_id, lane.state
    )
    select array_agg(settled.queue_id) into passed_queues
    from settled
    where settled.queue_id > 0 and settled.state in (0, 2) and settled.id = any (startable)
        and not settled.queue_id = any (used_queues);
    -- The next lane of a queue whose first lane does not wait for the queue any more.
    if passed_queues is not null then
        perform :SCHEMA._private_wake_queues(passed_queues);
    end if;
    if exists (select from unnest(lanes) as lane where lane.turn_key is not null) then
        perform :SCHEMA._private_offer_turns(lane_ids);
    end if;
end
$$;

-- When keys without room open, if lanes wait for that: when the window has passed, or the key is not closed any more. Keys
-- with room make lanes ready that wait for them.
create or replace function :SCHEMA._private_settle_keys(
    keys :SCHEMA._private_key_room[], opened bigint[], moment timestamptz
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    key_ids constant bigint[] := array(select key.key_id from unnest(keys) as key);
begin
    update only :SCHEMA._private_limit_keys as k
    set opens_at = coming.opens_at
    from (
        select known.id, case when key.room < 1 and exists (
            select from only :SCHEMA._private_limit_lanes as l
            where l.state = 2 and l.blocked_by = known.id offset 0
        ) then greatest(
            case when known.closed_until > moment then known.closed_until end,
            (select start.started_at from only :SCHEMA._private_limit_starts as start
             where start.key_id = known.id and start.number = known.starts - key.rate_count + 1)
                + key.rate_seconds * interval '1 second',
            (select start.started_at from only :SCHEMA._private_limit_starts as start
             where start.key_id = known.id and start.number = known.starts - key.burst + 1)
                + key.burst_seconds * interval '1 second'
        ) end as opens_at
        from unnest(keys) as key
        cross join lateral (
            select k.id, k.starts, k.closed_until from only :SCHEMA._private_limit_keys as k
            where k.id = key.key_id offset 0) as known
        where key.room < 1 or key.key_id = any (opened)
    ) as coming
    where k.id = any (key_ids) and k.id = coming.id and k.opens_at is distinct from coming.opens_at;
    perform :SCHEMA._private_wake_lanes(array_agg(key.key_id), array_agg(key.room), moment)
    from unnest(keys) as key
    where key.room > 0 and exists (
        select from only :SCHEMA._private_limit_lanes as l where l.state = 2 and l.blocked_by = key.key_id offset 0);
end
$$;

-- How a worker claims limited jobs: one call, whose cost is in proportion to what it returns and to the number of limited
-- tasks. The claim itself counts: it holds the keys of the lanes that it looks at, so that no other claim counts them
-- at the same time, and writes the places and the starts of its jobs in its own transaction.
--
-- Only ready lanes are looked at, at most a few more than jobs are wanted. A lane that turns out to be full leaves the
-- ready lanes, and waits for the key that is full. It becomes ready again when a place of that key is freed, or when
-- its window has passed: each time as many lanes as can start a job. So each look at a lane in vain is paid for by a
-- job that was added or has ended.
--
-- The jobs of a queue start in order. A job that waits for a key is passed, as one that is not due.
--
-- The rows are like those of the claim of ordinary jobs, in no particular order; the last row has no id and a summary:
--
--   has_more             whether there may be more to claim at once
--   seconds_until_next   when a key opens, or a lane is to be looked at again; null if nothing of that kind is known
--   expired_at           by which time some of the jobs have expired, in seconds since 1970; null if none has
--
-- Parameters:
--
--   known_tasks           the ids of the limited tasks of the worker
--   task_expiries         for each of them, after how many seconds its jobs expire, or null
--   other_tasks           the ids of its other tasks
--   max_jobs              at most so many jobs
--   claimed_at            the time of the jobs, if another than that of the server
--   clock                 the time of windows and of closed keys in a test; null for the clock of the server
--   limit_names, ...      the numbers of each limit, unless an operator has stored others
create or replace function :SCHEMA._private_claim_limited(
    holder text, known_tasks int[], task_expiries float8[], other_tasks int[],
    max_jobs int, forbidden_flags text[], claimed_at timestamptz, clock timestamptz,
    limit_names text[], concurrencies int[], rate_counts int[], rate_windows float8[], bursts int[]
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
    this_moment constant timestamptz := coalesce(claimed_at, now());
    moment timestamptz := coalesce(clock, clock_timestamp());
    lanes :SCHEMA._private_limit_lanes[]; opened bigint[]; turn record; busy_lanes bigint[];
    all_keys bigint[]; keys :SCHEMA._private_key_room[];
    chosen :SCHEMA._private_chosen_job[] := '{}'; ids bigint[]; next_at timestamptz;
begin
    select locked.lanes, locked.opened into lanes, opened
    from :SCHEMA._private_lock_lanes(known_tasks, forbidden_flags, max_jobs, moment) as locked;
    if cardinality(lanes) > 0 or opened <> '{}' then
        -- All keys at once, in one order: a second round could deadlock with another claim.
        all_keys := array(
            select key.id from unnest(lanes) as lane cross join lateral unnest(lane.key_ids) as key(id)
            union select unnest(opened));
        perform from (
            select k.id from only :SCHEMA._private_limit_keys as k
            where k.id = any (all_keys) order by k.id for no key update) as locked;
        -- Not before the locks: the claim that held them may have started jobs meanwhile.
        moment := coalesce(clock, clock_timestamp());
        -- With room for one more than is wanted, so that a key without room afterwards is full.
        keys := array(select key from :SCHEMA._private_limit_rooms(
            all_keys, max_jobs + 1, moment, limit_names, concurrencies, rate_counts, rate_windows, bursts) as key);
        select * into turn from :SCHEMA._private_startable_lanes(
            lanes, array(select key.key_id from unnest(keys) as key where key.is_known),
            known_tasks || other_tasks, forbidden_flags, this_moment);
        select choice.keys, choice.chosen, choice.busy_lanes into keys, chosen, busy_lanes
        from :SCHEMA._private_choose_limited(
            array(select lane from unnest(lanes) as lane where lane.id = any (turn.startable)),
            max_jobs, known_tasks, task_expiries, coalesce(claimed_at, moment), keys) as choice;
        if cardinality(chosen) > 0 then
            perform :SCHEMA._private_count_chosen(holder, chosen, keys, moment);
            ids := array(select job.job_id from unnest(chosen) as job);
            update only :SCHEMA._private_job_queues as q
            set locked_by = holder, locked_at = this_moment
            where q.id = any (array(select job.queue_id from unnest(chosen) as job where job.queue_id > 0));
            return query
            update only :SCHEMA._private_jobs as job
            set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment, run_at = limited.run_at
            from only :SCHEMA._private_limited_jobs as limited
            where job.id = any (ids) and limited.job_id = any (ids) and limited.job_id = job.id
            returning job.id, job.task_id, job.attempts, job.payload::text, job.job_queue_id,
                job.priority, date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision,
                job.flags::text, job.last_error, date_part('epoch', job.created_at),
                date_part('epoch', job.updated_at), (
                    select q.queue_name from only :SCHEMA._private_job_queues as q where q.id = job.job_queue_id),
                null::json;
            delete from only :SCHEMA._private_limited_jobs as limited where limited.job_id = any (ids);
        end if;
        perform :SCHEMA._private_settle_lanes(
            lanes, turn.startable, busy_lanes || turn.busy, chosen, keys, moment);
        perform :SCHEMA._private_settle_keys(keys, opened, moment);
    end if;
    next_at := :SCHEMA._private_next_opening();
    job_id := null;
    summary := json_build_object(
        'has_more', exists (select from :SCHEMA._private_ready_lanes(known_tasks, forbidden_flags, 1)),
        'seconds_until_next', case when next_at is not null then greatest(date_part('epoch', next_at - moment), 0) end,
        'expired_at', case when exists (select from unnest(chosen) as job where not job.is_counted) then
            date_part('epoch', coalesce(claimed_at, moment)) end);
    return next;
end
$$;
