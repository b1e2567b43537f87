/* gw:install */
-- Events: what happened to workers, schedules, pauses and locks, for operators that look at it later.
--
-- An event is written by the statement that makes the change of which it tells, so the two are committed together, and
-- the row locks that let one worker win the change let one worker write the event. An event must never cost the change:
-- _private_add_event_v1 writes it in a subtransaction, waits for no lock longer than half a second, and turns an error
-- into a warning in the server's log.
--
-- The number of rows is bounded. If there are ten events of one kind and subject within an hour, further ones are
-- counted in the newest of them. Workers delete old rows, and the oldest of too many.
create table :SCHEMA._private_events (
  id bigint generated always as identity constraint events_pkey primary key,
  kind text not null,
  -- 1: information, 2: warning, 3: error.
  severity smallint not null,
  -- The host, queue, task, flag or crontab item that the event is about.
  subject text not null,
  worker_id text,
  -- Not null for an event that several workers find: the first of them writes it.
  identity text,
  first_at timestamptz not null,
  last_at timestamptz not null,
  number int not null default 1,
  details jsonb not null,
  dismissed_at timestamptz,
  dismissed_by text
);
alter table :SCHEMA._private_events enable row level security;

create index if not exists events_last_at_index on :SCHEMA._private_events (last_at, id);
create index if not exists events_subject_index on :SCHEMA._private_events (kind, subject, last_at);
create index if not exists events_worker_index on :SCHEMA._private_events (worker_id, id) where worker_id is not null;
create index if not exists events_alarm_index on :SCHEMA._private_events (last_at) where severity > 1 and dismissed_at is null;
create unique index events_identity_index on :SCHEMA._private_events (kind, subject, identity)
  where identity is not null;

-- The roles that had rights to jobs before this table existed get the same rights to it; the policy is for roles that
-- get them later.
create policy events_by_grant on :SCHEMA._private_events using (true) with check (true);
do $do$
declare
  role text;
  may_write boolean;
begin
  for role, may_write in
    select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end,
      bool_or(granted.privilege_type = 'UPDATE')
    from pg_class as jobs
      cross join lateral aclexplode(jobs.relacl) as granted
    where jobs.oid = ':SCHEMA._private_jobs'::regclass
      and granted.privilege_type in ('SELECT', 'UPDATE')
      and granted.grantee <> jobs.relowner
    group by granted.grantee
  loop
    if may_write then
      execute format('grant select, insert, update, delete on :SCHEMA._private_events to %s', role);
    else
      execute format('grant select on :SCHEMA._private_events to %s', role);
    end if;
  end loop;
end
$do$;

-- Returns the host of a worker, as its row in the register or an earlier event states it; the id of an unknown worker.
create function :SCHEMA._private_host_of_v1(worker text)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(
        (select nullif(each.metadata ->> 'host', '') from only :SCHEMA._private_workers as each where each.id = worker),
        (select event.details ->> 'host' from only :SCHEMA._private_events as event
        where event.worker_id = worker and event.details ->> 'host' <> '' order by event.id desc limit 1),
        worker);
end
$$;

-- Writes an event; returns its id, or null if it was not written. Without a subject, the subject is the host of the
-- worker. An event that merges is added to an event of the same kind, subject and worker within the last hour: its
-- numbers of jobs, queues and ticks are added up.
create function :SCHEMA._private_add_event_v1(
    kind text, severity int, subject text, details jsonb, worker_id text default null, identity text default null,
    merges boolean default false
) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := clock_timestamp();
    an_hour_ago constant timestamptz := this_moment - interval '1 hour';
    about jsonb := jsonb_strip_nulls(_private_add_event_v1.details);
    about_subject text := _private_add_event_v1.subject;
    repeated bigint;
    written bigint;
begin
    if about_subject is null then
        about_subject := :SCHEMA._private_host_of_v1(_private_add_event_v1.worker_id);
    end if;
    about_subject := left(coalesce(about_subject, ''), 300);
    if starts_with(about ->> 'by', 'django-worker-') then
        about := about || jsonb_build_object('by_host', :SCHEMA._private_host_of_v1(about ->> 'by'));
    end if;
    if merges then
        select event.id into repeated from only :SCHEMA._private_events as event
        where event.kind = _private_add_event_v1.kind and event.subject = about_subject
            and event.last_at > an_hour_ago
            and event.worker_id is not distinct from _private_add_event_v1.worker_id
        order by event.last_at desc limit 1
        for update skip locked;
    elsif _private_add_event_v1.identity is null and 10 <= (
        select count(*) from (
            select from only :SCHEMA._private_events as event
            where event.kind = _private_add_event_v1.kind and event.subject = about_subject
                and event.last_at > an_hour_ago
            limit 10) as recent)
    then
        select event.id into repeated from only :SCHEMA._private_events as event
        where event.kind = _private_add_event_v1.kind and event.subject = about_subject
            and event.last_at > an_hour_ago
        order by event.last_at desc limit 1
        for update skip locked;
    end if;
    if repeated is null then
        insert into :SCHEMA._private_events as event
            (kind, severity, subject, worker_id, identity, first_at, last_at, details)
        values (_private_add_event_v1.kind, _private_add_event_v1.severity, about_subject,
            _private_add_event_v1.worker_id, left(_private_add_event_v1.identity, 200), this_moment, this_moment, about)
        on conflict (kind, subject, identity) where identity is not null do nothing
        returning event.id into written;
    else
        update only :SCHEMA._private_events as event
        set last_at = this_moment,
            number = case when merges then event.number else event.number + 1 end,
            worker_id = coalesce(_private_add_event_v1.worker_id, event.worker_id),
            details = event.details || about || coalesce((
                select jsonb_object_agg(each.key, (event.details ->> each.key)::bigint + (about ->> each.key)::bigint)
                from unnest(array['jobs', 'queues', 'ticks']) as each(key)
                where jsonb_typeof(event.details -> each.key) = 'number' and jsonb_typeof(about -> each.key) = 'number'
            ), '{}'),
            dismissed_at = null, dismissed_by = null
        where event.id = repeated
        returning event.id into written;
    end if;
    return written;
exception when others then
    raise warning 'The event % was not written: %', _private_add_event_v1.kind, sqlerrm;
    return null;
end
$$;

-- Removes workers from the register that have not beaten since, and writes the event of each; returns their ids. Of
-- several sessions that call this at the same time, the row lock lets one remove each worker.
create function :SCHEMA._private_remove_dead_workers_v1(worker_ids text[], beats float8[], remover text)
returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    dead record;
    -- By the id of the worker. All are counted at once, because hundreds of workers may be lost at the same time.
    held_jobs jsonb;
    held_queues jsonb;
begin
    for dead in
        delete from only :SCHEMA._private_workers as worker
        where worker.ctid = any (array(
            select each.ctid
            from unnest(worker_ids, beats) as silent(id, beaten_at)
            join only :SCHEMA._private_workers as each on each.id = silent.id
            where date_part('epoch', each.last_heartbeat_at) = silent.beaten_at
            for update of each skip locked))
        returning worker.id, worker.metadata, worker.last_heartbeat_at, worker.started_at
    loop
        if held_jobs is null then
            select coalesce(jsonb_object_agg(each.worker, each.number), '{}') into held_jobs
            from (
                select :SCHEMA._private_worker_of(job.locked_by) as worker, count(*) as number
                from only :SCHEMA._private_jobs as job where job.locked_at is not null group by 1) as each
            where each.worker is not null;
            select coalesce(jsonb_object_agg(each.worker, each.number), '{}') into held_queues
            from (
                select :SCHEMA._private_worker_of(queue.locked_by) as worker, count(*) as number
                from only :SCHEMA._private_job_queues as queue where queue.locked_at is not null group by 1) as each
            where each.worker is not null;
        end if;
        perform :SCHEMA._private_add_event_v1('worker_lost', 3, coalesce(dead.metadata ->> 'host', dead.id),
            jsonb_build_object(
                'host', dead.metadata ->> 'host', 'pid', dead.metadata -> 'pid', 'by', remover,
                'silent_seconds', round(extract(epoch from clock_timestamp() - dead.last_heartbeat_at)),
                'started_at', dead.started_at,
                'jobs', coalesce((held_jobs ->> dead.id)::int, 0), 'queues', coalesce((held_queues ->> dead.id)::int, 0)),
            dead.id);
        return next dead.id;
    end loop;
end
$$;
