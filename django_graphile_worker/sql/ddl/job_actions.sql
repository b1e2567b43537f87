/* gw:install */
-- Actions of operators on jobs, and what is needed to undo them.
--
-- An action on all jobs that match a search first collects the ids of the jobs, in one snapshot, and then changes them in
-- steps, each in its own transaction. So a job that changes its state in between is still found, and none is found twice.
-- A row is a step: before it, the ids of its jobs; after it, the jobs that it changed and the values that they had. The
-- rows of an action that cannot be undone are deleted. When an action begins, steps that were done more than an hour ago
-- are deleted, and steps of an action that nobody has continued for a day.
--
-- The jobs are collected when the user is asked to confirm their number, so what is confirmed is what is changed. The
-- figures of an action are written by the transaction of each step, and whoever continues or stops it reads them here.
create table :SCHEMA._private_actions (
  id uuid constraint actions_pkey primary key,
  -- The action, and the user that may continue, stop and undo it.
  action text not null,
  made_by text not null,
  made_at timestamptz not null default pg_catalog.now(),
  -- After this no step begins.
  stopped_at timestamptz,
  progress jsonb not null
);
alter table :SCHEMA._private_actions enable row level security;

-- "if not exists" keeps the index out of the list of indexes that a later migration builds: the table is new and empty.
create table :SCHEMA._private_action_steps (
  action_id uuid not null,
  number int not null,
  -- The action, and the user that may continue and undo it.
  action text not null,
  made_by text not null,
  made_at timestamptz not null default pg_catalog.now(),
  job_ids bigint[] not null,
  -- Whether it visits the jobs a second time, because workers were running them at the first.
  is_repeated boolean not null default false,
  -- The time of the change, which is the updated_at of the jobs; null before the step.
  done_at timestamptz,
  changed_ids bigint[],
  run_ats timestamptz[],
  priorities smallint[],
  attempts smallint[],
  max_attempts smallint[],
  -- How long last_error was, if the action adds to it.
  error_lengths int[],
  constraint action_steps_pkey primary key (action_id, number)
);
alter table :SCHEMA._private_action_steps enable row level security;
create index if not exists action_steps_made_at_index on :SCHEMA._private_action_steps (made_at);

-- The roles that could change jobs before these tables existed may also use them; the policies are for roles that get the
-- right later.
create policy action_steps_by_grant on :SCHEMA._private_action_steps using (true) with check (true);
create policy actions_by_grant on :SCHEMA._private_actions using (true) with check (true);
do $do$
declare
  role text;
begin
  for role in
    select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end
    from pg_class as jobs
      cross join lateral aclexplode(jobs.relacl) as granted
    where jobs.oid = ':SCHEMA._private_jobs'::regclass
      and granted.privilege_type = 'UPDATE'
      and granted.grantee <> jobs.relowner
    group by granted.grantee
  loop
    execute format(
      'grant select, insert, update, delete on :SCHEMA._private_actions, :SCHEMA._private_action_steps to %s', role);
  end loop;
end
$do$;

-- Changes the jobs to which the action applies, and returns them. Jobs that a worker is running are left out. With a
-- step, the former values of the jobs are stored in its row.
--
-- run_now: waiting jobs become due. A job that is due stays as it is, so none moves behind others.
-- run_next: due jobs get the priority, which is lower than that of all other jobs.
-- retry: jobs that have failed get all their attempts again and become due, with another payload if one is given.
-- reschedule: the values that are given. A failed job that gets a time also gets its attempts again.
-- fail: waiting jobs have no attempts left. The reason is added to the error that they have, with the attempts that were
-- made: attempts.py reads them there.
create function :SCHEMA._private_change_jobs_v1(
    job_ids bigint[], action text, new_run_at timestamptz, new_priority int, new_attempts int, new_max_attempts int,
    new_payload json, of_revision int, reason text, moment timestamptz, stored_action uuid, stored_number int
) returns setof :SCHEMA._private_jobs
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(moment, now());
    locked bigint[];
    parked bigint[];
    chosen bigint[];
    old_run_ats timestamptz[];
    old_priorities smallint[];
    old_attempts smallint[];
    old_max_attempts smallint[];
    old_error_lengths int[];
    job :SCHEMA._private_jobs;
    due bigint := 0;
begin
    -- First locked, then looked at: until then, a sorter may park a job, and a claim may take it out of its lane.
    locked := array(
        select jobs.id from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (_private_change_jobs_v1.job_ids)
            and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
            and (of_revision is null or jobs.revision = of_revision)
            and case action
                when 'run_now' then jobs.attempts < jobs.max_attempts and jobs.run_at > this_moment
                when 'run_next' then jobs.attempts < jobs.max_attempts and jobs.priority > new_priority
                    and (jobs.run_at <= this_moment or jobs.run_at = 'infinity')
                when 'retry' then jobs.attempts > 0
                when 'fail' then jobs.attempts < jobs.max_attempts
                when 'reschedule' then true
            end
        order by jobs.id
        for update);
    -- A parked job has its priority in its lane, too, and infinity as its time: it is sorted again.
    if action <> 'run_now' then
        parked := array(
            select limited.job_id from only :SCHEMA._private_limited_jobs as limited
            where limited.job_id = any (locked));
        if cardinality(parked) > 0 then
            perform :SCHEMA._private_unpark_jobs_v1(parked);
        end if;
    end if;

    select array_agg(free.id), array_agg(free.run_at), array_agg(free.priority), array_agg(free.attempts),
        array_agg(free.max_attempts), array_agg(free.error_length)
    into chosen, old_run_ats, old_priorities, old_attempts, old_max_attempts, old_error_lengths
    from (
        select jobs.id, jobs.run_at, jobs.priority, jobs.attempts, jobs.max_attempts,
            case when action = 'fail' then length(jobs.last_error) end as error_length
        from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (locked) and case action
            when 'run_now' then not (jobs.run_at = 'infinity' and exists (
                select from only :SCHEMA._private_limited_jobs as limited where limited.job_id = jobs.id offset 0))
            when 'run_next' then jobs.run_at <= this_moment
            else true
        end
        order by jobs.id
    ) as free;

    for job in
        update only :SCHEMA._private_jobs as jobs set
            run_at = case
                when new_run_at is not null then new_run_at
                when action = 'run_now' or action = 'retry' and jobs.attempts < jobs.max_attempts
                    then least(jobs.run_at, this_moment)
                when action = 'retry' then this_moment
                else jobs.run_at
            end,
            priority = coalesce(new_priority, jobs.priority),
            attempts = case
                when new_attempts is not null then new_attempts
                when action = 'retry' then 0
                when action = 'fail' then jobs.max_attempts
                when action = 'reschedule' and new_run_at is not null
                    and jobs.attempts >= coalesce(new_max_attempts, jobs.max_attempts) then 0
                else jobs.attempts
            end,
            max_attempts = coalesce(new_max_attempts, jobs.max_attempts),
            last_error = case
                when action <> 'fail' then jobs.last_error
                else concat_ws(E'\n\n', nullif(jobs.last_error, ''), reason, format(
                    'Not tried again after attempt %s of %s.', jobs.attempts, jobs.max_attempts))
            end,
            payload = coalesce(new_payload, jobs.payload),
            revision = jobs.revision + (new_payload is not null)::int,
            updated_at = now()
        where jobs.id = any (chosen)
        returning jobs.*
    loop
        if job.is_available and :SCHEMA._private_is_due(job.run_at) then
            due := due + 1;
        end if;
        return next job;
    end loop;

    -- A job that was cancelled while it ran, and whose worker has been silent for hours, runs again: the marker of its
    -- cancellation would delete it when the old claim ends.
    if action <> 'fail' then
        delete from :SCHEMA._private_cancellations as marker where marker.job_id = any (chosen);
        delete from :SCHEMA._private_stop_requests as request where request.job_id = any (chosen);
    end if;
    if stored_action is not null then
        update :SCHEMA._private_action_steps as step
        set done_at = now(), changed_ids = coalesce(chosen, '{}'), run_ats = old_run_ats, priorities = old_priorities,
            attempts = old_attempts, max_attempts = old_max_attempts, error_lengths = old_error_lengths
        where step.action_id = stored_action and step.number = stored_number;
    end if;
    perform :SCHEMA._private_notify(due);
end
$$;

-- Gives the jobs of a step the values that they had before it, unless something has changed them since; returns their
-- ids.
create function :SCHEMA._private_undo_step_v1(stored_action uuid, stored_number int)
returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    step :SCHEMA._private_action_steps;
    unchanged bigint[];
    parked bigint[];
    due bigint;
begin
    select stored.* into step from :SCHEMA._private_action_steps as stored
    where stored.action_id = stored_action and stored.number = stored_number
    for update;
    unchanged := array(
        select jobs.id from only :SCHEMA._private_jobs as jobs
        where jobs.id = any (step.changed_ids) and jobs.locked_at is null and jobs.updated_at = step.done_at
        order by jobs.id
        for update);
    parked := array(
        select limited.job_id from only :SCHEMA._private_limited_jobs as limited where limited.job_id = any (unchanged));
    if cardinality(parked) > 0 then
        perform :SCHEMA._private_unpark_jobs_v1(parked);
    end if;
    with restored as (
        update only :SCHEMA._private_jobs as jobs set
            run_at = former.run_at,
            priority = former.priority,
            attempts = former.attempts,
            max_attempts = former.max_attempts,
            last_error = case
                when step.action <> 'fail' then jobs.last_error
                when former.error_length is not null then "left"(jobs.last_error, former.error_length)
            end,
            updated_at = now()
        from unnest(step.changed_ids, step.run_ats, step.priorities, step.attempts, step.max_attempts,
            step.error_lengths) as former(id, run_at, priority, attempts, max_attempts, error_length)
        where jobs.id = former.id and jobs.locked_at is null and jobs.updated_at = step.done_at
        returning jobs.is_available and :SCHEMA._private_is_due(jobs.run_at) as is_due
    )
    select count(*) filter (where restored.is_due) into due from restored;
    delete from :SCHEMA._private_action_steps as stored
    where stored.action_id = stored_action and stored.number = stored_number;
    perform :SCHEMA._private_notify(due);
    return unchanged;
end
$$;
