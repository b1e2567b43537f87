"""Fire the ticks of crontab items, each tick exactly once.

The row of an item is the lock of all its ticks. ``last_execution`` only moves
forward, and the statement that moves it past a tick also adds the job of that tick:
a crash cannot separate the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.items import flags_of_run
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.cron.crontabs import BOUNDED_WAIT, register
from django_graphile_worker.sql.schema import statement

# The items whose tick has not been fired yet, including items whose rows were deleted. Takes no lock.
OPEN = """/* gw:cron:open */
select %(tick)s::timestamptz <= clock.now, name.identifier, name.is_forgotten
from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
left join (
    select name.identifier, known.identifier is null as is_forgotten
    from pg_catalog.unnest(%(identifiers)s::text[]) as name(identifier)
    left join :SCHEMA._private_known_crontabs as known on known.identifier = name.identifier
    where known.identifier is null or (known.known_since <= %(tick)s::timestamptz
        and (known.last_execution is null or known.last_execution < %(tick)s::timestamptz))
) as name on true"""

_JOBS = """job as materialized (
    select * from pg_catalog.json_to_recordset(%(jobs)s::json) as job(
        place int, identifier pg_catalog.text, task pg_catalog.text, payload pg_catalog.json,
        queue_name pg_catalog.text, run_at pg_catalog.timestamptz, max_attempts int, job_key pg_catalog.text,
        mode pg_catalog.text, priority int, flags pg_catalog.text[], is_late boolean)
)"""


# Notifications are switched off before the first job is added, because the clause that decides about firing reads
# this clause.
def clock(wait: str = BOUNDED_WAIT) -> str:
    """Return the clause that tells the time, and sets how long the statement waits for a lock."""
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

# What becomes of the jobs is read with these rows: ``sql.schedules.runs``.
_NOTE_RUNS = """noted as (
    insert into :SCHEMA._private_schedule_runs (crontab_identifier, tick, job_id, kind)
    select job.identifier, job.run_at, added.id, case when job.is_late then 'late' else 'on_time' end
    from added join job using (place) order by added.place
)"""

# The clock of the database decides: a tick in the future is not fired, however far ahead a worker's own clock may be.
# Rows that another session has locked are skipped, without a wait: a worker of Node.js locks the same rows in the order
# of its own crontab, and two sessions that wait for each other's rows would be a deadlock.
SCHEDULE = f"""/* gw:cron:schedule */
with {clock()}, {_JOBS}, free as materialized (
    select known.identifier
    from :SCHEMA._private_known_crontabs as known
    where known.identifier in (select job.identifier from job)
        and %(tick)s::timestamptz <= (select clock.now from clock)
        and known.known_since <= %(tick)s::timestamptz
        and (known.last_execution is null or known.last_execution < %(tick)s::timestamptz)
    for update of known skip locked
), won as (
    update :SCHEMA._private_known_crontabs as known
    set last_execution = %(tick)s::timestamptz
    from free
    where known.identifier = free.identifier
    returning known.identifier
), {ADD_JOBS}, {_NOTE_RUNS}
select job.identifier, added.id from added join job using (place) order by added.place"""

# Fires a series of ticks of one item, unless a tick of the item was fired after last_execution was read. The event
# about the late ticks is committed with their jobs.
BACKFILL = f"""/* gw:cron:backfill */
with {clock()}, {_JOBS}, free as materialized (
    select known.identifier
    from :SCHEMA._private_known_crontabs as known
    where known.identifier = %(identifier)s
        and known.last_execution is not distinct from %(seen)s::timestamptz
        and %(last_tick)s::timestamptz <= (select clock.now from clock)
    for update of known skip locked
), won as (
    update :SCHEMA._private_known_crontabs as known
    set last_execution = %(last_tick)s::timestamptz
    from free
    where known.identifier = free.identifier
    returning known.identifier
), event as materialized (
    select :SCHEMA._private_add_event('schedule_backfilled', 1, won.identifier,
        jsonb_build_object('name', won.identifier, 'ticks', %(late)s::int, 'last_tick', %(last_tick)s::timestamptz),
        null, null, true) as id
    from won where %(late)s::int > 0
), {ADD_JOBS}, {_NOTE_RUNS}
select id, (select count(event.id) from event) from added order by place"""


class Scheduled(Frozen):
    """The result of firing a tick. A tick that is not due yet by the database's clock must be tried again."""

    is_due: bool
    job_ids: Mapping[str, int]
    # The items whose rows another session has locked: whether that session fires their tick is known when it has ended.
    undecided: frozenset[str]


class _Open(Frozen):
    """The items whose tick has not been fired yet."""

    is_due: bool
    names: frozenset[str]
    forgotten: list[str]


def schedule(
    cursor: Any,
    items: Iterable[CronItem],
    tick: datetime,
    *,
    schema: str,
    notify: bool = True,
    now: datetime | None = None,
) -> Scheduled:
    """Fire one tick of several items: add the job of each item whose tick was not fired yet.

    Raise LockNotAvailable, and fire nothing, if a row that the jobs need stays locked by another session.
    """
    chosen = list(items)
    found = _open(cursor, [item.name for item in chosen], tick, schema=schema, now=now)
    if not found.is_due or not found.names:
        return Scheduled(is_due=found.is_due, job_ids={}, undecided=frozenset())
    if found.forgotten:
        register(cursor, found.forgotten, schema=schema, since=tick)
    jobs = [item for item in chosen if item.name in found.names]
    parameters = {"jobs": _jobs(jobs, [tick], tick), "tick": tick, "notify": notify, "now": now}
    cursor.execute(statement(SCHEDULE, schema), parameters)
    job_ids = dict(cursor.fetchall())
    left = found.names - job_ids.keys()
    if left:
        left = _open(cursor, sorted(left), tick, schema=schema, now=now).names
    return Scheduled(is_due=True, job_ids=job_ids, undecided=left)


def _open(cursor: Any, names: list[str], tick: datetime, *, schema: str, now: datetime | None) -> _Open:
    cursor.execute(statement(OPEN, schema), {"identifiers": text_array(names), "tick": tick, "now": now})
    rows = cursor.fetchall()
    return _Open(
        is_due=rows[0][0],
        names=frozenset(name for _, name, _ in rows if name is not None),
        forgotten=[name for _, name, is_forgotten in rows if is_forgotten],
    )


def backfill(
    cursor: Any,
    item: CronItem,
    ticks: Sequence[datetime],
    *,
    seen: datetime | None,
    late_before: datetime,
    schema: str,
    notify: bool = True,
    now: datetime | None = None,
) -> bool:
    """Fire a series of ticks of one item at once.

    Return False, and add nothing, if the item's ``last_execution`` is no longer ``seen``: another worker has fired the
    item. The jobs of ticks before ``late_before`` are marked as backfilled.
    """
    parameters = {
        "jobs": _jobs([item], ticks, late_before),
        "identifier": item.name,
        "seen": seen,
        "last_tick": ticks[-1],
        "late": sum(tick < late_before for tick in ticks),
        "notify": notify,
        "now": now,
    }
    cursor.execute(statement(BACKFILL, schema), parameters)
    return bool(cursor.fetchall())


def _jobs(items: Sequence[CronItem], ticks: Sequence[datetime], late_before: datetime) -> str:
    """Return the jobs of each item at each tick as JSON."""
    jobs = [_job(item, tick, tick < late_before) for item in items for tick in ticks]
    return json.dumps([{"place": place, **job} for place, job in enumerate(jobs)])


def _job(item: CronItem, tick: datetime, is_late: bool) -> dict[str, Any]:
    stamp = tick.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return {
        "identifier": item.name,
        "task": item.task,
        "payload": {**(item.payload or {}), "_cron": {"ts": stamp, "backfilled": is_late}},
        "queue_name": item.queue_name,
        "run_at": stamp,
        "max_attempts": item.max_attempts,
        "job_key": item.job_key,
        "mode": "replace" if item.job_key is None else item.job_key_mode or "replace",
        "priority": item.priority,
        "flags": flags_of_run(item, tick),
        "is_late": is_late,
    }
