"""Fires schedules, and items of the crontab: moves each to its next tick, adds the jobs of its ticks, notes the runs.

One statement does all of it, so a crash cannot separate the job of a tick from the note that the tick is over. The row
of a schedule is the lock of its ticks; that of an item is its row in the known crontabs, which workers of Node.js lock
and move, too. The statement skips a row that another session has locked, and a row that was changed or fired since it
was read: no statement waits for a row, and none uses a definition that has changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.job_options import JobKeyModeOption
from django_graphile_worker.schedules.times import MOMENT, Definition, Former, GivenUp
from django_graphile_worker.sql.codecs import int_array, microseconds_of, moment_of, text_array
from django_graphile_worker.sql.jobs import IS_PERMANENTLY_FAILED
from django_graphile_worker.sql.statements import statement

# How late a schedule is before workers that do not know its task move it on.
LEFT_TO_OTHERS = timedelta(minutes=1)

_TIMES = ("next_at", "counts_from", "paused_until", "last_tick", "anchor_at", "run_at", "starts_at", "ends_at")
# The names of times in former_times.
_PERIOD = ("after", "until")
_DURATIONS = ("interval", "missed_within")
_TEXTS = ("name", "task", "cron", "time_zone", "queue_name", "job_key", "missed", "overlap")
_NUMBERS = ("id", "revision", "priority", "max_attempts", "is_from_code")


def _time(column: str) -> str:
    """Return an expression for a time as a number, null for an infinite time."""
    return f"""case when schedule.{column} > timestamptz '0001-01-01 00:00:00+00'
            and schedule.{column} < timestamptz '9999-12-31 00:00:00+00'
            then {microseconds_of(f"schedule.{column}")} end"""


_COLUMNS = ",\n        ".join(
    [f"schedule.{name}" for name in (*_NUMBERS, *_TEXTS)]
    + [f"{_time(name)} as {name}" for name in _TIMES]
    + [f'{microseconds_of(f"""schedule."{name}" """)} as "{name}"' for name in _DURATIONS]
    + ["schedule.payload::text as payload", "schedule.former_times::text as former_times"]
)

# The index of next_at has all that is due at its beginning, and the next time behind it. The first row is there even if
# nothing is due. A schedule whose task this worker does not know is left to others for a while.
_DUE = f"""/* gw:due-schedules */
with clock as materialized (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now)
select {microseconds_of("clock.now")}, later.next_at, due.*
from clock
left join lateral (
    select {microseconds_of("schedule.next_at")} as next_at from only :SCHEMA._private_schedules as schedule
    where schedule.next_at > clock.now and schedule.next_at < timestamptz '9999-12-31 00:00:00+00'
    order by schedule.next_at limit 1
) as later on true
left join lateral (
    select {_COLUMNS}
    from only :SCHEMA._private_schedules as schedule
    where schedule.next_at <= clock.now
        and (schedule.task <> all (%(unknown)s::text[])
            or schedule.next_at <= clock.now - %(left_to_others)s::float8 * interval '1 second')
        and not exists (
            select from rows from (pg_catalog.unnest(%(failing)s::bigint[]), pg_catalog.unnest(%(revisions)s::int[]))
                as failing(id, revision)
            where failing.id = schedule.id and failing.revision = schedule.revision)
    order by schedule.next_at {{order}} limit %(most)s::int {{lock}}
) as due on true"""
DUE = _DUE.format(order="", lock="")
DUE_LATEST = _DUE.format(order="desc", lock="")
# The locks end with the statement, so another session waits for one read at most.
DUE_FREE = _DUE.format(order="", lock="for no key update of schedule skip locked")


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that was due when it was read. A change of the definition increments its revision."""

    id: int
    revision: int
    name: str
    task: str
    definition: Definition
    # None: to be computed, from counts_from on and from the end of a pause.
    next_at: datetime | None
    counts_from: datetime
    paused_until: datetime | None
    last_tick: datetime | None
    missed: str
    missed_within: timedelta | None
    overlap: str
    queue_name: str | None
    priority: int | None
    max_attempts: int | None
    is_from_code: bool
    job_key: str | None
    # As text of JSON.
    payload: str

    @property
    def key(self) -> int:
        return self.id

    def __str__(self) -> str:
        return f"schedule {self.name}"


@dataclass(frozen=True, slots=True)
class DueItem:
    """An item of the crontab that is due, as its row was read. All ticks before this one were handled."""

    item: CronItem
    tick: datetime
    known_since: datetime
    last_execution: datetime | None
    is_paused: bool = False
    # Another session had locked the row at this tick.
    is_held: bool = False
    # The definition is in the code.
    revision: int = 0

    @property
    def key(self) -> str:
        return self.item.name

    def __str__(self) -> str:
        return f"cron: {self.item.name}"


@dataclass(frozen=True, slots=True)
class Due:
    """What was read: the time of the database, the schedules that are due, and when the next schedule is due."""

    now: datetime
    schedules: tuple[DueSchedule, ...]
    # None if no other schedule will be due.
    next_at: datetime | None


def read_due(
    cursor: Any,
    *,
    schema: str,
    max_schedules: int,
    unknown_tasks: Sequence[str] = (),
    failing: Mapping[int, int] | None = None,
    now: datetime | None = None,
    text: str = DUE,
) -> Due:
    """Read the schedules that are due, at most so many.

    ``unknown_tasks`` are the tasks that this process does not know, ``failing`` the revisions of the schedules, by id,
    that are to be left out. ``text`` is ``DUE``, which reads the longest due first, ``DUE_LATEST``, which reads them
    last, or ``DUE_FREE``, which leaves out those that another session has locked.
    """
    failing = failing or {}
    parameters = {
        "now": now,
        "most": max_schedules,
        "unknown": text_array(unknown_tasks),
        "left_to_others": LEFT_TO_OTHERS.total_seconds(),
        "failing": int_array(failing),
        "revisions": int_array(failing.values()),
    }
    cursor.execute(statement(text, schema), parameters)
    rows = cursor.fetchall()
    moment, later = rows[0][:2]
    schedules = tuple(_due_schedule(row[2:]) for row in rows if row[2] is not None)
    return Due(now=moment_of(moment), schedules=schedules, next_at=None if later is None else moment_of(later))


_NAMES = (*_NUMBERS, *_TEXTS, *_TIMES, *_DURATIONS, "payload", "former_times")


def _due_schedule(row: Sequence[Any]) -> DueSchedule:
    values = _read(dict(zip(_NAMES, row, strict=True)))
    former = json.loads(values.pop("former_times"))
    definition = _take_definition(values)
    if former:
        since = max(filter(None, (values["counts_from"], values["paused_until"] and values["paused_until"] - MOMENT)))
        definition = replace(definition, former=tuple(map(_former, former)), counts_from=since)
    return DueSchedule(**values, definition=definition)


def _read(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of columns with their numbers as times and durations."""
    for name, value in values.items():
        if value is not None and name in (*_TIMES, *_PERIOD):
            values[name] = moment_of(value)
        elif value is not None and name in _DURATIONS:
            values[name] = timedelta(microseconds=value)
    return values


def _take_definition(values: dict[str, Any]) -> Definition:
    names = ("cron", "interval", "run_at", "time_zone", "starts_at", "ends_at", "anchor_at")
    return Definition(**{name: values.pop(name) for name in names})


def _former(row: dict[str, Any]) -> Former:
    values = _read(row)
    return Former(_take_definition(values), values["after"], values["until"])


# How many runs of a schedule, and of an item of the crontab, are kept; of an item, there may be some more.
MAX_RUNS = 50
# A run that is not over is looked for among so many of the latest runs.
RUNS_LOOKED_AT = 10
# Milliseconds for which a statement waits for a row that the jobs need: the first that tries to fire schedules, and the
# others, which find out which of them are concerned.
FIRST_WAIT = 200
SHORT_WAIT = 10


# How long a statement may wait for a lock while it holds others: less than PostgreSQL waits before it looks for a
# deadlock. So a session that waits for one of the rows held here is never chosen as the victim of a deadlock.
def bounded_wait(milliseconds: str) -> str:
    """Return an expression that sets how long a statement waits for a lock at most."""
    return f"""pg_catalog.set_config('lock_timeout', greatest(1, least({milliseconds},
        extract(epoch from pg_catalog.current_setting('deadlock_timeout')::interval) * 500::numeric
    )::int)::text, true)"""


BOUNDED_WAIT = bounded_wait("200")


# Notifications are switched off before the first job is added, because the clause that decides about firing reads
# this clause.
def clock(wait: str = BOUNDED_WAIT) -> str:
    """Return the clause that sets the time, and sets how long the statement waits for a lock."""
    return f"""clock as materialized (
    select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now,
        case when not %(notify)s::boolean
            then pg_catalog.set_config('graphile_worker.notify', 'off', true) end as silence,
        {wait} as milliseconds
)"""


# Jobs are added in the order of their items, which is the order in which jobs of the same queue and priority run.
# add_jobs takes many jobs at once, but one job key mode for all of them, and never unsafe_dedupe. So there is one call
# for each series of neighbours with the same mode.
ADD_JOBS = """rows as (
    select job.mode, array_agg(job.place order by job.place) as places,
        array_agg(row(job.task, job.payload, job.queue_name, job.run_at, job.max_attempts, job.job_key, job.priority,
            job.flags):::SCHEMA.job_spec order by job.place) as specs
    from (
        select job.*, pg_catalog.row_number() over (order by job.place)
            - pg_catalog.row_number() over (partition by job.mode order by job.place) as row
        from job join won using (identifier)) as job
    group by job.mode, job.row
), added as (
    select rows.places[new_job.number] as place, new_job.id
    from (select * from rows order by places[1]) as rows
    cross join lateral (
        select new_job.ordinality as number, new_job.id
        from :SCHEMA.add_jobs(rows.specs, rows.mode = 'preserve_run_at') with ordinality as new_job
        where rows.mode <> 'unsafe_dedupe'
        union all
        select spec.ordinality, new_job.id
        from pg_catalog.unnest(rows.specs) with ordinality as spec
        cross join lateral :SCHEMA.add_job(
            identifier => spec.identifier, payload => spec.payload, queue_name => spec.queue_name,
            run_at => spec.run_at, max_attempts => spec.max_attempts, job_key => spec.job_key,
            priority => spec.priority, flags => spec.flags, job_key_mode => 'unsafe_dedupe') as new_job
        where rows.mode = 'unsafe_dedupe'
    ) as new_job
)"""


# The jobs of ticks. A schedule has its payload in its row, unless a receiver has replaced it, an item of the crontab in
# the code.
_TICKS = """json_to_recordset(%(ticks)s::json) as tick(
        place int, schedule_id bigint, identifier pg_catalog.text, tick pg_catalog.timestamptz, ts pg_catalog.text,
        is_late boolean, task pg_catalog.text, payload pg_catalog.json, queue_name pg_catalog.text, max_attempts int,
        job_key pg_catalog.text, mode pg_catalog.text, priority int, flags pg_catalog.text[])"""
_KIND = "case when tick.is_late then 'late' else 'on_time' end"

_FREE = """chosen as materialized (
    select * from json_to_recordset(%(schedules)s::json) as chosen(
        id bigint, revision int, seen pg_catalog.timestamptz, next_at pg_catalog.timestamptz,
        last_tick pg_catalog.timestamptz, waits boolean, task_is_unknown boolean, missed int,
        first_missed pg_catalog.timestamptz, last_missed pg_catalog.timestamptz)
), free as materialized (
    select schedule.id, schedule.name, schedule.payload, schedule.overlap, schedule.last_job_id,
        schedule.last_tick as former_tick, chosen.next_at, chosen.last_tick, chosen.waits, chosen.task_is_unknown,
        chosen.missed, chosen.first_missed, chosen.last_missed
    from only :SCHEMA._private_schedules as schedule
    join chosen on chosen.id = schedule.id
    where schedule.revision = chosen.revision and schedule.next_at = chosen.seen
        and coalesce(chosen.last_tick <= (select clock.now from clock), true)
    for no key update of schedule skip locked
)"""

# A schedule whose runs must not overlap gets one job at most, and none while a run is not over. All jobs are won with
# their schedule, so the condition of ADD_JOBS is the same for all of them. A comparison of each job with each schedule
# would take most of the time of the statement: last_job is searched by key.
_JOBS = f"""busy as materialized (
    select free.id from free
    where free.overlap = 'skip' and exists (
        select from (
            select free.last_job_id as job_id
            union all
            (select run.job_id from only :SCHEMA._private_schedule_runs as run
            where run.schedule_id = free.id order by run.id desc limit {RUNS_LOOKED_AT})
        ) as run
        join only :SCHEMA._private_jobs as job on job.id = run.job_id
        where not ({IS_PERMANENTLY_FAILED}))
), tick as materialized (
    select tick.place, tick.schedule_id, tick.tick, tick.is_late, tick.task, tick.queue_name, tick.max_attempts,
        tick.job_key, tick.mode, tick.priority, tick.flags,
        free.overlap = 'skip' and (busy.id is not null
            or pg_catalog.row_number() over (partition by free.id order by tick.place) > 1) as is_skipped,
        (coalesce(tick.payload::jsonb, free.payload) || jsonb_build_object(
            '_cron', jsonb_build_object('ts', tick.ts, 'backfilled', tick.is_late)))::json as payload
    from {_TICKS}
    join free on free.id = tick.schedule_id
    left join busy on busy.id = tick.schedule_id
), job as materialized (
    select tick.*, true as identifier, tick.tick as run_at from tick where not tick.is_skipped
), won as (
    select true as identifier
), {ADD_JOBS}, fired as materialized (
    select tick.schedule_id, tick.place, tick.tick, tick.is_late, added.id as job_id
    from added join tick using (place)
), last_job as materialized (
    select jsonb_object_agg(fired.schedule_id::text, fired.job_id order by fired.place) as ids from fired
)"""

_MOVE = """moved as (
    update only :SCHEMA._private_schedules as schedule
    set next_at = free.next_at, last_tick = coalesce(free.last_tick, schedule.last_tick),
        last_missed_at = coalesce(free.last_missed, schedule.last_missed_at),
        former_times = case when free.waits or free.next_at <= (select clock.now from clock)
            then schedule.former_times else '[]' end,
        last_job_id = coalesce(((select last_job.ids from last_job) ->> free.id::text)::bigint, schedule.last_job_id)
    from free where schedule.id = free.id
    returning schedule.id
)"""

# Ticks without a job are counted in the latest run of the schedule, if that is of the same kind.
_RUNS = f"""without_job as materialized (
    select free.id as schedule_id, 'overlap' as kind, max(tick.tick) as tick, count(*)::int as number,
        bool_and(free.missed = 0) as is_next
    from free join tick on tick.schedule_id = free.id where tick.is_skipped group by free.id
    union all
    select free.id, case when free.task_is_unknown then 'unknown_task' else 'missed' end, free.last_missed, free.missed,
        free.task_is_unknown
    from free where free.missed > 0
), counted as (
    update only :SCHEMA._private_schedule_runs as run
    set tick = without_job.tick, number = run.number + without_job.number, added_at = clock_timestamp()
    from without_job
    where run.id = (
            select latest.id from only :SCHEMA._private_schedule_runs as latest
            where latest.schedule_id = without_job.schedule_id order by latest.id desc limit 1)
        and run.kind = without_job.kind and without_job.is_next
        and not exists (select from fired where fired.schedule_id = without_job.schedule_id)
    returning run.schedule_id, run.kind
), new_run as materialized (
    select new_run.*, pg_catalog.row_number() over (partition by schedule_id order by place desc) as age
    from (
        select without_job.schedule_id, without_job.tick, null::bigint as job_id, without_job.kind, without_job.number,
            case when without_job.kind = 'overlap' then {2**31 - 1} else -1 end as place
        from without_job
        where not exists (select from counted
            where counted.schedule_id = without_job.schedule_id and counted.kind = without_job.kind)
        union all
        select tick.schedule_id, tick.tick, tick.job_id, {_KIND}, 1, tick.place from fired as tick
    ) as new_run
), noted as (
    insert into :SCHEMA._private_schedule_runs (schedule_id, tick, job_id, kind, number)
    select schedule_id, tick, job_id, kind, number from new_run where age <= {MAX_RUNS} order by schedule_id, place
), early as materialized (
    -- A run by hand whose transaction is open may have deleted the same row. Arrays, because a plan that was made when
    -- there were few runs would search them for each run.
    select run.id from only :SCHEMA._private_schedule_runs as run
    where run.id = any (array(
        select old.id
        from (select schedule_id, max(age) as number from new_run group by schedule_id) as added
        cross join lateral (
            select run.id from only :SCHEMA._private_schedule_runs as run
            where run.schedule_id = added.schedule_id
            order by run.id desc offset greatest({MAX_RUNS} - added.number, 0)) as old))
    for update skip locked
), forgotten as (
    delete from only :SCHEMA._private_schedule_runs as run where run.id = any (array(select early.id from early))
)"""

_EVENTS = """late as materialized (
    select fired.schedule_id, count(*)::int as number, max(fired.tick) as last_tick
    from fired where fired.is_late group by fired.schedule_id
), event as materialized (
    select :SCHEMA._private_add_event('schedule_missed', 2, free.name, jsonb_build_object(
        'name', free.name, 'schedule', free.id, 'ticks', free.missed, 'first_tick', free.first_missed,
        'last_tick', free.last_missed, 'last_execution', free.former_tick), null, null, true) as id
    from free where free.missed > 0 and not free.task_is_unknown
    union all
    select :SCHEMA._private_add_event('schedule_backfilled', 1, free.name, jsonb_build_object(
        'name', free.name, 'schedule', free.id, 'ticks', late.number, 'last_tick', late.last_tick), null, null, true)
    from late join free on free.id = late.schedule_id
)"""

FIRE = f"""/* gw:fire-schedules */
with {clock(bounded_wait("%(wait)s::int"))}, {_FREE}, {_JOBS}, {_MOVE}, {_RUNS}, {_EVENTS}
select 'moved', moved.id, null::bigint from moved
union all select 'fired', fired.schedule_id, fired.job_id from fired
union all select 'skipped', without_job.schedule_id, without_job.number from without_job
    where without_job.kind = 'overlap'
union all select 'events', count(event.id), null from event"""


# The clock of the database decides: a tick in the future is not fired, however far ahead a worker's own clock may be.
# The row of an item is moved past its ticks only if it is not there yet: neither by another worker nor by Node.js. The
# event about late ticks is committed with their jobs.
FIRE_ITEMS = f"""/* gw:fire-crontab */
with {clock(bounded_wait("%(wait)s::int"))}, chosen as materialized (
    select * from json_to_recordset(%(items)s::json) as chosen(
        identifier pg_catalog.text, first_tick pg_catalog.timestamptz, last_tick pg_catalog.timestamptz, late int)
), job as materialized (
    select tick.*, tick.tick as run_at from {_TICKS}
), free as materialized (
    select known.identifier, chosen.last_tick, chosen.late
    from :SCHEMA._private_known_crontabs as known join chosen on chosen.identifier = known.identifier
    where chosen.last_tick <= (select clock.now from clock) and known.known_since <= chosen.first_tick
        and (known.last_execution is null or known.last_execution < chosen.first_tick)
    for update of known skip locked
), won as (
    update :SCHEMA._private_known_crontabs as known set last_execution = free.last_tick
    from free where known.identifier = free.identifier
    returning known.identifier
), {ADD_JOBS}, noted as (
    insert into :SCHEMA._private_schedule_runs (crontab_identifier, tick, job_id, kind)
    select tick.identifier, tick.tick, added.id, {_KIND}
    from added join job as tick using (place) order by added.place
), event as materialized (
    select :SCHEMA._private_add_event('schedule_backfilled', 1, free.identifier,
        jsonb_build_object('name', free.identifier, 'ticks', free.late, 'last_tick', free.last_tick),
        null, null, true) as id
    from free where free.late > 0
)
select 'moved', won.identifier, null::bigint from won
union all select 'fired', job.identifier, added.id from added join job using (place)
union all select 'events', null, count(event.id) from event"""


class TickJob(NamedTuple):
    """The job of a tick, with the defaults of its task."""

    at: datetime
    is_late: bool
    queue_name: str | None
    max_attempts: int | None
    job_key: str | None
    job_key_mode: JobKeyModeOption | None
    priority: int | None
    flags: tuple[str, ...]
    # As text of JSON, if it is not that of the schedule or item.
    payload: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to become of what is due: the jobs of its ticks, the ticks that it loses, and its next tick."""

    due: DueSchedule | DueItem
    jobs: tuple[TickJob, ...] = ()
    # None: no other tick.
    next_at: datetime | None
    missed: GivenUp | None = None
    # Whether the ticks of former times wait for the end of a pause.
    waits: bool = False
    # Whether ticks are lost because no worker knows the task.
    task_is_unknown: bool = False


class Fired(NamedTuple):
    """What became of a schedule, or of an item of the crontab."""

    job_ids: list[int]
    # How many ticks got no job because the last run was not over.
    skipped: int


def fire(
    cursor: Any,
    decisions: Sequence[Decision],
    *,
    schema: str,
    notify: bool = True,
    now: datetime | None = None,
    wait: int = FIRST_WAIT,
) -> dict[int | str, Fired]:
    """Move schedules, or items of the crontab, to their next ticks, and add their jobs; return what became of each.

    One is left out if another session has locked, changed, fired or deleted it. Raise LockNotAvailable, and do nothing,
    if a row that the jobs need stays locked by another session for ``wait`` milliseconds.
    """
    is_of_items = isinstance(decisions[0].due, DueItem)
    parameters = {
        "items" if is_of_items else "schedules": json.dumps([_moved(decision) for decision in decisions]),
        "ticks": json.dumps(_ticks(decisions)),
        "notify": notify,
        "now": now,
        "wait": wait,
    }
    cursor.execute(statement(FIRE_ITEMS if is_of_items else FIRE, schema), parameters)
    rows = cursor.fetchall()
    fired: dict[int | str, Fired] = {key: Fired([], 0) for kind, key, _ in rows if kind == "moved"}
    for kind, key, value in rows:
        if kind == "fired":
            fired[key].job_ids.append(value)
        elif kind == "skipped":
            fired[key] = fired[key]._replace(skipped=value)
    return fired


def _moved(decision: Decision) -> dict[str, Any]:
    due, missed = decision.due, decision.missed
    if isinstance(due, DueItem):
        return {
            "identifier": due.key,
            "first_tick": stamp(decision.jobs[0].at),
            "last_tick": stamp(decision.jobs[-1].at),
            "late": sum(job.is_late for job in decision.jobs),
        }
    last_job = decision.jobs[-1].at if decision.jobs else None
    last_missed = None if missed is None else missed.last
    handled = [tick for tick in (last_job, last_missed) if tick is not None]
    return {
        "id": due.id,
        "revision": due.revision,
        "seen": "-infinity" if due.next_at is None else _iso(due.next_at),
        "next_at": "infinity" if decision.next_at is None else _iso(decision.next_at),
        "last_tick": _iso(max(handled)) if handled else None,
        "waits": decision.waits,
        "task_is_unknown": decision.task_is_unknown,
        "missed": 0 if missed is None else missed.number,
        "first_missed": None if missed is None else _iso(missed.first),
        "last_missed": None if last_missed is None else _iso(last_missed),
    }


def _ticks(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    ticks = [_tick(decision.due, job) for decision in decisions for job in decision.jobs]
    return [{"place": place, **tick} for place, tick in enumerate(ticks)]


def _tick(due: DueSchedule | DueItem, job: TickJob) -> dict[str, Any]:
    ts = stamp(job.at)
    payload = None if job.payload is None else json.loads(job.payload)
    if isinstance(due, DueItem):
        cron = {"ts": ts, "backfilled": job.is_late}
        payload = payload if payload is not None else due.item.payload or {}
        of: dict[str, Any] = {
            "identifier": due.key,
            "task": due.item.task,
            "payload": {**payload, "_cron": cron},
        }
    else:
        of = {"schedule_id": due.id, "task": due.task, "payload": payload}
    return {
        **of,
        "tick": _iso(job.at),
        "ts": ts,
        "is_late": job.is_late,
        "queue_name": job.queue_name,
        "max_attempts": job.max_attempts,
        "job_key": job.job_key,
        "mode": "replace" if job.job_key is None else job.job_key_mode or "replace",
        "priority": job.priority,
        "flags": list(job.flags),
    }


# The ticks of many items, and of many schedules, are the same.
@functools.lru_cache(maxsize=1_000)
def stamp(tick: datetime) -> str:
    """Return a time as the payload of a job has it: with milliseconds, as graphile-worker writes it."""
    return tick.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


@functools.lru_cache(maxsize=1_000)
def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


# The job and the note of its run are committed with the transaction of the caller. A schedule that is deleted at the
# same time has neither.
RUN_BY_HAND = f"""/* gw:run-schedule */
with schedule as materialized (
    select schedule.id, schedule.task, clock.now,
        (coalesce(%(payload)s::jsonb, schedule.payload) || jsonb_build_object('_cron', jsonb_build_object('ts',
            to_char(clock.now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'backfilled', false)))::json
            as payload
    from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
    join only :SCHEMA._private_schedules as schedule on schedule.id = %(id)s::bigint
    for key share of schedule
), added as materialized (
    select job.id, schedule.now
    from schedule
    cross join lateral :SCHEMA.add_job(
        identifier => schedule.task, payload => schedule.payload, queue_name => %(queue_name)s::text,
        run_at => %(now)s::timestamptz, max_attempts => %(max_attempts)s::int, job_key => %(job_key)s::text,
        priority => %(priority)s::int, flags => %(flags)s::text[], job_key_mode => %(mode)s::text) as job
), noted as (
    insert into :SCHEMA._private_schedule_runs (schedule_id, tick, job_id, kind, run_by)
    select %(id)s::bigint, added.now, added.id, 'by_hand', %(by)s::text from added
), forgotten as (
    delete from only :SCHEMA._private_schedule_runs as run
    using added
    where run.schedule_id = %(id)s::bigint and run.id <= (
        select kept.id from only :SCHEMA._private_schedule_runs as kept
        where kept.schedule_id = %(id)s::bigint order by kept.id desc offset {MAX_RUNS - 1} limit 1)
)
select added.id from added"""


def run_by_hand(
    cursor: Any, schedule_id: int, job: TickJob, *, by: str, schema: str, now: datetime | None = None
) -> int | None:
    """Add the job, and note who asked for it; return its id, or None if there is no such schedule."""
    parameters = {
        "id": schedule_id,
        "now": now,
        "queue_name": job.queue_name,
        "max_attempts": job.max_attempts,
        "job_key": job.job_key,
        "mode": None if job.job_key is None else job.job_key_mode or "replace",
        "priority": job.priority,
        "flags": list(job.flags),
        "payload": job.payload,
        "by": by,
    }
    cursor.execute(statement(RUN_BY_HAND, schema), parameters)
    row = cursor.fetchone()
    return None if row is None else int(row[0])
