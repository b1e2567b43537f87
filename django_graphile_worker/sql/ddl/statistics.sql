/* gw:install */
-- What an error is called, without what differs from one job to the next: the
-- exception's name in Python, the beginning of the message elsewhere.
create or replace function :SCHEMA._private_error_name(error text)
returns text language sql immutable parallel safe
return pg_catalog."left"(pg_catalog.regexp_replace(
    pg_catalog.split_part(pg_catalog.split_part(error, E'\n', 1), ':', 1), '[0-9]+', '#', 'g'), 120);

-- Adds numbers to some places of an array of counts; the places are in order.
create or replace function :SCHEMA._private_add_counts(counts bigint[], places integer[], numbers bigint[])
returns bigint[] language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $function$
/* gw:add_counts */
begin
  counts := counts || array_fill(0::bigint, array[greatest(places[cardinality(places)] - cardinality(counts), 0)]);
  for each in 1 .. cardinality(places) loop
    counts[places[each]] := counts[places[each]] + numbers[each];
  end loop;
  return counts;
end
$function$;

-- Counts jobs that were not started in time, of these tasks: one row, for which no other session waits.
create or replace function :SCHEMA._private_count_expired(identifiers text[], expired_at timestamptz)
returns void language sql volatile set search_path = pg_catalog, pg_temp as $function$
  insert into :SCHEMA._private_statistics_pending (counted)
  select json_agg(json_build_object(
    'kind', each.kind, 'name', each.name, 'minute', floor(date_part('epoch', expired_at) / 60)::bigint * 60,
    'places', array[5], 'numbers', array[each.number]))
  from (
    select 'task' as kind, task as name, count(*) as number from unnest(identifiers) as task group by task
    union all select 'all', '', cardinality(identifiers)
  ) as each
  having cardinality(identifiers) > 0
$function$;

-- Removes the oldest of the counts that are pending, and returns them: nothing if that was done a moment ago or is being
-- done. With an interval of zero it is done in any case, after the others. Until the end of the transaction, no other
-- session gets any.
create or replace function :SCHEMA._private_take_pending_statistics(at_least_after interval, most integer)
returns json[] language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:take_pending_statistics */
declare
  taken json[];
begin
  if exists (
    select from :SCHEMA._private_statistics_pending as pending
    where pending.counted is null and pending.recorded_at > clock_timestamp() - at_least_after
  ) or not exists (select from :SCHEMA._private_statistics_pending as pending where pending.counted is not null) then
    return null;
  end if;
  if at_least_after <= interval '0 seconds' then
    lock table only :SCHEMA._private_statistics_pending in share update exclusive mode;
  else
    begin
      lock table only :SCHEMA._private_statistics_pending in share update exclusive mode nowait;
    exception when lock_not_available then
      return null;
    end;
  end if;
  with chosen as (
    delete from only :SCHEMA._private_statistics_pending as pending
    where pending.id in (
      select oldest.id from only :SCHEMA._private_statistics_pending as oldest
      order by oldest.counted is not null, oldest.id limit most)
    returning pending.counted
  )
  select array_agg(chosen.counted) filter (where chosen.counted is not null) into taken from chosen;
  insert into :SCHEMA._private_statistics_pending (counted) values (null);
  return taken;
end
$function$;

-- Adds what is pending to the statistics; returns how many rows were pending. In a period that has rows for `most_names`
-- queues, or workers, the counts of further ones are added to the row of all others. Only the session that has taken the
-- pending counts writes into the table, so it may read a row and replace it.
create or replace function :SCHEMA._private_fold_statistics(at_least_after interval, most integer, most_names integer)
returns integer language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $function$
/* gw:fold_statistics */
declare
  taken constant json[] := :SCHEMA._private_take_pending_statistics(at_least_after, most);
begin
  with minute as materialized (
    select counted.kind collate "C" as kind, counted.name collate "C" as name, counted.minute, each.place,
      sum(each.number)::bigint as number
    from unnest(taken) as document (text)
    cross join lateral json_to_recordset(document.text) as counted (
      kind text, name text, minute bigint, places integer[], numbers bigint[])
    cross join lateral unnest(counted.places, counted.numbers) as each (place, number)
    group by 1, 2, 3, 4
  ), period as materialized (
    -- Each minute is a part of four periods.
    select resolution.seconds, minute.kind, to_timestamp(minute.minute - minute.minute % resolution.seconds) as started_at,
      minute.name, minute.place, sum(minute.number)::bigint as number
    from minute cross join (values (60), (600), (3600), (86400)) as resolution (seconds)
    group by 1, 2, 3, 4, 5
  ), candidate as (
    select each.*,
      each.kind in ('all', 'task') or each.name = '' or exists (
        select from only :SCHEMA._private_statistics as known
        where known.period_seconds = each.seconds and known.kind = each.kind
          and known.started_at = each.started_at and known.name = each.name) as has_row,
      case when each.kind in ('queue', 'worker') then (
        select count(*) from only :SCHEMA._private_statistics as known
        where known.period_seconds = each.seconds and known.kind = each.kind
          and known.started_at = each.started_at and known.name <> '') end as rows_of_names
    from (
      select period.seconds, period.kind, period.started_at, period.name,
        sum(period.number) filter (where period.place <= 3) as ended
      from period group by 1, 2, 3, 4
    ) as each
  ), admitted as materialized (
    -- Of the names that are new in their period, the busiest get a row while there is room.
    select candidate.seconds, candidate.kind, candidate.started_at, candidate.name,
      case when candidate.has_row or candidate.rows_of_names + row_number() over (
        partition by candidate.seconds, candidate.kind, candidate.started_at, candidate.has_row
        order by candidate.ended desc nulls last, candidate.name) <= most_names
      then candidate.name else '' end as counted_as
    from candidate
  ), added as (
    select each.seconds, each.kind, each.started_at, each.name, array_agg(each.place order by each.place) as places,
      array_agg(each.number order by each.place) as numbers
    from (
      select period.seconds, period.kind, period.started_at, admitted.counted_as as name, period.place,
        sum(period.number)::bigint as number
      from period join admitted using (seconds, kind, started_at, name)
      group by 1, 2, 3, 4, 5
    ) as each
    group by 1, 2, 3, 4
  )
  insert into :SCHEMA._private_statistics (period_seconds, kind, started_at, name, counts)
  select added.seconds, added.kind, added.started_at, added.name, :SCHEMA._private_add_counts(
    coalesce((
      select known.counts from only :SCHEMA._private_statistics as known
      where known.period_seconds = added.seconds and known.kind = added.kind
        and known.started_at = added.started_at and known.name = added.name), '{}'),
    added.places, added.numbers)
  from added
  -- The order of the index, in which old rows are deleted, too: two sessions cannot wait for each other in a circle.
  order by added.seconds, added.kind, added.started_at, added.name
  on conflict on constraint statistics_pkey do update set counts = excluded.counts;
  return coalesce(cardinality(taken), 0);
end
$function$;

-- Counts the jobs of each task in each state; a job that waits for its next attempt is both waiting and retrying. Each
-- count ends after `most` entries of an index: what has more is not exact.
create or replace function :SCHEMA._private_count_backlog(most integer, moment timestamptz)
returns table (state text, task_id integer, number bigint, is_exact boolean)
language sql volatile
set search_path = pg_catalog, pg_temp
-- Each count reads one index in order. A bitmap or a sequential scan would read the table before the limit applies.
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set max_parallel_workers_per_gather = 0
as $function$
/* gw:count_backlog */
  with recursive level (priority) as (
    (select job.priority from only :SCHEMA._private_jobs as job
    where job.is_available order by job.priority, job.run_at limit 1)
    union all
    select (
      select job.priority from only :SCHEMA._private_jobs as job
      where job.is_available and job.priority > level.priority order by job.priority, job.run_at limit 1)
    from level where level.priority is not null
  ), ready as (
    -- However many jobs are not due: on each level of priority, the ready jobs are a range of the index.
    select job.task_id
    from (select level.priority from level where level.priority is not null limit 1000) as level
    cross join lateral (
      select job.task_id from only :SCHEMA._private_jobs as job
      where job.is_available and job.priority = level.priority and job.run_at <= moment
      order by job.priority, job.run_at limit most + 1
    ) as job
    limit most + 1
  ), available as (
    select job.task_id, job.run_at from only :SCHEMA._private_jobs as job
    where job.is_available order by job.priority, job.run_at limit most + 1
  ), failed_once as (
    select job.task_id, job.is_available, job.run_at from only :SCHEMA._private_jobs as job
    where job.locked_at is null and job.attempts > 0
    order by job.task_id, job.is_available, job.run_at, job.id limit most + 1
  )
  select 'running', null, count(*), true
  from (
    select from only :SCHEMA._private_jobs as job where job.locked_at is not null order by job.locked_at limit most
  ) as locked
  union all
  select 'ready', ready.task_id, count(*), sum(count(*)) over () <= most from ready group by ready.task_id
  union all
  -- A job that waits for a limit is parked at "infinity".
  select 'waiting', available.task_id,
    count(*) filter (where available.run_at > moment and available.run_at < 'infinity'), sum(count(*)) over () <= most
  from available group by available.task_id
  union all
  select each.state, failed.task_id, each.number, failed.is_exact
  from (
    select failed_once.task_id, sum(count(*)) over () <= most as is_exact,
      count(*) filter (where is_available and run_at > moment and run_at < 'infinity') as retrying,
      count(*) filter (where not is_available) as permanently_failed
    from failed_once group by failed_once.task_id
  ) as failed
  cross join lateral (
    values ('retrying', failed.retrying), ('permanently_failed', failed.permanently_failed)
  ) as each (state, number)
$function$;

-- Estimates how many jobs of each task are in some of these states, from pages of the table at equal distances: at most
-- `most_pages`. Jobs that were added together are in pages side by side, of which random pages would miss too many.
create or replace function :SCHEMA._private_estimate_backlog(
  most_pages integer, states text[], moment timestamptz default null)
returns table (state text, task_id integer, number bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- A page is a range of row addresses.
set enable_seqscan = off set enable_tidscan = on
set jit = off set max_parallel_workers_per_gather = 0
as $function$
/* gw:estimate_backlog */
declare
  this_moment constant timestamptz := coalesce(moment, clock_timestamp());
  pages constant bigint :=
    pg_relation_size(':SCHEMA._private_jobs'::regclass) / current_setting('block_size')::bigint;
  read_pages constant bigint := least(pages, most_pages);
begin
  if states = '{}' or pages = 0 then
    return;
  end if;
  return query
    select each.state, sampled.task_id, round(each.number * pages::numeric / read_pages)::bigint
    from (
      select job.task_id, count(*) filter (where job.is_available and job.run_at <= this_moment) as ready,
        count(*) filter (where job.is_available and job.run_at > this_moment and job.run_at < 'infinity') as waiting,
        count(*) filter (where job.locked_at is not null) as running,
        count(*) filter (where job.locked_at is null and job.attempts > 0 and job.is_available
          and job.run_at > this_moment and job.run_at < 'infinity') as retrying,
        count(*) filter (where job.locked_at is null and job.attempts > 0 and not job.is_available) as failed
      from (
        select (place * pages + pages / 2) / read_pages as number from generate_series(0, read_pages - 1) as place
      ) as page
      cross join lateral (
        select job.task_id, job.is_available, job.run_at, job.locked_at, job.attempts
        from only :SCHEMA._private_jobs as job
        where job.ctid >= format('(%s,0)', page.number)::tid and job.ctid < format('(%s,0)', page.number + 1)::tid
        offset 0
      ) as job
      group by job.task_id
    ) as sampled
    cross join lateral (
      values ('ready', sampled.ready), ('waiting', sampled.waiting), ('running', sampled.running),
        ('retrying', sampled.retrying), ('permanently_failed', sampled.failed)
    ) as each (state, number)
    where each.state = any (states);
end
$function$;

-- Counts the jobs in each state, once in each minute: of workers that call it at the same time, one counts. What is too
-- much to count is estimated; with zero for `most`, everything. Returns whether this call counted.
create or replace function :SCHEMA._private_sample_backlog(
  most integer, most_pages integer, many integer, moment timestamptz default null)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:sample_backlog */
declare
  this_moment constant timestamptz := coalesce(moment, clock_timestamp());
  this_minute constant timestamptz := date_trunc('minute', this_moment);
  jobs_sequence constant regclass := pg_get_serial_sequence(':SCHEMA._private_jobs', 'id')::regclass;
begin
  -- No worker waits for the worker that counts: the insert alone would.
  begin
    lock table only :SCHEMA._private_backlog_samples in share update exclusive mode nowait;
  exception when lock_not_available then
    return false;
  end;
  insert into :SCHEMA._private_backlog_samples (minute, sampled_at) values (this_minute, this_moment)
  on conflict on constraint backlog_samples_pkey do nothing;
  if not found then
    return false;
  end if;
  update :SCHEMA._private_backlog_samples as sample set tasks = null
  where sample.tasks is not null and sample.minute < this_minute;

  with counted as materialized (
    select * from :SCHEMA._private_count_backlog(most, this_moment) where most > 0
  ), inexact as materialized (
    select case when most > 0 then coalesce(array_agg(distinct counted.state), '{}')
      else array['ready', 'waiting', 'running', 'retrying', 'permanently_failed'] end as states
    from counted where not counted.is_exact
  ), estimated as materialized (
    select each.* from inexact
    cross join lateral :SCHEMA._private_estimate_backlog(most_pages, inexact.states, this_moment) as each
  ), total as (
    -- There are at least as many jobs as were counted.
    select each.state, max(each.number)::bigint as number
    from (
      select counted.state, sum(counted.number) as number from counted group by counted.state
      union all
      select estimated.state, sum(estimated.number) from estimated group by estimated.state
    ) as each
    group by each.state
  ), number as (
    select coalesce(max(total.number) filter (where total.state = 'ready'), 0) as ready,
      coalesce(max(total.number) filter (where total.state = 'waiting'), 0) as waiting,
      coalesce(max(total.number) filter (where total.state = 'running'), 0) as running,
      coalesce(max(total.number) filter (where total.state = 'retrying'), 0) as retrying,
      coalesce(max(total.number) filter (where total.state = 'permanently_failed'), 0) as permanently_failed
    from total
  ), task as (
    select each.task_id, coalesce(max(each.number) filter (where each.state = 'ready'), 0) as ready,
      coalesce(max(each.number) filter (where each.state = 'retrying'), 0) as retrying,
      coalesce(max(each.number) filter (where each.state = 'permanently_failed'), 0) as failed
    from (
      select counted.state, counted.task_id, counted.number from counted
      union all
      select estimated.state, estimated.task_id, estimated.number from estimated
    ) as each
    where each.state in ('ready', 'retrying', 'permanently_failed')
    group by each.task_id
    having max(each.number) > many
    order by 2 desc limit 200
  )
  update :SCHEMA._private_backlog_samples as sample
  -- Every retrying job waits; a waiting job that was never tried is scheduled.
  set ready = number.ready, scheduled = greatest(number.waiting - number.retrying, 0), running = number.running,
    retrying = number.retrying, permanently_failed = number.permanently_failed,
    estimated = array(
      select case each.state when 'waiting' then 'scheduled' else each.state end from unnest(inexact.states) as each (state)
      union select 'scheduled' where 'retrying' = any (inexact.states) order by 1),
    last_job_id = case when has_sequence_privilege(jobs_sequence, 'usage, select')
      then coalesce(pg_sequence_last_value(jobs_sequence), 0) end,
    tasks = (
      select json_object_agg(known.identifier, json_build_array(task.ready, task.retrying, task.failed))
      from task join only :SCHEMA._private_tasks as known on known.id = task.task_id)
  from number, inexact
  where sample.minute = this_minute;
  return true;
end
$function$;
