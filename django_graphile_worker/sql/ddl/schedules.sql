/* gw:install */
-- The definition of a schedule, for the record of its changes: the same text in every session.
create or replace function :SCHEMA._private_schedule_definition(schedule :SCHEMA._private_schedules)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp set timezone = 'UTC' set intervalstyle = 'iso_8601'
as $$
select to_jsonb(schedule) - array['id', 'changed_by', 'is_from_code', 'created_at', 'changed_at', 'revision', 'anchor_at', 'counts_from',
  'former_times', 'next_at', 'last_tick', 'last_job_id', 'last_missed_at']
$$;

-- The former times of a schedule whose times change now. Its next time says whether any of them may be due: if it is
-- -infinity, no worker has computed it since the last change. At most a hundred changes that no worker has seen are kept.
create or replace function :SCHEMA._private_former_times(schedule :SCHEMA._private_schedules, changed_at timestamptz)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
select case when not schedule.is_enabled or schedule.next_at > changed_at or period.after >= changed_at
  then schedule.former_times
  else (case when jsonb_array_length(schedule.former_times) < 100 then schedule.former_times
      else schedule.former_times - 0 end)
    || (jsonb_build_object('cron', schedule.cron, 'time_zone', schedule.time_zone,
        'interval', (extract(epoch from schedule."interval") * 1000000)::bigint)
      || (select jsonb_object_agg(moment.name, (extract(epoch from moment.at) * 1000000)::bigint)
        from (values ('run_at', schedule.run_at), ('starts_at', schedule.starts_at), ('ends_at', schedule.ends_at),
          ('anchor_at', schedule.anchor_at), ('after', period.after), ('until', changed_at)) as moment(name, at)))
  end
from (select greatest(schedule.counts_from, schedule.paused_until - interval '1 microsecond',
    case when isfinite(schedule.next_at) then schedule.next_at - interval '1 microsecond' end) as after) as period
$$;

-- Before a definition is written. It also runs for an update that changes nothing. A test whose clock is moved states the
-- time in the setting graphile_worker.now.
create or replace function :SCHEMA._private_write_schedule()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this_moment constant timestamptz := coalesce(
    nullif(current_setting('graphile_worker.now', true), '')::timestamptz, clock_timestamp());
begin
  if tg_op = 'INSERT' then
    new.created_at := this_moment;
    new.revision := 0;
    new.counts_from := this_moment;
    new.former_times := '[]';
    new.anchor_at := coalesce(new.starts_at, date_trunc('second', this_moment));
    new.last_tick := null;
    new.last_job_id := null;
    new.last_missed_at := null;
    new.next_at := case when new.is_enabled then '-infinity' else 'infinity' end;
  else
    new.created_at := old.created_at;
    new.revision := old.revision;
    new.anchor_at := old.anchor_at;
    new.counts_from := old.counts_from;
    new.former_times := old.former_times;
    new.next_at := old.next_at;
    new.last_tick := old.last_tick;
    new.last_job_id := old.last_job_id;
    new.last_missed_at := old.last_missed_at;
    if :SCHEMA._private_schedule_definition(new) = :SCHEMA._private_schedule_definition(old) then
      new.changed_by := old.changed_by;
      new.changed_at := old.changed_at;
      return new;
    end if;
    new.revision := old.revision + 1;
    if (new.cron, new."interval", new.run_at, new.time_zone, new.starts_at, new.ends_at, new.is_enabled,
        new.paused_until)
      is distinct from (old.cron, old."interval", old.run_at, old.time_zone, old.starts_at, old.ends_at,
        old.is_enabled, old.paused_until)
    then
      new.former_times := :SCHEMA._private_former_times(old, this_moment);
      if old.run_at <> coalesce(new.run_at, 'infinity') then
        -- A single time that was moved is not fired beside the new one.
        if jsonb_path_exists(new.former_times, '$[*] ? (@.run_at > @.after && @.run_at <= @.until)') then
          insert into :SCHEMA._private_schedule_runs (schedule_id, tick, kind) values (old.id, old.run_at, 'missed');
          perform :SCHEMA._private_add_event('schedule_missed', 2, old.name, jsonb_build_object(
            'name', old.name, 'schedule', old.id, 'ticks', 1, 'first_tick', old.run_at, 'last_tick', old.run_at,
            'last_execution', old.last_tick), null, null, true);
          new.last_missed_at := old.run_at;
        end if;
        new.former_times := jsonb_path_query_array(new.former_times, '$[*] ? (@.run_at == null)');
      end if;
      -- A time that was fired stays fired if the clock was set back a little since.
      new.counts_from := case when old.last_tick between this_moment and this_moment + interval '1 hour'
        then old.last_tick else this_moment end;
      if (new."interval", new.starts_at) is distinct from (old."interval", old.starts_at) then
        new.anchor_at := coalesce(new.starts_at, date_trunc('second', this_moment));
      end if;
      new.next_at := case when new.is_enabled then '-infinity' else 'infinity' end;
    end if;
  end if;
  new.changed_at := this_moment;
  new.changed_by := coalesce(current_setting('graphile_worker.changed_by', true), '');
  return new;
end
$$;

create or replace function :SCHEMA._private_record_schedule_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and old.revision = new.revision then
    return null;
  end if;
  insert into :SCHEMA._private_schedule_changes (schedule_id, changed_at, changed_by, before, after)
  values (old.id, clock_timestamp(), coalesce(current_setting('graphile_worker.changed_by', true), ''),
    :SCHEMA._private_schedule_definition(old),
    case when tg_op = 'UPDATE' then :SCHEMA._private_schedule_definition(new) end);
  delete from :SCHEMA._private_schedule_changes as change
  where change.schedule_id = old.id and change.id <= (
    select kept.id from :SCHEMA._private_schedule_changes as kept
    where kept.schedule_id = old.id order by kept.id desc offset 100 limit 1);
  return null;
end
$$;

-- Wakes the workers: a transaction sends the notification once, however many schedules it changes.
create or replace function :SCHEMA._private_notify_schedules()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform :SCHEMA._private_notify_control();
  return null;
end
$$;

create or replace trigger schedules_write before insert or update of name, task, payload, cron, "interval", run_at, time_zone,
  starts_at, ends_at, queue_name, priority, max_attempts, job_key, missed, missed_within, overlap, is_enabled,
  paused_until, description, changed_by
  on :SCHEMA._private_schedules for each row execute function :SCHEMA._private_write_schedule();

create or replace trigger schedules_record after update of name, task, payload, cron, "interval", run_at, time_zone,
  starts_at, ends_at, queue_name, priority, max_attempts, job_key, missed, missed_within, overlap, is_enabled,
  paused_until, description, changed_by or delete
  on :SCHEMA._private_schedules for each row execute function :SCHEMA._private_record_schedule_change();

create or replace trigger schedules_notify after insert or update of name, task, payload, cron, "interval", run_at, time_zone,
  starts_at, ends_at, queue_name, priority, max_attempts, job_key, missed, missed_within, overlap, is_enabled,
  paused_until, description, changed_by
  on :SCHEMA._private_schedules for each statement execute function :SCHEMA._private_notify_schedules();

-- What belongs to the rows of runs, whoever adds them: a worker at a tick of a schedule or of the crontab, or a person.
--
-- The job of a run has a flag, "schedule:<id>:<seconds>" or "crontab:<seconds>", and gets a row of results, status 0,
-- in the statement that adds it. Each statement that ends a job records its end in the row of results if there is one:
-- also the statements that know only the tasks of which results are kept, such as a recovery, a removal or a
-- cancellation. So the outcome of the run is known whatever becomes of the job, for as many seconds as the flag says.
--
-- The latest fifty rows of each item of the crontab are kept, and some more: the older rows of an item are deleted by
-- one of eight rows that are added. Those of a schedule are deleted by the statement that fires it.
create or replace function :SCHEMA._private_note_runs()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
begin
    -- A job that was replaced under its key has a row already. A role that got its rights before there were results may
    -- not write them.
    if has_table_privilege(':SCHEMA._private_results', 'insert')
        and has_table_privilege(':SCHEMA._private_results', 'select') then
        insert into :SCHEMA._private_results (
            job_id, task_identifier, queue_name, job_key, status, revision, added_at, expires_at)
        select job.id, task.identifier, queue.queue_name, job.key, 0, job.revision, job.created_at,
            clock_timestamp() + flag.seconds * interval '1 second'
        from added as run
        join only :SCHEMA._private_jobs as job on job.id = run.job_id
        join only :SCHEMA._private_tasks as task on task.id = job.task_id
        left join only :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
        cross join lateral (
            -- In a tenth of the time of a regular expression.
            select max(part.seconds::int) as seconds
            from jsonb_object_keys(case when jsonb_typeof(job.flags) = 'object' then job.flags else '{}' end)
                as name(flag)
            cross join lateral (
                select case when starts_with(name.flag, 'schedule:') then split_part(name.flag, ':', 2) else '0' end
                        as id,
                    split_part(name.flag, ':', case when starts_with(name.flag, 'schedule:') then 3 else 2 end)
                        as seconds
            ) as part
            where name.flag in ('schedule:' || part.id || ':' || part.seconds, 'crontab:' || part.seconds)
                and ltrim(part.id, '0123456789') = '' and length(part.id) between 1 and 18
                and ltrim(part.seconds, '0123456789') = '' and length(part.seconds) between 1 and 9
        ) as flag
        where flag.seconds is not null
        on conflict on constraint results_pkey do nothing;
    end if;
    delete from :SCHEMA._private_schedule_runs as early
    using (
        select distinct run.crontab_identifier from added as run
        where run.crontab_identifier is not null and run.id % 8 = 0
    ) as source
    where early.crontab_identifier = source.crontab_identifier and early.id <= (
        select late.id from :SCHEMA._private_schedule_runs as late
        where late.crontab_identifier = source.crontab_identifier order by late.id desc offset 50 limit 1);
    return null;
end
$$;

create or replace trigger schedule_runs_note after insert on :SCHEMA._private_schedule_runs
  referencing new table as added
  for each statement execute function :SCHEMA._private_note_runs();
