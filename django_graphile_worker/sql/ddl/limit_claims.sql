/* gw:install */
-- How a worker claims limited jobs: one call, whose cost is in proportion to what it returns and to the number of limited
-- tasks. The claim itself counts: it holds the keys of the lanes that it looks at, so that no other claim counts them
-- at the same time, and writes the places and the starts of its jobs in its own transaction.
--
-- Only ready lanes are looked at, at most a few more than jobs are wanted. A lane that turns out to be full leaves the
-- ready lanes, and waits for the key that is full. It becomes ready again when a place of that key is freed, or when
-- its window has passed: each time as many lanes as can start a job. So each look at a lane in vain is paid for by a
-- job that was added or has ended.
--
-- The jobs of a queue start in order: of its lanes, only that with the first job is taken, and none while a job of the
-- queue that is not parked comes before it. A job that waits for a key is passed, as one that is not due.
--
-- If keys take turns, one lane of each key is ready. The claim takes more lanes of the key along if there is room.
--
-- A job that has expired is claimed, too, and not counted: the worker that gets it ends it.
--
-- The rows are like those of the claim of ordinary jobs, in no particular order; the last row has no id and a summary:
--
--   has_more             whether there may be more to claim at once
--   seconds_until_next   when a key opens, or a lane is to be looked at again; null if nothing of that kind is known
--   start_within         within how many seconds the jobs must start, or be returned; null if no rate is involved
--   expired_at           by which time some of the jobs have expired, in seconds since 1970; null if none has
--
-- Parameters:
--
--   known_tasks, shapes   the ids of the limited tasks of the worker, and for each the number of its limits
--   task_expiries         for each of them, after how many seconds its jobs expire, or null
--   other_tasks           the ids of its other tasks
--   max_jobs              at most so many jobs
--   claimed_at            the time of the jobs, if another than that of the server
--   clock                 the time of windows and of closed keys in a test; null for the clock of the server
--   slack                 how many seconds more than the margin of a rate the worker needs to start a job, at most 5
--   limit_names, ...      the numbers of each limit, unless an operator has stored others
create function :SCHEMA._private_claim_limited_v1(
    holder text, known_tasks int[], shapes int[], task_expiries float8[], other_tasks int[],
    max_jobs int, forbidden_flags text[], claimed_at timestamptz, clock timestamptz, slack float8,
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
    most_lanes constant int := max_jobs + least(max_jobs, 8);
    moment timestamptz := coalesce(clock, clock_timestamp());
    opened bigint[]; retried bigint[]; locked bigint[]; has_turns boolean;
    -- The lanes that this claim has locked, in the order of their ids.
    lane_ids bigint[]; lane_tasks int[]; lane_queues int[]; lane_turn_keys bigint[]; lane_turns timestamptz[];
    lane_heads bigint[];
    -- The places of each lane's keys among held_keys, one after the other; where those of a lane begin, and how many.
    flat int[]; flat_from int[]; flat_count int[];
    all_keys bigint[]; free_queues int[]; used_queues int[] := '{}';
    -- The first lanes of free queues, unless another job comes first.
    first_queues int[]; first_lanes bigint[];
    held_keys bigint[]; rooms int[]; counts_places boolean[]; keep_starts int[]; margins float8[];
    windows float8[]; burst_counts int[]; burst_windows float8[];
    per_lane int; candidate record; is_allowed boolean; place int;
    chosen_ids bigint[] := '{}'; chosen_revisions int[] := '{}'; chosen_lanes int[] := '{}';
    chosen_are_counted boolean[] := '{}';
    locked_ids bigint[]; failed bigint[]; unparked bigint[]; busy_lanes int[] := '{}'; busy int;
    wanted int;
    claimed_lanes int[]; claimed_ids bigint[]; claimed_are_counted boolean[]; served_keys bigint[];
    blocked bigint[] := '{}'; waits timestamptz[] := '{}';
    started_keys bigint[]; started_kept int[]; started_counts int[];
    start_within float8; has_more boolean; next_at timestamptz;
begin
    -- Keys whose time has come, and lanes that are to be looked at again.
    opened := array(
        select k.id from only :SCHEMA._private_limit_keys as k
        where k.opens_at <= moment order by k.opens_at, k.id limit 20);
    if opened <> '{}' then
        perform :SCHEMA._private_wake_lanes_v1(opened, array_fill(max_jobs, array[cardinality(opened)]));
    end if;
    retried := array(
        select l.id from only :SCHEMA._private_limit_lanes as l
        where l.state = 3 and l.ready_at <= moment order by l.ready_at, l.id limit most_lanes
        for no key update skip locked);
    if retried <> '{}' then
        perform :SCHEMA._private_make_ready_v1(retried);
    end if;

    -- The first ready lanes of all tasks together, without those that another claim holds, and the next lanes of their
    -- keys if keys take turns.
    select array_agg(lane.id), bool_or(lane.turn_key is not null) into locked, has_turns
    from (
        select lane.id, lane.turn_key
        from (
            select ready.lane_id
            from :SCHEMA._private_ready_lanes_v1(known_tasks, shapes, forbidden_flags, most_lanes + 8) as ready
            order by ready.lane_priority, ready.place, ready.lane_run_at, ready.lane_id
            limit most_lanes + 8
        ) as first
        cross join lateral (
            select l.id, l.turn_key from only :SCHEMA._private_limit_lanes as l
            where l.id = first.lane_id and l.state = 1 for no key update skip locked) as lane
        limit most_lanes
    ) as lane;
    locked := locked || array(
        select lane.id
        from (
            select distinct l.turn_key, l.task_id, l.shape, l.flags
            from only :SCHEMA._private_limit_lanes as l
            where has_turns and l.id = any (locked) and l.turn_key is not null
        ) as kind
        cross join lateral (
            select l.id from only :SCHEMA._private_limit_lanes as l
            where l.turn_key is not null and l.state in (1, 4) and l.turn_key = kind.turn_key
                and l.task_id = kind.task_id and l.shape = kind.shape and l.flags = kind.flags and l.state = 4
            order by l.priority, l.head_run_at, l.head_id limit ceil(max_jobs::float8 / cardinality(locked))::int
            for no key update skip locked
        ) as lane);
    select array_agg(lane.id order by lane.id), array_agg(lane.task_id order by lane.id),
        array_agg(lane.queue_id order by lane.id), array_agg(lane.turn_key order by lane.id),
        array_agg(lane.head_id order by lane.id)
    into lane_ids, lane_tasks, lane_queues, lane_turn_keys, lane_heads
    from only :SCHEMA._private_limit_lanes as lane
    where lane.id = any (locked);

    if lane_ids is not null or opened <> '{}' then
        lane_ids := coalesce(lane_ids, '{}');
        -- All keys at once, in one order: a second round could deadlock with another claim.
        select array_agg(distinct needed.id) into all_keys
        from (
            select unnest(l.key_ids) as id from only :SCHEMA._private_limit_lanes as l where l.id = any (lane_ids)
            union all
            select unnest(opened)
        ) as needed;
        perform from (
            select k.id from only :SCHEMA._private_limit_keys as k
            where k.id = any (all_keys) order by k.id for no key update) as locked;
        -- Not before the locks: the claim that held them may have started jobs meanwhile.
        moment := coalesce(clock, clock_timestamp());
        select r.key_ids, r.rooms, r.counts_places, r.keep_starts, r.margins, r.windows, r.burst_counts, r.burst_windows
        into held_keys, rooms, counts_places, keep_starts, margins, windows, burst_counts, burst_windows
        -- With room for one more than is wanted, so that a key without room afterwards is full.
        from :SCHEMA._private_limit_rooms_v1(
            all_keys, max_jobs + 1, moment, limit_names, concurrencies, rate_counts, rate_windows, bursts) as r;
        held_keys := coalesce(held_keys, '{}');
        select array_agg(spot.place order by spot.number, spot.key_id) into flat
        from (
            select lane.number, key.id as key_id, array_position(held_keys, key.id) as place
            from unnest(lane_ids) with ordinality as lane(id, number)
            cross join lateral (
                select unnest(l.key_ids) as id from only :SCHEMA._private_limit_lanes as l
                where l.id = lane.id offset 0) as key
        ) as spot;
        select array_agg(sized.behind - sized.keys order by sized.number), array_agg(sized.keys order by sized.number)
        into flat_from, flat_count
        from (
            select lane.number, l.keys, sum(l.keys) over (order by lane.number) as behind
            from unnest(lane_ids) with ordinality as lane(id, number)
            cross join lateral (
                select cardinality(l.key_ids) as keys from only :SCHEMA._private_limit_lanes as l
                where l.id = lane.id offset 0) as l
        ) as sized;
        if array_position(flat, null) is not null then
            -- A key is gone, which only a change by hand can do: the jobs are sorted again.
            perform :SCHEMA._private_unpark_jobs_v1(array(
                select w.job_id
                from unnest(lane_ids) with ordinality as lane(id, number)
                cross join lateral (
                    select w.job_id from only :SCHEMA._private_limited_jobs as w
                    where w.lane_id = lane.id order by w.priority, w.run_at, w.job_id limit 100
                ) as w
                where array_position(flat[flat_from[lane.number] + 1:flat_from[lane.number] + flat_count[lane.number]],
                    null) is not null));
        end if;
        lane_turns := array(
            select key.served_at
            from unnest(lane_turn_keys) with ordinality as lane(turn_key, number)
            left join lateral (
                select coalesce(k.served_at, '-infinity') as served_at from only :SCHEMA._private_limit_keys as k
                where k.id = lane.turn_key offset 0) as key on true
            order by lane.number);
        free_queues := array(
            select q.id from only :SCHEMA._private_job_queues as q
            where q.id = any (lane_queues) and q.is_available order by q.id for update skip locked);
        if free_queues <> '{}' then
            select array_agg(first.queue_id), array_agg(first.lane_id) into first_queues, first_lanes
            from :SCHEMA._private_first_in_queues_v1(
                free_queues, other_tasks, known_tasks, shapes, forbidden_flags, this_moment) as first
            where first.lane_id is not null;
        end if;
        first_lanes := coalesce(first_lanes, '{}');

        -- The first jobs of the lanes, in the order in which they start: tasks take turns on a priority. Among the lanes
        -- of a task the due time decides, or if they take turns the round and the time of the last claim.
        per_lane := ceil(2.0 * max_jobs / greatest(cardinality(lane_ids), 1)) + 2;
        for candidate in
            select entry.lane, entry.job_id, entry.revision, entry.is_expired
            from (
                select head.lane, head.job_id, head.revision, head.priority, head.run_at, head.is_expired,
                    row_number() over (
                        partition by head.task_id
                        order by head.priority, case when head.turn is not null then head.round end,
                            coalesce(head.turn, head.run_at), head.run_at, head.job_id) as place
                from (
                    select lane.number::int as lane, lane.task_id, lane.turn, waiting.job_id, waiting.revision,
                        waiting.priority, waiting.run_at,
                        -- A millisecond later, so that the worker comes to the same result.
                        coalesce(waiting.expires_at, waiting.run_at + interval '1 second' * task_expiries[
                            array_position(known_tasks, lane.task_id)]) + interval '1 millisecond'
                            < coalesce(claimed_at, moment) is true as is_expired,
                        row_number() over (
                            partition by coalesce(lane.turn_key, -lane.number)
                            order by waiting.priority, waiting.run_at, waiting.job_id) as round
                    from unnest(lane_ids, lane_tasks, lane_queues, lane_turn_keys, lane_turns, lane_heads) with ordinality
                        as lane(id, task_id, queue_id, turn_key, turn, head_id, number)
                    cross join lateral (
                        select w.job_id, w.revision, w.priority, w.run_at, w.expires_at
                        from only :SCHEMA._private_limited_jobs as w
                        where w.lane_id = lane.id
                        order by w.priority, w.run_at, w.job_id
                        limit case when lane.queue_id > 0 then 1 else per_lane end
                    ) as waiting
                    -- If the first job of a lane is another by now, the lane may not be the first of its queue.
                    where lane.queue_id = 0 or lane.id = any (first_lanes) and waiting.job_id = lane.head_id
                ) as head
            ) as entry
            order by entry.priority, entry.place, entry.run_at, entry.job_id
        loop
            exit when cardinality(chosen_ids) >= max_jobs;
            is_allowed := true;
            for spot in flat_from[candidate.lane] + 1 .. flat_from[candidate.lane] + flat_count[candidate.lane] loop
                -- A key that is not there any more does not allow anything.
                is_allowed := is_allowed and coalesce(candidate.is_expired or rooms[flat[spot]] > 0, false);
            end loop;
            if is_allowed then
                chosen_ids := chosen_ids || candidate.job_id;
                chosen_revisions := chosen_revisions || candidate.revision;
                chosen_lanes := chosen_lanes || candidate.lane;
                chosen_are_counted := chosen_are_counted || not candidate.is_expired;
                for spot in flat_from[candidate.lane] + 1 .. flat_from[candidate.lane] + flat_count[candidate.lane] loop
                    rooms[flat[spot]] := rooms[flat[spot]] - (not candidate.is_expired)::int;
                end loop;
                if lane_queues[candidate.lane] > 0 then
                    used_queues := used_queues || lane_queues[candidate.lane];
                end if;
            end if;
        end loop;

        -- A job whose row another session has locked is left for a moment, and the next job of its lane is taken. A job
        -- that was changed, or deleted, while it was parked is sorted again: it may have other keys.
        select array_agg(job.id), array_agg(chosen.lane), array_agg(chosen.is_counted)
        into claimed_ids, claimed_lanes, claimed_are_counted
        from unnest(chosen_ids, chosen_revisions, chosen_lanes, chosen_are_counted)
            as chosen(id, revision, lane, is_counted)
        cross join lateral (
            select j.id from only :SCHEMA._private_jobs as j
            where j.id = chosen.id and j.is_available and j.run_at = 'infinity' and j.revision = chosen.revision
                and j.task_id = lane_tasks[chosen.lane] and coalesce(j.job_queue_id, 0) = lane_queues[chosen.lane]
            for update skip locked
        ) as job;
        claimed_ids := coalesce(claimed_ids, '{}');
        claimed_lanes := coalesce(claimed_lanes, '{}');
        if cardinality(claimed_ids) < cardinality(chosen_ids) then
            failed := array(select chosen.id from unnest(chosen_ids) as chosen(id) where not chosen.id = any (claimed_ids));
            perform :SCHEMA._private_unpark_jobs_v1(failed);
            for place in 1 .. cardinality(chosen_ids) loop
                if not chosen_ids[place] = any (claimed_ids) then
                    for spot in flat_from[chosen_lanes[place]] + 1
                            .. flat_from[chosen_lanes[place]] + flat_count[chosen_lanes[place]] loop
                        rooms[flat[spot]] := rooms[flat[spot]] + chosen_are_counted[place]::int;
                    end loop;
                    used_queues := array_remove(used_queues, lane_queues[chosen_lanes[place]]);
                    if exists (select from only :SCHEMA._private_limited_jobs as w where w.job_id = chosen_ids[place]) then
                        busy_lanes := busy_lanes || chosen_lanes[place];
                    end if;
                end if;
            end loop;
            -- A transaction that holds the first jobs of a lane for long must not hold up the others, but for those of
            -- the same queue.
            foreach busy in array array(select distinct unnest(busy_lanes)) loop
                continue when lane_queues[busy] > 0;
                wanted := max_jobs - cardinality(claimed_ids);
                for spot in flat_from[busy] + 1 .. flat_from[busy] + flat_count[busy] loop
                    wanted := least(wanted, rooms[flat[spot]]);
                end loop;
                for candidate in
                    select job.id
                    from (
                        select w.job_id, w.revision from only :SCHEMA._private_limited_jobs as w
                        where w.lane_id = lane_ids[busy] and not w.job_id = any (chosen_ids)
                        order by w.priority, w.run_at, w.job_id limit 1000
                    ) as waiting
                    cross join lateral (
                        select j.id from only :SCHEMA._private_jobs as j
                        where j.id = waiting.job_id and j.is_available and j.run_at = 'infinity'
                            and j.revision = waiting.revision and j.task_id = lane_tasks[busy]
                            and j.job_queue_id is null
                        for update skip locked
                    ) as job
                    limit greatest(wanted, 0)
                loop
                    claimed_ids := claimed_ids || candidate.id;
                    claimed_lanes := claimed_lanes || busy;
                    claimed_are_counted := claimed_are_counted || true;
                    for spot in flat_from[busy] + 1 .. flat_from[busy] + flat_count[busy] loop
                        rooms[flat[spot]] := rooms[flat[spot]] - 1;
                    end loop;
                end loop;
            end loop;
        end if;

        if claimed_ids <> '{}' then
            -- The places and the starts.
            insert into :SCHEMA._private_limit_places as known (key_id, job_id, token, taken_at)
            select held_keys[flat[spot.number]], claimed.id, holder, moment
            from unnest(claimed_ids, claimed_lanes, claimed_are_counted) as claimed(id, lane, is_counted)
            cross join lateral generate_series(
                flat_from[claimed.lane] + 1, flat_from[claimed.lane] + flat_count[claimed.lane]) as spot(number)
            where counts_places[flat[spot.number]] and claimed.is_counted
            on conflict on constraint limit_places_pkey do update set token = excluded.token, taken_at = excluded.taken_at;
            select array_agg(started.key_id), array_agg(started.kept), array_agg(started.starts), min(started.margin)
            into started_keys, started_kept, started_counts, start_within
            from (
                select held_keys[flat[spot.number]] as key_id, max(keep_starts[flat[spot.number]]) as kept,
                    min(margins[flat[spot.number]]) as margin, count(*)::int as starts
                from unnest(claimed_lanes, claimed_are_counted) as claimed(lane, is_counted)
                cross join lateral generate_series(
                    flat_from[claimed.lane] + 1, flat_from[claimed.lane] + flat_count[claimed.lane]) as spot(number)
                where keep_starts[flat[spot.number]] is not null and claimed.is_counted
                group by 1
            ) as started;
            if started_keys is not null then
                with counted as (
                    update only :SCHEMA._private_limit_keys as k
                    set starts = k.starts + started_counts[array_position(started_keys, k.id)]
                    where k.id = any (started_keys)
                    returning k.id, k.starts, started_counts[array_position(started_keys, k.id)] as added
                )
                insert into :SCHEMA._private_limit_starts (key_id, number, started_at)
                -- Windows begin when the job may still start, but for the margin that they are longer by.
                select counted.id, number, moment + slack * interval '1 second'
                from counted
                cross join lateral generate_series(counted.starts - counted.added + 1, counted.starts) as number;
                -- What no window needs any more. A few more than were added, if the rate has become lower.
                delete from only :SCHEMA._private_limit_starts as old
                where old.ctid = any (array(
                    select over.tid
                    from unnest(started_keys, started_kept, started_counts) as started(key_id, kept, starts)
                    cross join lateral (
                        select k.starts from only :SCHEMA._private_limit_keys as k
                        where k.id = started.key_id offset 0) as key
                    cross join lateral (
                        select start.ctid as tid from only :SCHEMA._private_limit_starts as start
                        where start.key_id = started.key_id and start.number <= key.starts - started.kept
                        order by start.number limit started.starts + 100
                    ) as over));
            end if;
            select array_agg(distinct lane_turn_keys[claimed.lane]) into served_keys
            from unnest(claimed_lanes, claimed_are_counted) as claimed(lane, is_counted)
            where lane_turn_keys[claimed.lane] is not null and claimed.is_counted;
            update only :SCHEMA._private_limit_keys as k set served_at = moment where k.id = any (served_keys);
            update only :SCHEMA._private_job_queues as q
            set locked_by = holder, locked_at = this_moment
            where q.id = any (used_queues);
            return query
            update only :SCHEMA._private_jobs as job
            set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment, run_at = limited.run_at
            from only :SCHEMA._private_limited_jobs as limited
            where job.id = any (claimed_ids) and limited.job_id = any (claimed_ids) and limited.job_id = job.id
            returning job.id, job.task_id, job.attempts, job.payload::text, job.job_queue_id,
                job.priority, date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision,
                job.flags::text, job.last_error, date_part('epoch', job.created_at),
                date_part('epoch', job.updated_at), (
                    select q.queue_name from only :SCHEMA._private_job_queues as q where q.id = job.job_queue_id),
                null::json;
            delete from only :SCHEMA._private_limited_jobs as limited where limited.job_id = any (claimed_ids);
        end if;

        -- What becomes of the lanes: those of a full key wait for it.
        for lane in 1 .. cardinality(lane_ids) loop
            place := null;
            for spot in flat_from[lane] + 1 .. flat_from[lane] + flat_count[lane] loop
                if rooms[flat[spot]] < 1 then
                    place := flat[spot];
                end if;
            end loop;
            blocked := blocked || held_keys[place];
            waits := waits || case
                when lane_queues[lane] > 0 and (
                    lane_queues[lane] = any (used_queues) or not lane_ids[lane] = any (first_lanes))
                    -- Whoever frees the queue makes its first lane ready, and the sweep if nobody did. The time is for what
                    -- both miss: thousands of lanes of held queues must not come before others again and again.
                    then moment + (0.5 + random()) * interval '1 minute'
                when lane = any (busy_lanes) and not lane = any (claimed_lanes) then moment + interval '0.1 seconds' end;
        end loop;
        update only :SCHEMA._private_limit_lanes as lane
        set state = coming.state, blocked_by = coming.blocked_by,
            blocked_at = case when coming.state in (2, 3) then case
                when coming.is_served then moment else coalesce(lane.blocked_at, moment) end end,
            ready_at = coming.ready_at, priority = coming.priority, head_run_at = coming.run_at, head_id = coming.head_id,
            turn = case when lane.turn_key is null then coming.run_at
                when lane.turn_key = any (served_keys) then moment else lane.turn end,
            sorted_at = case when coming.state = 0 then clock_timestamp() else lane.sorted_at end
        from (
            select l.id, coalesce(head.priority, l.priority) as priority, coalesce(head.run_at, l.head_run_at) as run_at,
                coalesce(head.job_id, l.head_id) as head_id,
                case when head.priority is null then 0 when settled.blocked_by is not null then 2
                    when settled.ready_at is not null then 3 else l.state end as state,
                case when head.priority is not null then settled.blocked_by end as blocked_by,
                case when head.priority is not null and settled.blocked_by is null then settled.ready_at end as ready_at,
                settled.number = any (claimed_lanes) as is_served
            from unnest(lane_ids, blocked, waits) with ordinality as settled(id, blocked_by, ready_at, number)
            cross join lateral (
                select l.id, l.state, l.priority, l.head_run_at, l.head_id from only :SCHEMA._private_limit_lanes as l
                where l.id = settled.id offset 0) as l
            left join lateral (
                select w.priority, w.run_at, w.job_id from only :SCHEMA._private_limited_jobs as w
                where w.lane_id = l.id order by w.priority, w.run_at, w.job_id limit 1
            ) as head on true
        ) as coming
        where lane.id = any (lane_ids) and lane.id = coming.id and (
            coming.state <> lane.state or coming.is_served or lane.head_id <> coming.head_id
            or lane.turn_key = any (served_keys));
        -- Of a queue whose first lane does not wait for it any more, the next.
        perform :SCHEMA._private_wake_queues_v1(array_agg(first.queue_id))
        from unnest(first_queues, first_lanes) as first(queue_id, lane_id)
        where not first.queue_id = any (used_queues) and not exists (
            select from only :SCHEMA._private_limit_lanes as l
            where l.id = first.lane_id and l.id = any (lane_ids) and l.state in (1, 3, 4) offset 0);
        if has_turns then
            perform :SCHEMA._private_offer_turns_v1(lane_ids);
        end if;

        -- A key without room opens when its window has passed, or when it is not closed any more.
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
                    + key.seconds * interval '1 second',
                (select start.started_at from only :SCHEMA._private_limit_starts as start
                 where start.key_id = known.id and start.number = known.starts - key.burst + 1)
                    + key.burst_seconds * interval '1 second'
            ) end as opens_at
            from unnest(held_keys, rooms, keep_starts, windows, burst_counts, burst_windows)
                as key(id, room, rate_count, seconds, burst, burst_seconds)
            cross join lateral (
                select k.id, k.starts, k.closed_until from only :SCHEMA._private_limit_keys as k
                where k.id = key.id offset 0) as known
            where key.room < 1 or key.id = any (opened)
        ) as coming
        where k.id = any (held_keys) and k.id = coming.id and k.opens_at is distinct from coming.opens_at;
        -- A key with room makes lanes ready that wait for it.
        perform :SCHEMA._private_attend_to_keys_v1(
            array_agg(key.id), array_agg(key.room), moment)
        from unnest(held_keys, rooms) as key(id, room)
        where key.room > 0 and exists (
            select from only :SCHEMA._private_limit_lanes as l where l.state = 2 and l.blocked_by = key.id offset 0);
    end if;

    has_more := exists (select from :SCHEMA._private_ready_lanes_v1(known_tasks, shapes, forbidden_flags, 1));
    next_at := least(
        (select k.opens_at from only :SCHEMA._private_limit_keys as k
         where k.opens_at is not null order by k.opens_at, k.id limit 1),
        (select l.ready_at from only :SCHEMA._private_limit_lanes as l
         where l.state = 3 order by l.ready_at, l.id limit 1));
    job_id := null;
    summary := json_build_object(
        'has_more', has_more,
        'seconds_until_next', case when next_at is not null then
            greatest(date_part('epoch', next_at - moment), 0) end,
        'start_within', start_within + slack,
        'expired_at', case when false = any (claimed_are_counted) then
            date_part('epoch', coalesce(claimed_at, moment)) end);
    return next;
end
$$;
