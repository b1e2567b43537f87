/* gw:install */
-- What the charts of the admin show beside the counts of tasks: the counts of named queues and of workers, and samples
-- of how many jobs there are.

-- The counts of one queue or worker in one period, in the four resolutions of _private_statistics. A site may have
-- any number of queues: each period has the counts of a limited number of names, and under an empty name the counts of
-- all others together.
create table :SCHEMA._private_named_statistics (
  kind text not null constraint named_statistics_kind_check check (kind in ('queue', 'worker')),
  period_seconds integer not null,
  started_at timestamptz not null,
  name text not null,
  succeeded bigint not null default 0,
  failed bigint not null default 0,
  permanently_failed bigint not null default 0,
  interrupted bigint not null default 0,
  duration_seconds double precision not null default 0,
  wait_seconds double precision not null default 0,
  durations integer[] not null,
  waits integer[] not null,
  constraint named_statistics_pkey primary key (kind, period_seconds, started_at, name)
) with (fillfactor = 60);
alter table :SCHEMA._private_named_statistics enable row level security;

-- Each worker adds its counts as a row here, for which no other session waits, and one worker adds up the rows of all.
-- Not in _private_statistics_pending: workers of an older version add up that table.
-- A row without counts has the time of the last addition.
create table :SCHEMA._private_named_statistics_pending (
  id bigint generated always as identity constraint named_statistics_pending_pkey primary key,
  recorded_at timestamptz not null default pg_catalog.clock_timestamp(),
  counted json
);
alter table :SCHEMA._private_named_statistics_pending enable row level security;

-- One row for each minute in which a worker was running: how many jobs were in each state.
create table :SCHEMA._private_backlog_samples (
  minute timestamptz constraint backlog_samples_pkey primary key,
  sampled_at timestamptz not null,
  ready bigint not null default 0,
  scheduled bigint not null default 0,
  running bigint not null default 0,
  retrying bigint not null default 0,
  permanently_failed bigint not null default 0,
  -- The states whose number is an estimate, because there are too many jobs to count.
  estimated text[] not null default '{}',
  -- The last id that the sequence of the jobs has given out; null if the role of the worker may not read it.
  last_job_id bigint,
  -- By the identifier of the task: how many jobs are ready, retrying and permanently failed. Only tasks with many jobs,
  -- and only in the latest sample.
  tasks json
);
alter table :SCHEMA._private_backlog_samples enable row level security;

-- The roles that had rights to the statistics before these tables existed get the same rights to the tables; the
-- policies are for roles that get them later.
do $do$
declare
  added text;
  role text;
  may_write boolean;
begin
  foreach added in array array['_private_named_statistics', '_private_named_statistics_pending', '_private_backlog_samples']
  loop
    execute format('create policy %I on :SCHEMA.%I using (true) with check (true)', substr(added, 10) || '_by_grant', added);
    for role, may_write in
      select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end,
        bool_or(granted.privilege_type = 'UPDATE')
      from pg_class as statistics
        cross join lateral aclexplode(statistics.relacl) as granted
      where statistics.oid = ':SCHEMA._private_statistics'::regclass
        and granted.privilege_type in ('SELECT', 'UPDATE')
        and granted.grantee <> statistics.relowner
      group by granted.grantee
    loop
      if may_write then
        execute format('grant select, insert, update, delete on :SCHEMA.%I to %s', added, role);
      else
        execute format('grant select on :SCHEMA.%I to %s', added, role);
      end if;
    end loop;
  end loop;
end
$do$;

-- Adds what is pending to the statistics of queues and workers, unless that was done a moment ago or is being done;
-- with an interval of zero it is done in any case, after the others. Returns how many rows were pending.
-- A period that has the counts of `most_names` names adds the counts of further names to the row of all others.
create function :SCHEMA._private_fold_named_statistics_v1(at_least_after interval, most integer, most_names integer)
returns integer language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:fold_named_statistics */
declare
  taken json[];
begin
  if exists (
    select from :SCHEMA._private_named_statistics_pending as pending
    where pending.counted is null and pending.recorded_at > clock_timestamp() - at_least_after
  ) or not exists (
    select from :SCHEMA._private_named_statistics_pending as pending where pending.counted is not null
  ) then
    return 0;
  end if;
  if at_least_after <= interval '0 seconds' then
    lock table only :SCHEMA._private_named_statistics_pending in share update exclusive mode;
  else
    begin
      lock table only :SCHEMA._private_named_statistics_pending in share update exclusive mode nowait;
    exception when lock_not_available then
      return 0;
    end;
  end if;

  with chosen as (
    delete from only :SCHEMA._private_named_statistics_pending as pending
    where pending.id in (
      select oldest.id from only :SCHEMA._private_named_statistics_pending as oldest
      order by oldest.counted is not null, oldest.id limit most)
    returning pending.counted
  )
  select array_agg(chosen.counted) filter (where chosen.counted is not null) into taken from chosen;
  insert into :SCHEMA._private_named_statistics_pending (counted) values (null);
  if taken is null then
    return 0;
  end if;

  with written as materialized (
    select row_number() over () as line, counted.kind, counted.name collate "C" as name, counted.minute,
      counted.succeeded, counted.failed, counted.permanently_failed, counted.interrupted, counted.duration_seconds,
      counted.wait_seconds, counted.ran_in, counted.ran, counted.waited_in, counted.waited
    from unnest(taken) as document (text)
    cross join lateral json_to_recordset(document.text) as counted (
      kind text, name text, minute bigint, succeeded bigint, failed bigint, permanently_failed bigint,
      interrupted bigint, duration_seconds float8, wait_seconds float8,
      ran_in integer[], ran bigint[], waited_in integer[], waited bigint[])
  ), place as materialized (
    -- Each minute is a part of four periods.
    select written.line, written.kind, period.seconds as period_seconds,
      to_timestamp(written.minute - written.minute % period.seconds) as started_at, written.name,
      written.succeeded + written.failed + written.permanently_failed as ended
    from written
    cross join (values (60), (600), (3600), (86400)) as period (seconds)
  ), candidate as materialized (
    select each.kind, each.period_seconds, each.started_at, each.name, each.ended,
      each.name = '' or exists (
        select from only :SCHEMA._private_named_statistics as known
        where known.kind = each.kind and known.period_seconds = each.period_seconds
          and known.started_at = each.started_at and known.name = each.name) as is_known,
      (select count(*) from only :SCHEMA._private_named_statistics as known
        where known.kind = each.kind and known.period_seconds = each.period_seconds
          and known.started_at = each.started_at and known.name <> '') as names
    from (
      select place.kind, place.period_seconds, place.started_at, place.name, sum(place.ended) as ended
      from place group by place.kind, place.period_seconds, place.started_at, place.name
    ) as each
  ), admitted as materialized (
    -- Of the names that are new in their period, the busiest have a row of their own while there is room.
    select candidate.kind, candidate.period_seconds, candidate.started_at, candidate.name,
      case when candidate.is_known or candidate.names + row_number() over (
        partition by candidate.kind, candidate.period_seconds, candidate.started_at, candidate.is_known
        order by candidate.ended desc, candidate.name) <= most_names then candidate.name else '' end as counted_as
    from candidate
  ), target as materialized (
    select place.line, place.kind, place.period_seconds, place.started_at, admitted.counted_as as name
    from place
    join admitted on admitted.kind = place.kind and admitted.period_seconds = place.period_seconds
      and admitted.started_at = place.started_at and admitted.name = place.name
  ), histogram as (
    select each.kind, each.period_seconds, each.started_at, each.name,
      array_agg(each.bucket) filter (where not each.is_wait) as ran_in,
      array_agg(each.number) filter (where not each.is_wait) as ran,
      array_agg(each.bucket) filter (where each.is_wait) as waited_in,
      array_agg(each.number) filter (where each.is_wait) as waited
    from (
      select target.kind, target.period_seconds, target.started_at, target.name, measured.is_wait, measured.bucket,
        sum(measured.number)::bigint as number
      from target
      join written on written.line = target.line
      cross join lateral (
        select false as is_wait, ran.bucket, ran.number
        from unnest(written.ran_in, written.ran) as ran (bucket, number)
        union all
        select true, waited.bucket, waited.number
        from unnest(written.waited_in, written.waited) as waited (bucket, number)
      ) as measured
      group by target.kind, target.period_seconds, target.started_at, target.name, measured.is_wait, measured.bucket
    ) as each
    group by each.kind, each.period_seconds, each.started_at, each.name
  ), summed as (
    select target.kind, target.period_seconds, target.started_at, target.name, sum(written.succeeded) as succeeded,
      sum(written.failed) as failed, sum(written.permanently_failed) as permanently_failed,
      sum(written.interrupted) as interrupted, sum(written.duration_seconds) as duration_seconds,
      sum(written.wait_seconds) as wait_seconds
    from target join written on written.line = target.line
    group by target.kind, target.period_seconds, target.started_at, target.name
  )
  insert into :SCHEMA._private_named_statistics as statistics (
    kind, period_seconds, started_at, name, succeeded, failed, permanently_failed, interrupted, duration_seconds,
    wait_seconds, durations, waits)
  select summed.kind, summed.period_seconds, summed.started_at, summed.name collate "default", summed.succeeded,
    summed.failed, summed.permanently_failed, summed.interrupted, summed.duration_seconds, summed.wait_seconds,
    :SCHEMA._private_add_to_buckets(array_fill(0, array[48]), histogram.ran_in, histogram.ran),
    :SCHEMA._private_add_to_buckets(array_fill(0, array[48]), histogram.waited_in, histogram.waited)
  from summed
  left join histogram on histogram.kind = summed.kind and histogram.period_seconds = summed.period_seconds
    and histogram.started_at = summed.started_at and histogram.name = summed.name
  on conflict on constraint named_statistics_pkey do update set
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

-- Estimates how many jobs of each task are in each state, from some pages of the table: about `most_pages`. The seed is
-- fixed, so that two estimates read the same pages, and their difference shows what has changed.
create function :SCHEMA._private_estimate_backlog_v1(most_pages integer, moment timestamptz default null)
returns table (task_id integer, ready float8, waiting float8, retrying float8, permanently_failed float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off set max_parallel_workers_per_gather = 0
as $function$
/* gw:estimate_backlog */
declare
  this_moment constant timestamptz := coalesce(moment, clock_timestamp());
  pages constant float8 := greatest(
    pg_relation_size(':SCHEMA._private_jobs'::regclass) / current_setting('block_size')::float8, 1);
  percent constant float8 := least(100 * most_pages / pages, 100);
begin
  return query
    select job.task_id,
      count(*) filter (where job.is_available and job.run_at <= this_moment) * 100 / percent,
      count(*) filter (where job.is_available and job.run_at > this_moment and job.run_at < 'infinity') * 100 / percent,
      count(*) filter (where job.locked_at is null and job.attempts > 0 and job.is_available
        and job.run_at > this_moment and job.run_at < 'infinity') * 100 / percent,
      count(*) filter (where job.locked_at is null and job.attempts > 0 and not job.is_available) * 100 / percent
    from only :SCHEMA._private_jobs as job tablesample system (percent) repeatable (0)
    group by job.task_id;
end
$function$;

-- Counts the jobs in each state, once in each minute: of workers that call it at the same time, one counts. Each count
-- ends after `most` entries of an index; what has more is estimated. Returns whether this call counted.
create function :SCHEMA._private_sample_backlog_v1(
  most integer, most_pages integer, many integer, moment timestamptz default null)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- Each count reads one index in order. A bitmap or a sequential scan would read the table before the limit applies.
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set max_parallel_workers_per_gather = 0
as $function$
/* gw:sample_backlog */
declare
  this_moment constant timestamptz := coalesce(moment, clock_timestamp());
  this_minute constant timestamptz := date_trunc('minute', this_moment);
  jobs_sequence constant regclass := pg_get_serial_sequence(':SCHEMA._private_jobs', 'id')::regclass;
  inexact text[] := '{}';
  examined bigint;
  ready_jobs bigint;
  waiting_jobs bigint;
  retrying_jobs bigint;
  failed_jobs bigint;
  running_jobs bigint;
  by_task json := '[]';
  part json;
  estimate json;
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

  select count(*) into running_jobs
  from (
    select from only :SCHEMA._private_jobs as job where job.locked_at is not null order by job.locked_at limit most
  ) as locked;

  -- All available jobs, if they are few: one pass counts the ready and the waiting jobs.
  select coalesce(sum(each.ready + each.waiting + each.parked), 0), coalesce(sum(each.ready), 0),
    coalesce(sum(each.waiting), 0),
    coalesce(json_agg(json_build_array(each.task_id, each.ready, 0, 0)) filter (where each.ready > many), '[]')
  into examined, ready_jobs, waiting_jobs, by_task
  from (
    select job.task_id, count(*) filter (where job.run_at <= this_moment) as ready,
      count(*) filter (where job.run_at > this_moment and job.run_at < 'infinity') as waiting,
      count(*) filter (where job.run_at = 'infinity') as parked
    from (
      select job.task_id, job.run_at from only :SCHEMA._private_jobs as job
      where job.is_available order by job.priority, job.run_at limit most + 1
    ) as job
    group by job.task_id
  ) as each;
  if examined > most then
    inexact := inexact || array['waiting'];
    -- The ready jobs alone: on each level of priority, they are a range of the index.
    select coalesce(sum(each.ready), 0),
      coalesce(json_agg(json_build_array(each.task_id, each.ready, 0, 0)) filter (where each.ready > many), '[]')
    into ready_jobs, by_task
    from (
      with recursive level (priority) as (
        (select job.priority from only :SCHEMA._private_jobs as job
        where job.is_available order by job.priority, job.run_at limit 1)
        union all
        select (
          select job.priority from only :SCHEMA._private_jobs as job
          where job.is_available and job.priority > level.priority order by job.priority, job.run_at limit 1)
        from level where level.priority is not null
      )
      select found.task_id, count(*) as ready
      from (
        select job.task_id
        from (select level.priority from level where level.priority is not null limit 1000) as level
        cross join lateral (
          select job.task_id from only :SCHEMA._private_jobs as job
          where job.is_available and job.priority = level.priority and job.run_at <= this_moment
          order by job.priority, job.run_at limit most + 1
        ) as job
        limit most + 1
      ) as found
      group by found.task_id
    ) as each;
    if ready_jobs > most then
      inexact := inexact || array['ready'];
    end if;
  end if;

  -- The jobs that failed at least once have an index of their own.
  select coalesce(sum(each.examined), 0), coalesce(sum(each.retrying), 0), coalesce(sum(each.failed), 0),
    coalesce(json_agg(json_build_array(each.task_id, 0, each.retrying, each.failed))
      filter (where each.retrying > many or each.failed > many), '[]')
  into examined, retrying_jobs, failed_jobs, part
  from (
    select job.task_id, count(*) as examined,
      count(*) filter (where job.is_available and job.run_at > this_moment and job.run_at < 'infinity') as retrying,
      count(*) filter (where not job.is_available) as failed
    from (
      select job.task_id, job.is_available, job.run_at from only :SCHEMA._private_jobs as job
      where job.locked_at is null and job.attempts > 0
      order by job.task_id, job.is_available, job.run_at, job.id limit most + 1
    ) as job
    group by job.task_id
  ) as each;
  if examined > most then
    inexact := inexact || array['retrying', 'permanently_failed'];
  end if;

  if inexact <> '{}' then
    select case when 'ready' = any (inexact) then greatest(sum(each.ready), ready_jobs) else ready_jobs end,
      case when 'waiting' = any (inexact) then sum(each.waiting) else waiting_jobs end,
      case when 'retrying' = any (inexact) then sum(each.retrying) else retrying_jobs end,
      case when 'retrying' = any (inexact) then sum(each.permanently_failed) else failed_jobs end,
      json_agg(json_build_array(each.task_id, round(each.ready), round(each.retrying), round(each.permanently_failed)))
        filter (where each.ready > many or each.retrying > many or each.permanently_failed > many)
    into ready_jobs, waiting_jobs, retrying_jobs, failed_jobs, estimate
    from :SCHEMA._private_estimate_backlog_v1(most_pages, this_moment) as each;
  end if;

  update :SCHEMA._private_backlog_samples as sample set tasks = null
  where sample.tasks is not null and sample.minute < this_minute;
  update :SCHEMA._private_backlog_samples as sample
  set ready = coalesce(ready_jobs, 0),
    -- Every retrying job waits; a waiting job that was never tried is scheduled.
    scheduled = greatest(coalesce(waiting_jobs - retrying_jobs, 0), 0),
    running = running_jobs, retrying = coalesce(retrying_jobs, 0),
    permanently_failed = coalesce(failed_jobs, 0),
    estimated = array(
      select distinct case state when 'waiting' then 'scheduled' else state end from unnest(
        inexact || case when 'retrying' = any (inexact) then array['waiting'] else '{}' end) as state order by 1),
    last_job_id = case when has_sequence_privilege(jobs_sequence, 'usage, select')
      then coalesce(pg_sequence_last_value(jobs_sequence), 0) end,
    tasks = (
      select json_object_agg(task.identifier, json_build_array(many_jobs.ready, many_jobs.retrying, many_jobs.failed))
      from (
        select (each.numbers ->> 0)::integer as task_id, max((each.numbers ->> 1)::float8)::bigint as ready,
          max((each.numbers ->> 2)::float8)::bigint as retrying, max((each.numbers ->> 3)::float8)::bigint as failed
        from (
          select json_array_elements(by_task) as numbers
          union all select json_array_elements(part)
          union all select json_array_elements(estimate)
        ) as each
        group by 1
        order by max((each.numbers ->> 1)::float8) desc
        limit 200
      ) as many_jobs
      join only :SCHEMA._private_tasks as task on task.id = many_jobs.task_id)
  where sample.minute = this_minute;
  return true;
end
$function$;
