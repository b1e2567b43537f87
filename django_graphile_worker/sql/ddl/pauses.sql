/* gw:install */
-- Tasks, queues and flags whose jobs wait until they are resumed, or until a time.
--
-- A paused task or flag is a row here, which workers read: they claim no such jobs. A
-- paused queue is also locked: the locked_by of its row in _private_job_queues is the token of
-- the pause, and its locked_at is infinity. So no worker claims its jobs, workers of
-- Node.js included, and no recovery takes the lock for a stale one. A pause overwrites the
-- lock of the worker that runs a job of the queue: each release of a queue states its token,
-- and so leaves the lock of the pause in place.
--
-- A pause that ends gives the lock to the job of the queue that still runs, if there is one, so
-- that its release frees the queue. A worker of Node.js deletes a job and releases its queue in
-- one statement: if that has begun before the end of the pause, it does not see the new
-- lock, and the queue would stay locked for hours. So the row of the pause stays, with the token of
-- that job in handed_to, and workers check the queue: see _private_settle_pauses_v1. Workers of
-- this package release the queue in a statement of its own, which begins after the job has ended.
--
-- Order of locks: rows of this table by kind and name, then jobs by id, then queues.
create table :SCHEMA._private_pauses (
  kind text not null constraint pauses_kind_check check (kind in ('queue', 'task', 'flag')),
  name text not null,
  token text not null,
  paused_at timestamptz not null,
  -- Null: until it is resumed.
  paused_until timestamptz,
  reason text not null default '',
  paused_by text not null default '',
  -- Null while the pause holds. After its end, the token of another worker that got the lock of the queue.
  handed_to text,
  constraint pauses_pkey primary key (kind, name)
);
alter table :SCHEMA._private_pauses enable row level security;

-- The roles that had rights to jobs before this table existed get the same rights to it; the policy is for roles that
-- get them later.
create policy pauses_by_grant on :SCHEMA._private_pauses using (true) with check (true);
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
      execute format('grant select, insert, update, delete on :SCHEMA._private_pauses to %s', role);
    else
      execute format('grant select on :SCHEMA._private_pauses to %s', role);
    end if;
  end loop;
end
$do$;

-- Pauses a task, a queue or a flag; returns the pause, and whether it held before. A queue that
-- has no row yet gets one. An extension never shortens or replaces a pause: it only moves its end.
create function :SCHEMA._private_pause_v1(
    kind text, name text, paused_until timestamptz, reason text, paused_by text, is_extension boolean,
    moment timestamptz default null
) returns table (paused_at timestamptz, ends_at timestamptz, stored_reason text, stored_by text, was_paused boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(moment, clock_timestamp());
    held :SCHEMA._private_pauses;
    stored :SCHEMA._private_pauses;
begin
    -- Locks the row, or waits for the transaction that inserts it.
    insert into :SCHEMA._private_pauses as pause (kind, name, token, paused_at, paused_until, reason, paused_by)
    values (_private_pause_v1.kind, _private_pause_v1.name, 'paused:' || gen_random_uuid(), this_moment,
        _private_pause_v1.paused_until, _private_pause_v1.reason, _private_pause_v1.paused_by)
    on conflict on constraint pauses_pkey do nothing
    returning pause.* into stored;
    if stored.token is null then
        select pause.* into held from :SCHEMA._private_pauses as pause
        where pause.kind = _private_pause_v1.kind and pause.name = _private_pause_v1.name
        for update;
        if held.token is null then
            -- Resumed at this moment: begin again.
            return query select again.* from :SCHEMA._private_pause_v1(
                _private_pause_v1.kind, _private_pause_v1.name, _private_pause_v1.paused_until,
                _private_pause_v1.reason, _private_pause_v1.paused_by, is_extension, moment) as again;
            return;
        end if;
        if held.handed_to is not null or held.paused_until <= this_moment then
            -- The earlier pause is over.
            update :SCHEMA._private_pauses as pause
            set token = 'paused:' || gen_random_uuid(), paused_at = this_moment,
                paused_until = _private_pause_v1.paused_until, reason = _private_pause_v1.reason,
                paused_by = _private_pause_v1.paused_by, handed_to = null
            where pause.kind = held.kind and pause.name = held.name
            returning pause.* into stored;
            held := null;
        elsif not is_extension then
            update :SCHEMA._private_pauses as pause
            set paused_until = _private_pause_v1.paused_until, reason = _private_pause_v1.reason,
                paused_by = _private_pause_v1.paused_by
            where pause.kind = held.kind and pause.name = held.name
            returning pause.* into stored;
        elsif held.paused_until < _private_pause_v1.paused_until or _private_pause_v1.paused_until is null
            and held.paused_until is not null
        then
            update :SCHEMA._private_pauses as pause
            set paused_until = _private_pause_v1.paused_until
            where pause.kind = held.kind and pause.name = held.name
            returning pause.* into stored;
        else
            stored := held;
        end if;
    end if;
    if _private_pause_v1.kind = 'queue' then
        perform :SCHEMA._private_lock_paused_queue_v1(stored.name, stored.token);
    end if;
    perform :SCHEMA._private_notify_control_v1();
    return query select stored.paused_at, stored.paused_until, stored.reason, stored.paused_by, held.token is not null;
end
$$;

-- Locks the row of a queue for a pause, whatever worker holds it; inserts the row if there is none.
create function :SCHEMA._private_lock_paused_queue_v1(paused_queue text, token text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    update only :SCHEMA._private_job_queues as queue
    set locked_by = token, locked_at = 'infinity'
    where queue.queue_name = paused_queue;
    if not found then
        -- As every transaction that adds a job: cleanup() waits for it before it deletes names without jobs.
        perform from :SCHEMA._private_names_lock;
        insert into :SCHEMA._private_job_queues as queue (queue_name, locked_by, locked_at)
        values (paused_queue, token, 'infinity')
        on conflict on constraint job_queues_queue_name_key do update
        set locked_by = excluded.locked_by, locked_at = excluded.locked_at;
    end if;
end
$$;

-- Tells the workers of this schema that what is asked of them has changed.
create function :SCHEMA._private_notify_control_v1()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    -- A full queue of notifications would fail the commit. Workers also read with each heartbeat.
    if pg_notification_queue_usage() < 0.9 then
        perform pg_notify('jobs:control', :'SCHEMA'::text);
    end if;
end
$$;

-- Ends a pause whose row the caller has locked. The lock of a queue goes to the job of the queue that runs, so that its
-- release frees the queue; without such a job the queue is free. The row of the job is locked until the end of the
-- transaction: its worker cannot end the job and release the queue before the queue has the token of the job.
create function :SCHEMA._private_end_pause_v1(ended :SCHEMA._private_pauses)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
    paused_queue int;
    holder text;
    held_since timestamptz;
begin
    if ended.kind = 'queue' then
        select queue.id into paused_queue from only :SCHEMA._private_job_queues as queue
        where queue.queue_name = ended.name and queue.locked_by = ended.token;
    end if;
    if paused_queue is not null then
        select running.locked_by, running.locked_at into holder, held_since
        from (
            select job.locked_by, job.locked_at, job.id from only :SCHEMA._private_jobs as job
            where job.locked_at is not null and job.job_queue_id = paused_queue
            order by job.id
            for update
        ) as running
        order by running.locked_at desc, running.id
        limit 1;
        update only :SCHEMA._private_job_queues as queue
        set locked_by = holder, locked_at = held_since
        where queue.id = paused_queue and queue.locked_by = ended.token;
    end if;
    if holder is null or starts_with(holder, 'django-worker-') then
        delete from :SCHEMA._private_pauses as pause where pause.kind = ended.kind and pause.name = ended.name;
    else
        update :SCHEMA._private_pauses as pause set handed_to = holder
        where pause.kind = ended.kind and pause.name = ended.name;
    end if;
    if pg_notification_queue_usage() < 0.9 then
        perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', 1)::text);
    end if;
    perform :SCHEMA._private_notify_control_v1();
end
$$;

-- Ends a pause; returns it, or no row if there is none.
create function :SCHEMA._private_resume_v1(kind text, name text)
returns table (paused_at timestamptz, ends_at timestamptz, stored_reason text, stored_by text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    held :SCHEMA._private_pauses;
begin
    select pause.* into held from :SCHEMA._private_pauses as pause
    where pause.kind = _private_resume_v1.kind and pause.name = _private_resume_v1.name and pause.handed_to is null
    for update;
    if held.token is not null then
        perform :SCHEMA._private_end_pause_v1(held);
        return query select held.paused_at, held.paused_until, held.reason, held.paused_by;
    end if;
end
$$;

-- What workers do with pauses, each at its time and all of them at the same time: end the pauses whose time is over,
-- free queues whose lock was handed to a job that has ended, and lock paused queues again that were unlocked by hand.
-- Returns the pauses that it ended.
create function :SCHEMA._private_settle_pauses_v1(moment timestamptz default null)
returns table (
    kind text, name text, paused_at timestamptz, ends_at timestamptz, stored_reason text, stored_by text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    this_moment constant timestamptz := coalesce(moment, clock_timestamp());
    held :SCHEMA._private_pauses;
    freed_queue int;
begin
    for held in
        select pause.* from :SCHEMA._private_pauses as pause
        order by pause.kind, pause.name
        for update skip locked
    loop
        if held.handed_to is not null then
            -- Locked first: then the next statement sees every job that the token still has.
            select queue.id into freed_queue from only :SCHEMA._private_job_queues as queue
            where queue.queue_name = held.name and queue.locked_by = held.handed_to
            for no key update;
            if freed_queue is not null and exists (
                select from only :SCHEMA._private_jobs as job
                where job.locked_at is not null and job.job_queue_id = freed_queue and job.locked_by = held.handed_to)
            then
                continue;
            end if;
            if freed_queue is not null then
                update only :SCHEMA._private_job_queues as queue set locked_by = null, locked_at = null
                where queue.id = freed_queue;
                perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', 1)::text)
                where pg_notification_queue_usage() < 0.9;
            end if;
            delete from :SCHEMA._private_pauses as pause where pause.kind = held.kind and pause.name = held.name;
        elsif held.paused_until <= this_moment then
            perform :SCHEMA._private_end_pause_v1(held);
            return query select held.kind, held.name, held.paused_at, held.paused_until, held.reason, held.paused_by;
        elsif held.kind = 'queue' and not exists (
            select from only :SCHEMA._private_job_queues as queue
            where queue.queue_name = held.name and queue.locked_by = held.token)
        then
            perform :SCHEMA._private_lock_paused_queue_v1(held.name, held.token);
        end if;
    end loop;
end
$$;
