/* gw:uninstall */
-- Drops what this package added to the schema, and leaves graphile-worker's tables and the public functions. Nothing is
-- dropped by cascade: what somebody built upon these objects is for them to drop.

-- The order of the locks is that of adding a job.
lock table :SCHEMA._private_schedules, :SCHEMA._private_unique_jobs, :SCHEMA._private_jobs in access exclusive mode;

-- A parked job would wait for ever, and nothing would free a paused queue.
update only :SCHEMA._private_jobs as job
set run_at = limited.run_at
from :SCHEMA._private_limited_jobs as limited
where job.id = limited.job_id and job.run_at = 'infinity';
do $do$
declare
  pause record;
begin
  for pause in select kind, name from :SCHEMA._private_pauses loop
    perform :SCHEMA._private_resume(pause.kind, pause.name);
  end loop;
end
$do$;

drop trigger if exists schedules_write on :SCHEMA._private_schedules;
drop trigger if exists schedules_record on :SCHEMA._private_schedules;
drop trigger if exists schedules_notify on :SCHEMA._private_schedules;
drop trigger if exists schedule_runs_note on :SCHEMA._private_schedule_runs;

:DROP_FUNCTIONS
drop table :SCHEMA._private_action_steps, :SCHEMA._private_actions;
drop table :SCHEMA._private_pauses, :SCHEMA._private_paused_crontabs;
drop table :SCHEMA._private_schedule_changes, :SCHEMA._private_schedule_runs, :SCHEMA._private_schedules;
drop table :SCHEMA._private_limit_overrides, :SCHEMA._private_limit_starts, :SCHEMA._private_limit_places,
  :SCHEMA._private_limited_jobs, :SCHEMA._private_limit_lane_keys, :SCHEMA._private_limit_lanes,
  :SCHEMA._private_limit_keys;
drop type :SCHEMA._private_chosen_job, :SCHEMA._private_key_room;
drop table :SCHEMA._private_events, :SCHEMA._private_alerts;
drop table :SCHEMA._private_backlog_samples, :SCHEMA._private_statistics_pending, :SCHEMA._private_statistics;
drop table :SCHEMA._private_unique_jobs;
drop type :SCHEMA._private_ended_attempt;
drop table :SCHEMA._private_history, :SCHEMA._private_waiters, :SCHEMA._private_results, :SCHEMA._private_progress;
drop table :SCHEMA._private_stop_requests, :SCHEMA._private_cancellations;
drop table :SCHEMA._private_job_recoveries, :SCHEMA._private_workers;
drop type
  :SCHEMA._private_claim_terms, :SCHEMA._private_steps, :SCHEMA._private_candidate, :SCHEMA._private_place,
  :SCHEMA._private_continuation;

-- A value that an administrator has chosen stays.
do $do$
begin
  if exists (
    select from pg_class
    where oid = ':SCHEMA._private_jobs'::regclass and 'fillfactor=40' = any (reloptions)
  ) then
    alter table :SCHEMA._private_jobs reset (fillfactor);
  end if;
end
$do$;
