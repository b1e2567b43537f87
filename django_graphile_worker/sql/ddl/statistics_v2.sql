/* gw:install */
-- Workers do not write into the statistics themselves: all of them would wait for
-- the same few rows. Each adds what it has counted as one row here, for which nobody
-- waits, and every few seconds one worker adds all of it to the statistics.

-- A row without counts says when that was done last.
create table :SCHEMA._private_statistics_pending (
  id bigint generated always as identity constraint statistics_pending_pkey primary key,
  recorded_at timestamptz not null default pg_catalog.clock_timestamp(),
  counted json
);
alter table :SCHEMA._private_statistics_pending enable row level security;

-- Adds numbers to some buckets of a histogram.
create function :SCHEMA._private_add_to_buckets(histogram integer[], buckets integer[], numbers bigint[])
returns integer[] language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $function$
/* gw:add_to_buckets */
begin
  for place in 1 .. coalesce(cardinality(buckets), 0) loop
    histogram[buckets[place] + 1] := coalesce(histogram[buckets[place] + 1], 0) + numbers[place];
  end loop;
  return histogram;
end
$function$;

-- Adds what is pending to the statistics, unless that was done a moment ago or is
-- being done; with an interval of zero it is done in any case, after the others.
-- Returns how many rows were pending. What workers of an older version
-- write themselves is in the same order of rows, so nobody waits in a circle.
create function :SCHEMA._private_fold_statistics_v1(at_least_after interval, most integer)
returns integer language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:fold_statistics */
declare
  taken json[];
begin
  if exists (
    select from :SCHEMA._private_statistics_pending as pending
    where pending.counted is null and pending.recorded_at > clock_timestamp() - at_least_after
  ) or not exists (select from :SCHEMA._private_statistics_pending as pending where pending.counted is not null) then
    return 0;
  end if;
  if at_least_after <= interval '0 seconds' then
    lock table only :SCHEMA._private_statistics_pending in share update exclusive mode;
  else
    begin
      lock table only :SCHEMA._private_statistics_pending in share update exclusive mode nowait;
    exception when lock_not_available then
      return 0;
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
  if taken is null then
    return 0;
  end if;

  with written as materialized (
    -- Names are grouped by their bytes, which takes a fraction of the time that a language's order would.
    select counted.task collate "C" as task, counted.minute, counted.succeeded, counted.failed,
      counted.permanently_failed, counted.interrupted, counted.duration_seconds, counted.wait_seconds,
      counted.ran_in, counted.ran, counted.waited_in, counted.waited
    from unnest(taken) as document (text)
    cross join lateral json_to_recordset(document.text) as counted (
      minute bigint, task text, succeeded bigint, failed bigint, permanently_failed bigint, interrupted bigint,
      duration_seconds float8, wait_seconds float8, ran_in integer[], ran bigint[], waited_in integer[], waited bigint[])
  ), minute as materialized (
    select written.minute, written.task, sum(written.succeeded) as succeeded, sum(written.failed) as failed,
      sum(written.permanently_failed) as permanently_failed, sum(written.interrupted) as interrupted,
      sum(written.duration_seconds) as duration_seconds, sum(written.wait_seconds) as wait_seconds
    from written group by written.minute, written.task
  ), place as materialized (
    -- Each minute of each task is a part of four periods, each of them the task's own and that of all tasks.
    select minute.minute, minute.task, period.seconds as period_seconds,
      minute.minute - minute.minute % period.seconds as started_at, name.task as task_identifier
    from minute
    cross join (values (60), (600), (3600), (86400)) as period (seconds)
    cross join lateral (values (minute.task), ('')) as name (task)
  ), bucket as (
    select written.minute, written.task, measured.is_wait, measured.bucket, sum(measured.number) as number
    from written
    cross join lateral (
      select false as is_wait, ran.bucket, ran.number
      from unnest(written.ran_in, written.ran) as ran (bucket, number)
      union all
      select true, waited.bucket, waited.number
      from unnest(written.waited_in, written.waited) as waited (bucket, number)
    ) as measured
    group by written.minute, written.task, measured.is_wait, measured.bucket
  ), histogram as (
    select each.period_seconds, each.started_at, each.task_identifier,
      array_agg(each.bucket) filter (where not each.is_wait) as ran_in,
      array_agg(each.number) filter (where not each.is_wait) as ran,
      array_agg(each.bucket) filter (where each.is_wait) as waited_in,
      array_agg(each.number) filter (where each.is_wait) as waited
    from (
      select place.period_seconds, place.started_at, place.task_identifier, bucket.is_wait, bucket.bucket,
        sum(bucket.number)::bigint as number
      from place join bucket on bucket.minute = place.minute and bucket.task = place.task
      group by place.period_seconds, place.started_at, place.task_identifier, bucket.is_wait, bucket.bucket
    ) as each
    group by each.period_seconds, each.started_at, each.task_identifier
  ), total as materialized (
    select summed.period_seconds, summed.started_at, summed.task_identifier collate "default" as task_identifier,
      summed.succeeded, summed.failed, summed.permanently_failed, summed.interrupted, summed.duration_seconds,
      summed.wait_seconds, histogram.ran_in, histogram.ran, histogram.waited_in, histogram.waited
    from (
      select place.period_seconds, to_timestamp(place.started_at) as started_at, place.started_at as started_epoch,
        place.task_identifier, sum(minute.succeeded) as succeeded, sum(minute.failed) as failed,
        sum(minute.permanently_failed) as permanently_failed, sum(minute.interrupted) as interrupted,
        sum(minute.duration_seconds) as duration_seconds, sum(minute.wait_seconds) as wait_seconds
      from place join minute on minute.minute = place.minute and minute.task = place.task
      group by place.period_seconds, place.started_at, place.task_identifier
    ) as summed
    left join histogram on histogram.period_seconds = summed.period_seconds
      and histogram.started_at = summed.started_epoch and histogram.task_identifier = summed.task_identifier
  ), known as materialized (
    select known.period_seconds, known.started_at, known.task_identifier
    from (select * from total order by total.period_seconds, total.started_at, total.task_identifier collate "C") as total
    cross join lateral (
      select statistics.* from only :SCHEMA._private_statistics as statistics
      where statistics.period_seconds = total.period_seconds and statistics.started_at = total.started_at
        and statistics.task_identifier = total.task_identifier
      for update of statistics
    ) as known
  ), added as (
    update only :SCHEMA._private_statistics as statistics set
      succeeded = statistics.succeeded + total.succeeded,
      failed = statistics.failed + total.failed,
      permanently_failed = statistics.permanently_failed + total.permanently_failed,
      interrupted = statistics.interrupted + total.interrupted,
      duration_seconds = statistics.duration_seconds + total.duration_seconds,
      wait_seconds = statistics.wait_seconds + total.wait_seconds,
      durations = :SCHEMA._private_add_to_buckets(statistics.durations, total.ran_in, total.ran),
      waits = :SCHEMA._private_add_to_buckets(statistics.waits, total.waited_in, total.waited)
    from known
    join total using (period_seconds, started_at, task_identifier)
    where statistics.period_seconds = known.period_seconds and statistics.started_at = known.started_at
      and statistics.task_identifier = known.task_identifier
  )
  insert into :SCHEMA._private_statistics as statistics (
    period_seconds, started_at, task_identifier, succeeded, failed, permanently_failed, interrupted,
    duration_seconds, wait_seconds, durations, waits)
  select total.period_seconds, total.started_at, total.task_identifier, total.succeeded, total.failed,
    total.permanently_failed, total.interrupted, total.duration_seconds, total.wait_seconds,
    :SCHEMA._private_add_to_buckets(array_fill(0, array[48]), total.ran_in, total.ran),
    :SCHEMA._private_add_to_buckets(array_fill(0, array[48]), total.waited_in, total.waited)
  from total
  where not exists (
    select from known
    where known.period_seconds = total.period_seconds and known.started_at = total.started_at
      and known.task_identifier = total.task_identifier)
  order by total.period_seconds, total.started_at, total.task_identifier collate "C"
  on conflict on constraint statistics_pkey do update set
    succeeded = statistics.succeeded + excluded.succeeded,
    failed = statistics.failed + excluded.failed,
    permanently_failed = statistics.permanently_failed + excluded.permanently_failed,
    interrupted = statistics.interrupted + excluded.interrupted,
    duration_seconds = statistics.duration_seconds + excluded.duration_seconds,
    wait_seconds = statistics.wait_seconds + excluded.wait_seconds,
    durations = array(
      select coalesce(each.a, 0) + coalesce(each.b, 0)
      from unnest(statistics.durations, excluded.durations) with ordinality as each (a, b, place) order by each.place),
    waits = array(
      select coalesce(each.a, 0) + coalesce(each.b, 0)
      from unnest(statistics.waits, excluded.waits) with ordinality as each (a, b, place) order by each.place);
  return cardinality(taken);
end
$function$;
