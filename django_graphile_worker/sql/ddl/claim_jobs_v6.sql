/* gw:install */
-- How a worker claims jobs: one call, whose cost is in proportion to what it returns.
--
-- The claim goes through the priorities from the lowest number up. The index of the
-- original that begins with the priority tells in one probe per priority whether
-- anything is due there. On such a priority each task has a range of its own in an index
-- that begins with the task, bounded by the due time, so that neither future jobs nor
-- the jobs of unknown tasks are read. A named queue is claimed as a whole, with several
-- of its jobs in order.
--
-- Two things can stand before the jobs that may be claimed: jobs with a forbidden flag,
-- and jobs of queues that are held. The claim looks at a bounded number of them. Where
-- that is not enough it walks: from one queue with due jobs to the next, or on through
-- the jobs, a bounded way per claim. A walk that has not come to its end is continued by
-- the next claim, at the place that the summary of this one states.
--
-- While a snapshot is held, or until a vacuum, the entries of claimed and deleted jobs
-- stay in the indexes, and a scan reads the row of each. A claim can therefore begin at a
-- floor: a place on a priority before which the worker has seen all jobs. What comes in
-- before the floor is found by claims of the range between an earlier floor and a later one.
--
-- Several workers claim from a long backlog at the same time. The scans of a claim of many
-- jobs pass over rows that a running transaction has locked or changed (xmax), before they
-- try to lock them. A try costs five times as much as the scan of a row, and it has another
-- effect: if the other claim commits after the snapshot of this one, the try locks the
-- version of the row that the other has written, until this claim ends, and the other worker
-- cannot delete the row meanwhile. A claim that does not find enough without these rows
-- tries them: some may be free again, or changed and still due. So does a claim in a
-- transaction that has written before, because it may have locked rows itself.
--
-- Ranges: lower bounds are comparisons of rows, upper bounds are plain comparisons.
-- Before PostgreSQL 18 a comparison of rows does not end the scan of an index.
--
-- Planner settings are pinned: each statement has one right plan, and stale statistics
-- right after a bulk load must not change it. The order by clauses name all columns down
-- to the id for the same reason: only one index has that order.
--
-- The updates name the key, which they do not change. For a column that an update does not
-- name, PostgreSQL expects the full pages of an index to hold versions of rows that can be
-- removed, and looks for them in the table before it splits a page. Here it never finds
-- one, because the old versions are those of this very statement; the search takes a sixth
-- of the time of a claim of many jobs.

-- The claim. Job rows come back in no particular order. The last row has no id and a
-- summary:
--
--   has_more               whether there may be more to claim at once
--   is_heavy               whether the payloads were too large to claim as much as was wanted
--   is_hidden              whether something may be left that only a walk finds, and there was none
--   seconds_until_next     when the next job falls due, if everything was seen; in seconds, as the worker's clock
--                          may differ from the server's
--   walk                   where the next claim continues a walk
--   levels                 the priorities on which it looked
--   queued_floors          for each of these, the time of the first job in a queue that was there before the claim,
--                          null if there was none
--   looked_at              the time up to which jobs were due, by the clock of the server if another is ahead of it
--   pages                  how many pages of the table it read before it came to the first job on each priority; null
--                          if the server does not count them (track_counts)
--
-- Parameters:
--
--   known_tasks            the ids of the worker's tasks; known_ranges has the same, to look one up among thousands
--   max_jobs, max_queues   at most so many jobs, of at most so many queues
--   stretch                of one queue at most so many jobs
--   free_slots, max_bytes  the payloads of jobs beyond the free slots have so many bytes together
--   max_steps              how far a walk may go in this claim; 0 for no walk
--   floor_*                priorities in order, and for each the place, of jobs without a queue and of jobs in queues,
--                          before which this claim does not look
--   floor_*ends, *end_ids  if given, look at a slice: on the priorities of the floors only, and on each at jobs without
--                          a queue, and jobs in queues, up to these places; floor_ids are of both kinds of jobs then
--   walk                   the place of the last claim's summary
--   limited_tasks, *shapes the ids of the limited tasks of the worker, and for each the number of its limits; null if it has
--                          none. A job of a queue does not start before a limited job of the queue that comes first.
create function :SCHEMA._private_claim_jobs_v6(
    holder text, known_tasks int[], known_ranges int4multirange,
    max_jobs int, max_queues int, stretch int, free_slots int, max_bytes bigint, max_steps int,
    forbidden_flags text[], claimed_at timestamptz,
    floor_priorities int[], floor_run_ats float8[], floor_ids bigint[], floor_queued_run_ats float8[],
    floor_ends float8[], floor_end_ids bigint[], floor_queued_ends float8[], floor_queued_end_ids bigint[], walk json,
    limited_tasks int[], limited_shapes int[]
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
    -- Jobs are due until then: on each priority of a slice, until its end.
    due_at timestamptz := this_moment; queued_due_at timestamptz := this_moment;
    last_possible_id constant bigint := 9223372036854775807;
    due_id bigint := last_possible_id; queued_due_id bigint := last_possible_id;
    has_few_tasks constant boolean := cardinality(known_tasks) <= 8;
    -- Kinds of walks in the order in which they are made on a priority.
    flagged_walk constant int := 1; queue_walk constant int := 2; queued_walk constant int := 3;
    remaining int := max_jobs;
    queues_left int := max_queues;
    uncounted_left int := free_slots;
    bytes_left bigint := max_bytes;
    is_heavy boolean := false; has_more boolean := false; is_hidden boolean := false; must_wait boolean := false;
    -- Priorities.
    level int := -32769;
    ceiling int;
    levels int[]; passed_levels int[] := '{}'; level_run_at timestamptz;
    floors constant int := coalesce(cardinality(floor_priorities), 0);
    next_floor int := 1; has_floor boolean;
    -- Whether all of the slice has one due time.
    is_moment boolean;
    -- The times of the first jobs in queues.
    queued_from timestamptz; queued_from_id bigint; first_queued timestamptz; queued_floors float8[] := '{}';
    floor_levels int[] := '{}';
    -- Tasks with due jobs on a priority, and tasks with any jobs, in each of the three kinds of jobs.
    unqueued_tasks int[]; flagged_tasks int[]; queued_tasks int[];
    present_unqueued int[]; present_flagged int[]; present_queued int[];
    most_seen int; seen int; claimable int;
    -- Whether only the tasks of the first due jobs were looked at, and the priority on which that was not enough.
    is_partial boolean := false; whole_level int;
    -- Jobs without a queue come after this place.
    passed_run_at timestamptz; passed_id bigint;
    -- Flagged jobs: sets of flags that are allowed, or jobs that a look found.
    allowed_tasks int[]; allowed_flags jsonb[];
    flagged_tids tid[]; flagged_run_ats timestamptz[]; flagged_ids bigint[];
    flagged_end_run_at timestamptz; flagged_end_id bigint; flagged_is_cut boolean; flagged_looks int;
    -- Queues that a look or a walk found.
    picked_queues int[]; picked_run_ats timestamptz[]; picked_ids bigint[];
    queued_end_run_at timestamptz; queued_end_id bigint; queued_is_cut boolean; queued_looks int;
    -- What a round merges comes after this place among found jobs and queues.
    merged_run_at timestamptz; merged_id bigint;
    per_task int; per_queue int; candidates int; bound_run_at timestamptz; bound_id bigint; last_run_at timestamptz; last_id bigint;
    chosen_jobs tid[]; chosen_run_ats timestamptz[]; chosen_ids bigint[]; chosen_queues int[]; locked_jobs tid[]; kept_jobs tid[]; held_queues int[]; kept_queues int[];
    line_tids tid[]; line_queues int[]; line_places int[]; sorted_tids tid[];
    -- Queues with a job that another transaction has locked, and whether the round met one.
    stuck_queues int[] := '{}'; is_stuck boolean; is_filled boolean;
    -- The first limited job of each chosen queue.
    limited_queues int[]; limited_priorities smallint[]; limited_run_ats timestamptz[]; limited_ids bigint[];
    -- The names of the queues that the round takes, by their ids. A look-up for each job would take a tenth of the claim.
    queue_names jsonb;
    bytes bigint; taken int; is_found boolean;
    -- Transactions that write at the moment; empty if every row is tried.
    running xid[] := '{}';
    -- The place of the walk.
    steps_left int := max_steps;
    walk_priority int := (walk->>'priority')::int;
    walk_kind int := (walk->>'kind')::int;
    walk_is_cut boolean := false;
    walk_end json;
    -- Whether this claim has walked, and whether it has passed over walks because the place lies behind them.
    has_walked boolean := false; has_passed_walks boolean := false;
    -- Whether a walk has found something, which a full claim may have left.
    has_finds boolean := false;
    walk_task int; walk_period float8; walk_queue int; walk_run_at timestamptz; walk_id bigint;
    next_run_at timestamptz;
    -- The server counts pages for its statistics.
    pages bigint := 0; pages_before bigint;
begin
    if max_jobs >= 100 and pg_current_xact_id_if_assigned() is null then
        running := array(
            select each.id::xid from pg_snapshot_xip(pg_current_snapshot()) as each(id)
            union all
            -- The snapshot does not list transactions that are newer than all that have ended.
            select (each.number % 4294967296)::text::xid
            from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as number) as next
            cross join generate_series(next.number, next.number + 15) as each(number));
    end if;
    while remaining > 0 and not is_heavy loop
        -- The next priority on which anything is due: one probe for each priority. Priorities with a floor are not probed.
        pages_before := pg_stat_get_xact_blocks_fetched(':SCHEMA._private_jobs'::regclass);
        ceiling := case when next_floor <= floors then floor_priorities[next_floor] else 32768 end;
        level_run_at := null;
        if floor_ends is null then
            select j.priority, j.run_at into level, level_run_at from only :SCHEMA._private_jobs as j
            where j.is_available and j.priority > level and j.priority < ceiling
            order by j.priority, j.run_at limit 1;
        else
            level := null;
        end if;
        if level_run_at <= due_at then
            passed_levels := passed_levels || level;
        elsif level is not null then
            with recursive step (priority, run_at) as (
                select level, level_run_at
                union all
                select ahead.priority, ahead.run_at
                from step
                cross join lateral (
                    select j.priority, j.run_at from only :SCHEMA._private_jobs as j
                    where j.is_available and j.priority > step.priority and j.priority < ceiling
                    order by j.priority, j.run_at limit 1
                ) as ahead
                where step.run_at > due_at
            )
            select array_agg(step.priority), max(step.priority) filter (where step.run_at <= due_at)
            into levels, level from step;
            passed_levels := passed_levels || levels;
        end if;
        has_floor := level is null and next_floor <= floors;
        passed_run_at := '-infinity';
        passed_id := 0;
        queued_from := '-infinity';
        queued_from_id := 0;
        is_moment := false;
        if has_floor then
            level := ceiling;
            passed_levels := passed_levels || level;
            passed_run_at := to_timestamp(floor_run_ats[next_floor]);
            passed_id := floor_ids[next_floor];
            queued_from := to_timestamp(floor_queued_run_ats[next_floor]);
            if floor_ends is not null then
                queued_from_id := passed_id;
                due_at := to_timestamp(floor_ends[next_floor]);
                due_id := floor_end_ids[next_floor];
                queued_due_at := to_timestamp(floor_queued_ends[next_floor]);
                queued_due_id := floor_queued_end_ids[next_floor];
                if due_at > this_moment then
                    due_at := this_moment;
                    due_id := last_possible_id;
                end if;
                if queued_due_at > this_moment then
                    queued_due_at := this_moment;
                    queued_due_id := last_possible_id;
                end if;
                is_moment := greatest(due_at, queued_due_at) <= passed_run_at;
            end if;
            next_floor := next_floor + 1;
        elsif level is null then
            pages := pages + pg_stat_get_xact_blocks_fetched(':SCHEMA._private_jobs'::regclass) - pages_before;
            exit;
        end if;

        -- The tasks that have something due on this priority.
        if is_moment then
            -- Thousands of jobs that were added together have one due time. Only with that very time does the scan end
            -- at an id, before PostgreSQL 18.
            select
                coalesce(array_agg(each.id) filter (where each.is_unqueued), '{}'),
                coalesce(array_agg(each.id) filter (where each.is_flagged), '{}'),
                coalesce(array_agg(each.id) filter (where each.queued_run_at is not null), '{}'),
                min(each.queued_run_at)
            into unqueued_tasks, flagged_tasks, queued_tasks, first_queued
            from (
                select task.id, case when due_at = passed_run_at then (
                    select true from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is null
                        and j.task_id = task.id and j.priority = level
                        and j.run_at = passed_run_at and j.id > passed_id and j.id <= due_id
                    order by j.run_at, j.id limit 1
                ) end as is_unqueued, case when due_at = passed_run_at then (
                    select true from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is not null
                        and j.task_id = task.id and j.priority = level
                        and j.run_at = passed_run_at and j.id > passed_id and j.id <= due_id
                    order by j.run_at, j.id limit 1
                ) end as is_flagged, case when queued_due_at = passed_run_at and queues_left > 0 then (
                    select j.run_at from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is not null
                        and j.task_id = task.id and j.priority = level
                        and j.run_at = passed_run_at and j.id > passed_id and j.id <= queued_due_id
                    order by j.run_at, j.id limit 1
                ) end as queued_run_at
                from unnest(known_tasks) as task(id)
            ) as each;
            seen := 0;
            is_partial := false;
        elsif has_few_tasks then
            select
                coalesce(array_agg(each.id) filter (where each.is_unqueued), '{}'),
                coalesce(array_agg(each.id) filter (where each.is_flagged), '{}'),
                coalesce(array_agg(each.id) filter (where each.queued_run_at is not null), '{}'),
                min(each.queued_run_at)
            into unqueued_tasks, flagged_tasks, queued_tasks, first_queued
            from (
                select task.id, (
                    select true from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is null
                        and j.task_id = task.id and j.priority = level
                        and (j.run_at, j.id) > (passed_run_at, passed_id)
                        and j.run_at <= due_at and (j.run_at, j.id) <= (due_at, due_id)
                    order by j.run_at, j.id limit 1
                ) as is_unqueued, (
                    select true from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is null and j.flags is not null
                        and j.task_id = task.id and j.priority = level
                        and (j.run_at, j.id) > (passed_run_at, passed_id)
                        and j.run_at <= due_at and (j.run_at, j.id) <= (due_at, due_id)
                    order by j.run_at, j.id limit 1
                ) as is_flagged, case when queues_left > 0 then (
                    select j.run_at from only :SCHEMA._private_jobs as j
                    where j.is_available and j.job_queue_id is not null
                        and j.task_id = task.id and j.priority = level
                        and (j.run_at, j.id) > (queued_from, queued_from_id) and j.run_at <= queued_due_at
                        and (j.run_at, j.id) <= (queued_due_at, queued_due_id)
                    order by j.run_at, j.id limit 1
                ) end as queued_run_at
                from unnest(known_tasks) as task(id)
            ) as each;
        else
            -- A look at the first due jobs, whatever their task: mostly they are all, or enough.
            most_seen := 100 + least(2 * remaining, 400);
            seen := most_seen;
            claimable := 0;
            first_queued := null;
            -- The index has no ids: from a place among jobs with the same due time it would read all of them again.
            if not has_floor or passed_id = 0 and (queued_from > '-infinity' or floor_ends is not null) then
                select count(*),
                    count(*) filter (where entry.is_allowed and entry.job_queue_id is null)
                        + count(distinct entry.job_queue_id) filter (where entry.is_allowed and queue.is_available),
                    coalesce(array_agg(distinct entry.task_id) filter (
                        where entry.is_known and entry.job_queue_id is null and entry.flags is null), '{}'),
                    coalesce(array_agg(distinct entry.task_id) filter (
                        where entry.is_known and entry.job_queue_id is null and entry.flags is not null), '{}'),
                    coalesce(array_agg(distinct entry.task_id) filter (
                        where entry.is_known and entry.job_queue_id is not null and queues_left > 0), '{}'),
                    min(entry.run_at) filter (where entry.is_known and entry.job_queue_id is not null)
                into seen, claimable, unqueued_tasks, flagged_tasks, queued_tasks, first_queued
                from (
                    select first.task_id, first.job_queue_id, first.flags, first.is_known, first.run_at,
                        first.is_known and (forbidden_flags is null or (first.flags ?| forbidden_flags) is not true)
                            as is_allowed
                    from (
                        select j.task_id, j.job_queue_id, j.flags, j.run_at, known_ranges @> j.task_id as is_known
                        from only :SCHEMA._private_jobs as j
                        where j.is_available and j.priority = level
                            and j.run_at >= least(passed_run_at, queued_from)
                            and j.run_at <= greatest(due_at, queued_due_at)
                        order by j.priority, j.run_at
                        limit most_seen
                    ) as first
                ) as entry
                left join only :SCHEMA._private_job_queues as queue
                    on queue.id = entry.job_queue_id and queues_left > 0;
            end if;
            if seen = most_seen and first_queued is null then
                first_queued := queued_from;
            end if;
            is_partial := seen = most_seen and claimable >= remaining and level is distinct from whole_level;
            if seen = most_seen and not is_partial then
                if present_unqueued is null then
                    present_unqueued := :SCHEMA._private_present_tasks_v2(known_tasks, known_ranges, 'unqueued');
                    present_flagged := :SCHEMA._private_present_tasks_v2(known_tasks, known_ranges, 'flagged');
                    present_queued := case when max_queues > 0
                        then :SCHEMA._private_present_tasks_v2(known_tasks, known_ranges, 'queued') else '{}' end;
                end if;
                unqueued_tasks := present_unqueued;
                flagged_tasks := present_flagged;
                queued_tasks := case when queues_left > 0 then present_queued else '{}' end;
            end if;
        end if;

        pages := pages + pg_stat_get_xact_blocks_fetched(':SCHEMA._private_jobs'::regclass) - pages_before
            - case when has_few_tasks then 0 else seen end;
        floor_levels := floor_levels || level;
        queued_floors := queued_floors || case when queues_left > 0
            then date_part('epoch', first_queued) else date_part('epoch', queued_from) end;

        -- Flagged jobs, if flags are forbidden: few sets of flags are looked at one by one, and all jobs of a
        -- forbidden set are passed in one step. Otherwise the jobs are looked at in order.
        allowed_tasks := '{}';
        allowed_flags := '{}';
        flagged_tids := '{}';
        flagged_run_ats := '{}';
        flagged_ids := '{}';
        flagged_is_cut := false;
        flagged_looks := 0;
        if flagged_tasks <> '{}' and forbidden_flags is not null then
            is_found := false;
            if cardinality(flagged_tasks) <= 8 then
                select bool_and(each.is_whole), coalesce(array_agg(each.task_id) filter (where each.is_allowed), '{}'),
                    coalesce(array_agg(each.flags) filter (where each.is_allowed), '{}')
                into is_found, allowed_tasks, allowed_flags
                from (
                    select task.id as task_id, flag_set.flags, flag_set.step < 20 as is_whole,
                        flag_set.flags is not null and not flag_set.flags ?| forbidden_flags as is_allowed
                    from unnest(flagged_tasks) as task(id)
                    cross join lateral (
                        with recursive flag_set (flags, step) as (
                            select (
                                select j.flags from only :SCHEMA._private_jobs as j
                                where j.is_available and j.job_queue_id is null and j.flags is not null
                                    and j.task_id = task.id
                                order by j.flags, j.priority, j.run_at, j.id limit 1), 0
                            union all
                            select (
                                select j.flags from only :SCHEMA._private_jobs as j
                                where j.is_available and j.job_queue_id is null and j.flags is not null
                                    and j.task_id = task.id and j.flags > flag_set.flags
                                order by j.flags, j.priority, j.run_at, j.id limit 1), flag_set.step + 1
                            from flag_set where flag_set.flags is not null and flag_set.step < 20
                        )
                        select flag_set.flags, flag_set.step from flag_set
                    ) as flag_set
                ) as each;
            end if;
            if not is_found then
                allowed_tasks := '{}';
                allowed_flags := '{}';
                flagged_is_cut := true;
                flagged_end_run_at := passed_run_at;
                flagged_end_id := passed_id;
            end if;
        end if;
        queued_is_cut := queued_tasks <> '{}';
        queued_end_run_at := queued_from;
        queued_end_id := queued_from_id;
        queued_looks := 0;
        picked_queues := '{}';
        picked_run_ats := '{}';
        picked_ids := '{}';

        loop
            -- Look further, where the last look has not seen all; then walk.
            merged_run_at := '-infinity';
            merged_id := 0;
            flagged_tids := '{}';
            picked_queues := '{}';
            if flagged_is_cut and flagged_looks < 4 then
                select found.tids, found.run_ats, found.ids, found.end_run_at, found.end_id, found.is_cut
                into flagged_tids, flagged_run_ats, flagged_ids,
                    flagged_end_run_at, flagged_end_id, flagged_is_cut
                from :SCHEMA._private_look_at_flagged_v2(flagged_tasks, level, due_at, forbidden_flags,
                    flagged_end_run_at, flagged_end_id, least(remaining, 200) + 50) as found;
                flagged_looks := case when flagged_tids = '{}' then 4 else flagged_looks + 1 end;
            end if;
            if flagged_is_cut and flagged_looks >= 4 and flagged_tids = '{}' then
                flagged_is_cut := false;
                if steps_left < 1 or walk_is_cut then
                    is_hidden := true;
                elsif (level, flagged_walk) < (walk_priority, walk_kind) then
                    has_passed_walks := true;
                else
                    has_walked := true;
                    if (level, flagged_walk) = (walk_priority, walk_kind) then
                        flagged_end_run_at := to_timestamp((walk->>'run_at')::float8);
                        flagged_end_id := (walk->>'id')::bigint;
                    end if;
                    select found.tids, found.run_ats, found.ids, found.end_run_at, found.end_id, found.is_cut
                    into flagged_tids, flagged_run_ats, flagged_ids, walk_run_at, walk_id, walk_is_cut
                    from :SCHEMA._private_look_at_flagged_v2(flagged_tasks, level, due_at, forbidden_flags,
                        flagged_end_run_at, flagged_end_id, steps_left * 3) as found;
                    has_finds := has_finds or flagged_tids <> '{}';
                    if walk_is_cut then
                        walk_end := json_build_object('priority', level, 'kind', flagged_walk,
                            'run_at', date_part('epoch', walk_run_at), 'id', walk_id);
                    end if;
                end if;
            end if;
            if queued_is_cut and queued_looks < 4 and queues_left > 0 then
                select found.queue_ids, found.run_ats, found.ids, found.end_run_at, found.end_id, found.is_cut
                into picked_queues, picked_run_ats, picked_ids, queued_end_run_at, queued_end_id, queued_is_cut
                from :SCHEMA._private_look_at_queued_v2(queued_tasks, level, queued_due_at, forbidden_flags,
                    queued_end_run_at, queued_end_id, 100 + least(remaining, queues_left, 200) * 2) as found;
                queued_looks := case when picked_queues = '{}' then 4 else queued_looks + 1 end;
            end if;
            if queued_is_cut and queued_looks >= 4 and queues_left > 0 and picked_queues = '{}' then
                if queued_looks = 4 then
                    queued_looks := 5;
                    queued_is_cut := forbidden_flags is not null;
                    if steps_left < 1 or walk_is_cut then
                        is_hidden := true;
                    elsif (level, queue_walk) < (walk_priority, walk_kind) then
                        has_passed_walks := true;
                    else
                        has_walked := true;
                        walk_task := null;
                        walk_period := null;
                        walk_queue := null;
                        if (level, queue_walk) = (walk_priority, walk_kind) then
                            walk_task := (walk->>'task')::int;
                            walk_period := (walk->>'period')::float8;
                            walk_queue := (walk->>'queue')::int;
                        end if;
                        select found.queue_ids, found.run_ats, found.ids,
                            found.end_task, found.end_period, found.end_queue, found.is_cut
                        into picked_queues, picked_run_ats, picked_ids,
                            walk_task, walk_period, walk_queue, walk_is_cut
                        from :SCHEMA._private_walk_queues_v2(queued_tasks, level, queued_due_at, forbidden_flags,
                            walk_task, walk_period, walk_queue,
                            case when forbidden_flags is null then steps_left else steps_left / 4 + 1 end) as found;
                        has_finds := has_finds or picked_queues <> '{}';
                        if walk_is_cut then
                            walk_end := json_build_object('priority', level, 'kind', queue_walk,
                                'task', walk_task, 'period', walk_period, 'queue', walk_queue);
                        end if;
                    end if;
                end if;
                -- The walk looks at few jobs of each queue; jobs with a forbidden flag can hide another one.
                if picked_queues = '{}' and queued_is_cut then
                    queued_is_cut := false;
                    if steps_left < 1 or walk_is_cut then
                        is_hidden := true;
                    elsif (level, queued_walk) < (walk_priority, walk_kind) then
                        has_passed_walks := true;
                    else
                        has_walked := true;
                        if (level, queued_walk) = (walk_priority, walk_kind) then
                            queued_end_run_at := to_timestamp((walk->>'run_at')::float8);
                            queued_end_id := (walk->>'id')::bigint;
                        end if;
                        select found.queue_ids, found.run_ats, found.ids, found.end_run_at, found.end_id, found.is_cut
                        into picked_queues, picked_run_ats, picked_ids, walk_run_at, walk_id, walk_is_cut
                        from :SCHEMA._private_look_at_queued_v2(queued_tasks, level, queued_due_at, forbidden_flags,
                            queued_end_run_at, queued_end_id, steps_left * 3) as found;
                        has_finds := has_finds or picked_queues <> '{}';
                        if walk_is_cut then
                            walk_end := json_build_object('priority', level, 'kind', queued_walk,
                                'run_at', date_part('epoch', walk_run_at), 'id', walk_id);
                        end if;
                    end if;
                end if;
            end if;

            loop
                is_stuck := false;
                is_filled := false;
                if cardinality(unqueued_tasks) = 1 and flagged_tasks = '{}' and picked_queues = '{}' then
                    -- One task, no flags, no queues: what nearly every claim is. The scan of the index
                    -- itself passes over what others are claiming.
                    select array_agg(locked.tid), sum(locked.size)
                    into locked_jobs, bytes
                    from (
                        select j.ctid as tid, case when pg_column_compression(j.payload) is null
                            then pg_column_size(j.payload) else 1000000000 end as size
                        from only :SCHEMA._private_jobs as j
                        where j.is_available and j.job_queue_id is null and j.flags is null
                            and j.task_id = unqueued_tasks[1] and j.priority = level
                            and (j.run_at, j.id) > (passed_run_at, passed_id)
                            and j.run_at <= due_at and (j.run_at, j.id) <= (due_at, due_id)
                            and (j.xmax = '0' or j.xmax <> all (running))
                        order by j.run_at, j.id
                        limit remaining
                        for update skip locked
                    ) as locked;
                    if running <> '{}' and coalesce(cardinality(locked_jobs), 0) < remaining then
                        running := '{}';
                        continue;
                    end if;
                    last_run_at := null;
                    line_tids := null;
                else
                    -- Look first, lock after: with several sources the order among them is only
                    -- known once they are merged.
                    per_task := remaining;
                    if cardinality(unqueued_tasks) + cardinality(flagged_tasks) > 2 then
                        per_task := least(remaining, 4 + ceil(
                            2.0 * remaining / (cardinality(unqueued_tasks) + cardinality(flagged_tasks))));
                    end if;
                    with plain as materialized (
                        select task.id as task_id, job.tid, job.run_at, job.id
                        from unnest(unqueued_tasks) as task(id)
                        cross join lateral (
                            select j.ctid as tid, j.run_at, j.id from only :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is null and j.flags is null
                                and j.task_id = task.id and j.priority = level
                                and (j.run_at, j.id) > (passed_run_at, passed_id)
                                and j.run_at <= due_at and (j.run_at, j.id) <= (due_at, due_id)
                                and (j.xmax = '0' or j.xmax <> all (running))
                            order by j.run_at, j.id limit per_task
                        ) as job
                        union all
                        select -task.id, job.tid, job.run_at, job.id
                        from unnest(flagged_tasks) as task(id)
                        cross join lateral (
                            select j.ctid as tid, j.run_at, j.id from only :SCHEMA._private_jobs as j
                            where j.is_available and j.job_queue_id is null and j.flags is not null
                                and j.task_id = task.id and j.priority = level
                                and (j.run_at, j.id) > (passed_run_at, passed_id)
                                and j.run_at <= due_at and (j.run_at, j.id) <= (due_at, due_id)
                                and (j.xmax = '0' or j.xmax <> all (running))
                            order by j.run_at, j.id limit per_task
                        ) as job
                        where forbidden_flags is null
                    ), bound as materialized (
                        select last.run_at, last.id
                        from (
                            select (array_agg(plain.run_at))[per_task] as run_at, (array_agg(plain.id))[per_task] as id
                            from plain
                            where per_task < remaining
                            group by plain.task_id
                        ) as last
                        where last.id is not null
                        order by last.run_at, last.id
                        limit 1
                    ), merged as (
                        select source.tid, source.queue_id, source.run_at, source.id
                        from (
                            select plain.tid, null::int as queue_id, plain.run_at, plain.id from plain
                            union all
                            select job.tid, null, job.run_at, job.id
                            from unnest(allowed_tasks, allowed_flags) as allowed(task_id, flags)
                            cross join lateral (
                                select j.ctid as tid, j.run_at, j.id from only :SCHEMA._private_jobs as j
                                where j.is_available and j.job_queue_id is null and j.flags is not null
                                    and j.task_id = allowed.task_id and j.flags = allowed.flags and j.priority = level
                                    and (j.run_at, j.id) > (passed_run_at, passed_id)
                                    and j.run_at <= due_at and (j.run_at, j.id) <= (due_at, due_id)
                                    and (j.xmax = '0' or j.xmax <> all (running))
                                order by j.run_at, j.id limit remaining
                            ) as job
                            union all
                            select looked.tid, null, looked.run_at, looked.id
                            from unnest(flagged_tids, flagged_run_ats, flagged_ids) as looked(tid, run_at, id)
                            where flagged_tids <> '{}' and (looked.run_at, looked.id) > (merged_run_at, merged_id)
                            union all
                            select null, pick.queue_id, pick.run_at, pick.id
                            from unnest(picked_queues, picked_run_ats, picked_ids) as pick(queue_id, run_at, id)
                            where picked_queues <> '{}' and (pick.run_at, pick.id) > (merged_run_at, merged_id)
                                and pick.queue_id <> all (stuck_queues)
                        ) as source
                        where not exists (select from bound where (source.run_at, source.id) > (bound.run_at, bound.id))
                        order by source.run_at, source.id
                        limit remaining
                    )
                    select
                        array_agg(merged.tid) filter (where merged.tid is not null),
                        array_agg(merged.run_at) filter (where merged.tid is not null),
                        array_agg(merged.id) filter (where merged.tid is not null),
                        array_agg(merged.queue_id) filter (where merged.queue_id is not null),
                        count(*),
                        (array_agg(merged.run_at))[count(*)],
                        (array_agg(merged.id))[count(*)],
                        (select bound.run_at from bound),
                        (select bound.id from bound)
                    into chosen_jobs, chosen_run_ats, chosen_ids, chosen_queues, candidates,
                        last_run_at, last_id, bound_run_at, bound_id
                    from merged;
                    if running <> '{}' and candidates < remaining then
                        running := '{}';
                        continue;
                    end if;
                    if candidates < remaining then
                        last_run_at := bound_run_at;
                        last_id := bound_id;
                    end if;

                    line_tids := null;
                    if chosen_queues is not null and limited_tasks is not null then
                        select array_agg(first.queue_id), array_agg(first.job_priority), array_agg(first.job_run_at),
                            array_agg(first.job_id)
                        into limited_queues, limited_priorities, limited_run_ats, limited_ids
                        from :SCHEMA._private_first_in_queues_v1(
                            chosen_queues, null, limited_tasks, limited_shapes, forbidden_flags, this_moment) as first;
                    end if;
                    if chosen_queues is not null then
                        select array_agg(held.id order by held.place)
                        into held_queues
                        from (
                            select q.id, chosen.place
                            from unnest(chosen_queues) with ordinality as chosen(id, place)
                            join only :SCHEMA._private_job_queues as q on q.id = chosen.id
                            where q.is_available and (limited_queues is null or not exists (
                                select from unnest(limited_queues, limited_priorities, limited_run_ats, limited_ids)
                                    as first(queue_id, priority, run_at, id)
                                where first.queue_id = q.id and (first.priority, first.run_at, first.id) < (
                                    level, picked_run_ats[array_position(picked_queues, q.id)],
                                    picked_ids[array_position(picked_queues, q.id)])))
                            order by chosen.place
                            limit queues_left
                            for no key update of q skip locked
                        ) as held;
                        -- Another claim may have locked more queues than it takes.
                        must_wait := must_wait
                            or coalesce(cardinality(held_queues), 0) < least(cardinality(chosen_queues), queues_left);
                        if held_queues is not null then
                            per_queue := least(stretch, greatest(1, ceil(2.0 * remaining / cardinality(held_queues))));
                            -- The first jobs of each queue: from one priority of one of its tasks to the next. A job
                            -- of a slice must not start before a due job behind the slice that comes first.
                            with recursive stair (queue_id, place, task_id, priority) as (
                                select held.id, held.place, -2147483648, 0::smallint
                                from unnest(held_queues) with ordinality as held(id, place)
                                union all
                                select stair.queue_id, stair.place, ahead.task_id, ahead.priority
                                from stair
                                cross join lateral (
                                    select j.task_id, j.priority from only :SCHEMA._private_jobs as j
                                    where j.is_available and j.job_queue_id is not null
                                        and (j.job_queue_id, j.task_id, j.priority)
                                            > (stair.queue_id, stair.task_id, stair.priority)
                                        and j.job_queue_id <= stair.queue_id
                                    order by j.job_queue_id, j.task_id, j.priority limit 1
                                ) as ahead
                            ), line as (
                                select job.tid, stair.queue_id, stair.priority, job.run_at, job.id, row_number() over (
                                    partition by stair.place order by stair.priority, job.run_at, job.id) as place
                                from (
                                    select step.queue_id, step.place, step.task_id, step.priority,
                                        case when forbidden_flags is not null
                                            then picked_ids[array_position(picked_queues, step.queue_id)] end as picked_id
                                    from stair as step
                                    where known_ranges @> step.task_id
                                    -- So that the planner does not copy the search to each job.
                                    offset 0
                                ) as stair
                                cross join lateral (
                                    select entry.tid, entry.run_at, entry.id
                                    from (
                                        select j.ctid as tid, j.run_at, j.id, j.flags from only :SCHEMA._private_jobs as j
                                        where j.is_available and j.job_queue_id is not null
                                            and j.task_id = stair.task_id and j.job_queue_id = stair.queue_id
                                            and j.priority = stair.priority and j.run_at <= this_moment
                                        order by j.run_at, j.id
                                        limit per_queue + case when forbidden_flags is null then 0 else 50 end
                                    ) as entry
                                    where forbidden_flags is null or ((entry.flags ?| forbidden_flags) is not true
                                        and entry.id is distinct from stair.picked_id)
                                    union all
                                    -- A look found this one, perhaps behind many with a forbidden flag.
                                    select j.ctid, j.run_at, j.id from only :SCHEMA._private_jobs as j
                                    where forbidden_flags is not null
                                        and j.id = stair.picked_id
                                        and case when j.is_available and j.job_queue_id = stair.queue_id
                                            and j.task_id = stair.task_id and j.priority = stair.priority
                                            then j.run_at <= this_moment end
                                ) as job
                            ), turn as (
                                -- Each job in its turn, whether it has a queue or not.
                                select each.tid, each.queue_id, each.place
                                from (
                                    select line.tid, line.queue_id, line.priority, line.run_at, line.id, line.place
                                    from line where line.place <= per_queue and (
                                        limited_queues is null or (line.priority, line.run_at, line.id) < (
                                            limited_priorities[array_position(limited_queues, line.queue_id)],
                                            limited_run_ats[array_position(limited_queues, line.queue_id)],
                                            limited_ids[array_position(limited_queues, line.queue_id)]) is not false)
                                    union all
                                    select job.tid, null, level, job.run_at, job.id, null
                                    from unnest(chosen_jobs, chosen_run_ats, chosen_ids) as job(tid, run_at, id)
                                    where chosen_jobs is not null
                                ) as each
                                order by each.priority, each.run_at, each.id
                                limit remaining
                            )
                            select
                                array_agg(turn.tid) filter (where turn.queue_id is not null),
                                array_agg(turn.queue_id) filter (where turn.queue_id is not null),
                                array_agg(turn.place) filter (where turn.queue_id is not null),
                                array_agg(turn.tid) filter (where turn.queue_id is null),
                                count(*)
                            into line_tids, line_queues, line_places, chosen_jobs, taken
                            from turn;
                            is_filled := taken = remaining;
                        end if;
                    end if;

                    locked_jobs := null;
                    if chosen_jobs is not null then
                        -- A job that was changed since the look is judged as it is now.
                        select array_agg(locked.tid), sum(locked.size)
                        into locked_jobs, bytes
                        from (
                            select j.ctid as tid, case when pg_column_compression(j.payload) is null
                                then pg_column_size(j.payload) else 1000000000 end as size
                            from only :SCHEMA._private_jobs as j
                            -- In a case, so that the planner takes no index for these conditions.
                            where j.ctid = any (chosen_jobs) and case
                                when j.is_available and j.run_at <= due_at and j.job_queue_id is null
                                then forbidden_flags is null or (j.flags ?| forbidden_flags) is not true end
                            for update skip locked
                        ) as locked;
                    end if;
                end if;

                if locked_jobs is not null then
                    -- In a statement of its own, whose snapshot has the version that was locked.
                    if bytes > bytes_left then
                        select within.kept, within.bytes into kept_jobs, bytes
                        from :SCHEMA._private_within_bytes_v2(locked_jobs, uncounted_left, bytes_left) as within;
                        is_heavy := cardinality(kept_jobs) < cardinality(locked_jobs);
                        locked_jobs := kept_jobs;
                    end if;
                    bytes_left := bytes_left - bytes;
                    return query
                    update only :SCHEMA._private_jobs as job
                    set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment, key = job.key
                    where job.ctid = any (locked_jobs)
                    returning job.id, job.task_id, job.attempts, job.payload::text, null::int, job.priority,
                        date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision, job.flags::text,
                        job.last_error, date_part('epoch', job.created_at),
                        date_part('epoch', job.updated_at), null::text, null::json;
                    get diagnostics taken = row_count;
                    remaining := remaining - taken;
                    uncounted_left := greatest(uncounted_left - taken, 0);
                    exit when is_heavy;
                end if;

                if line_tids is not null then
                    -- A job that another transaction has locked, or has just changed, stops its queue: none of
                    -- the jobs behind it may start before it.
                    select array_agg(locked.tid order by locked.tid), sum(locked.size)
                    into locked_jobs, bytes
                    from (
                        select j.ctid as tid, case when pg_column_compression(j.payload) is null
                            then pg_column_size(j.payload) else 1000000000 end as size
                        from only :SCHEMA._private_jobs as j
                        where j.ctid = any (line_tids) and case
                            when j.is_available and j.run_at <= this_moment then j.job_queue_id is not null end
                        for update skip locked
                    ) as locked;
                    select array_agg(line.tid order by line.tid) into sorted_tids from unnest(line_tids) as line(tid);
                    is_stuck := locked_jobs is distinct from sorted_tids;
                    if is_stuck then
                        must_wait := true;
                        stuck_queues := stuck_queues || array(
                            select distinct line.queue_id from unnest(line_tids, line_queues) as line(tid, queue_id)
                            where line.tid <> all (coalesce(locked_jobs, '{}')));
                    end if;
                    if is_stuck or bytes > bytes_left then
                        select coalesce(array_agg(line.tid) filter (where line.total <= bytes_left), '{}'),
                            coalesce(array_agg(line.queue_id) filter (where line.total <= bytes_left), '{}'),
                            coalesce(max(line.total) filter (where line.total <= bytes_left), 0),
                            coalesce(bool_or(line.total > bytes_left), false)
                        into kept_jobs, kept_queues, bytes, is_heavy
                        from (
                            select each.tid, each.queue_id, sum(case
                                when each.place = 1 and each.queue_number <= uncounted_left then 0
                                when pg_column_compression(j.payload) is null then pg_column_size(j.payload)
                                else octet_length(j.payload::text) end) over (order by each.number) as total
                            from (
                                select line.tid, line.queue_id, line.place, line.number,
                                    dense_rank() over (order by line.queue_id) as queue_number,
                                    min(case when missing.tid is not null then line.place end)
                                        over (partition by line.queue_id) as first_missing
                                from unnest(line_tids, line_queues, line_places)
                                    with ordinality as line(tid, queue_id, place, number)
                                left join (
                                    select unnest(sorted_tids) except select unnest(locked_jobs)
                                ) as missing(tid) on missing.tid = line.tid
                            ) as each
                            join only :SCHEMA._private_jobs as j on j.ctid = each.tid
                            where each.first_missing is null or each.place < each.first_missing
                        ) as line;
                        line_tids := kept_jobs;
                        line_queues := kept_queues;
                    end if;
                    if line_tids <> '{}' then
                        bytes_left := bytes_left - bytes;
                        with queue as (
                            update only :SCHEMA._private_job_queues as q
                            set locked_by = holder, locked_at = this_moment
                            where q.id = any (array(select distinct unnest(line_queues)))
                            returning q.id, q.queue_name
                        )
                        select jsonb_object_agg(queue.id, queue.queue_name), count(*) into queue_names, taken from queue;
                        queues_left := queues_left - taken;
                        uncounted_left := greatest(uncounted_left - taken, 0);
                        return query
                        update only :SCHEMA._private_jobs as job
                        set attempts = job.attempts + 1, locked_by = holder, locked_at = this_moment, key = job.key
                        where job.ctid = any (line_tids)
                        returning job.id, job.task_id, job.attempts, job.payload::text, job.job_queue_id,
                            job.priority, date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision,
                            job.flags::text, job.last_error, date_part('epoch', job.created_at),
                            date_part('epoch', job.updated_at), queue_names->>job.job_queue_id::text,
                            null::json;
                        get diagnostics taken = row_count;
                        remaining := remaining - taken;
                        has_more := has_more or queues_left < 1;
                    end if;
                end if;
                exit when remaining < 1 or is_heavy;
                -- The jobs of such a queue may have taken the place of others: the round is made again without it.
                continue when is_stuck;
                has_more := has_more or is_filled;
                -- Less than was wanted, and no task has more: every source was seen to its end.
                exit when last_run_at is null;
                merged_run_at := last_run_at;
                merged_id := last_id;
                if (last_run_at, last_id) > (passed_run_at, passed_id) then
                    passed_run_at := last_run_at;
                    passed_id := last_id;
                end if;
            end loop;
            -- Has a look not seen everything?
            exit when remaining < 1 or is_heavy or not (flagged_is_cut or queued_is_cut and queues_left > 0);
        end loop;
        if is_partial and remaining > 0 then
            -- Others have taken the first jobs meanwhile: the same priority again, with all tasks.
            whole_level := level;
            level := level - 1;
            if has_floor then
                next_floor := next_floor - 1;
            end if;
        end if;
    end loop;

    has_more := has_more or is_heavy or remaining < 1 or walk_is_cut;
    if not has_more and floor_ends is null then
        -- Everything due was seen: when does the next job fall due? Of a crowd of unknown tasks only the
        -- first jobs are looked at, and then the worker looks again when they fall due.
        select min(coalesce(first.run_at, crowd.run_at, known.run_at)) into next_run_at
        from unnest(passed_levels) as passed(priority)
        cross join lateral (
            select case when known_ranges @> n.task_id then n.run_at end as run_at
            from (
                select j.task_id, j.run_at from only :SCHEMA._private_jobs as j
                where j.is_available and j.priority = passed.priority and j.run_at > this_moment
                order by j.priority, j.run_at limit 1
            ) as n
        ) as first
        cross join lateral (
            select case when bool_or(n.is_known) then min(n.run_at) filter (where n.is_known)
                when count(*) = 50 and not has_few_tasks then max(n.run_at) end as run_at
            from (
                select j.run_at, known_ranges @> j.task_id as is_known from only :SCHEMA._private_jobs as j
                where first.run_at is null
                    and j.is_available and j.priority = passed.priority and j.run_at > this_moment
                order by j.priority, j.run_at limit 50
            ) as n
        ) as crowd
        cross join lateral (
            select min(n.run_at) as run_at
            from unnest(case when has_few_tasks and coalesce(first.run_at, crowd.run_at) is null
                then known_tasks else '{}' end) as task(id)
            cross join lateral (
                (select j.run_at from only :SCHEMA._private_jobs as j
                 where j.is_available and j.job_queue_id is null and j.flags is null
                    and j.task_id = task.id and j.priority = passed.priority and j.run_at > this_moment
                 order by j.run_at, j.id limit 1)
                union all
                (select j.run_at from only :SCHEMA._private_jobs as j
                 where j.is_available and j.job_queue_id is null and j.flags is not null
                    and j.task_id = task.id and j.priority = passed.priority and j.run_at > this_moment
                 order by j.run_at, j.id limit 1)
                union all
                (select j.run_at from only :SCHEMA._private_jobs as j
                 where j.is_available and j.job_queue_id is not null
                    and j.task_id = task.id and j.priority = passed.priority and j.run_at > this_moment
                 order by j.run_at, j.id limit 1)
            ) as n
        ) as known;
        if must_wait then
            -- Nobody announces that a transaction let go of a row.
            next_run_at := least(next_run_at, this_moment + interval '0.1 seconds');
        end if;
    end if;
    job_id := null;
    summary := json_build_object(
        'has_more', has_more,
        'is_heavy', is_heavy,
        'is_hidden', is_hidden,
        'seconds_until_next', case when isfinite(next_run_at) then greatest(
            date_part('epoch', next_run_at - coalesce(claimed_at, clock_timestamp())), 0) end,
        -- A claim that was full before it came to the end of its walk leaves the place where it was, but only where
        -- no other walk has to wait for that.
        'walk', case
            when walk_is_cut and not (has_finds and (remaining < 1 or queues_left < 1 or is_heavy)) then walk_end
            when has_more and (walk_is_cut or not has_walked) and not has_passed_walks then walk end,
        'levels', floor_levels,
        'queued_floors', queued_floors,
        'looked_at', date_part('epoch', least(this_moment, now())),
        'pages', greatest(pages, 0));
    return next;
end
$$;
