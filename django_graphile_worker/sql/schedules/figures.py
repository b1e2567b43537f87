"""Counts schedules, and items of the crontab, that need attention: failing, missed and late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.results import ResultStatus
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from datetime import datetime

# Ticks that were missed so many seconds ago, or later, are counted.
MISSED_WITHIN = 24 * 3600
# A schedule is late if no worker has fired it for so many seconds.
LATE_AFTER = 60
# If the latest run has not ended, so many runs before it are looked at.
RUNS_LOOKED_AT = 5

_IS_FAILED_JOB = "not job.is_available and job.locked_at is null"
# What a job, or its result, says about a run: true if it failed, also if it is tried again, false if it ended
# otherwise, null if no attempt has ended or nothing is known.
_HAS_FAILED = f"""case when job.id is not null
            then case when {_IS_FAILED_JOB} or (job.attempts > 0 and job.last_error is not null) then true end
        when result.status > 0 then result.status = {ResultStatus.FAILED.value} end"""


def _looked_up(job_id: str) -> str:
    """Return joins with a job and its result. The limits ensure one probe of an index for each of them."""
    return f"""left join lateral (
        select each.id, each.is_available, each.locked_at, each.attempts, each.last_error
        from only :SCHEMA._private_jobs as each where each.id = {job_id} limit 1) as job on true
    left join lateral (
        select each.status from only :SCHEMA._private_results as each where each.job_id = {job_id} limit 1
    ) as result on true"""


def _last_of(column: str, value: str) -> str:
    """Return a subquery: whether the last run of which an attempt has ended failed."""
    return f"""(
        select {_HAS_FAILED} from (
            select run.id, run.job_id from only :SCHEMA._private_schedule_runs as run
            where run.{column} = {value} order by run.id desc limit {RUNS_LOOKED_AT}) as run
        {_looked_up("run.job_id")}
        where run.job_id is not null and ({_HAS_FAILED}) is not null
        order by run.id desc limit 1)"""


# The last run of most schedules has succeeded, which the row of its result tells: one probe of an index. The row of the
# schedule has the last job.
IS_FAILING = f"""(schedule.is_enabled and schedule.last_job_id is not null and case (
        select each.status from only :SCHEMA._private_results as each where each.job_id = schedule.last_job_id limit 1)
    when {ResultStatus.SUCCEEDED.value} then false
    else coalesce((
        select {_HAS_FAILED} from (select schedule.last_job_id as id offset 0) as last
        {_looked_up("last.id")}), {_last_of("schedule_id", "schedule.id")}, false) end)"""

FAILING_IDS = f"""/* gw:failing-schedules */
select schedule.id from only :SCHEMA._private_schedules as schedule
where schedule.id = any (%(ids)s::bigint[]) and {IS_FAILING}"""

_IS_FAILING_ITEM = f"coalesce({_last_of('crontab_identifier', 'item.identifier')}, false)"
FAILING_CRONTABS = f"""/* gw:failing-crontabs */
select item.identifier from unnest(%(identifiers)s::text[]) with ordinality as item(identifier, place)
where {_IS_FAILING_ITEM}
order by item.place"""

# The last jobs of all schedules are looked up in the results at once: their ids are near each other, so that many of
# them are on the same pages.
_LAST_SUCCEEDED = f"""select each.job_id from only :SCHEMA._private_results as each
    where each.job_id = any (array(
        select schedule.last_job_id from only :SCHEMA._private_schedules as schedule
        where schedule.is_enabled and schedule.last_job_id is not null))
        and each.status = {ResultStatus.SUCCEEDED.value}"""

# The clock is read once, so that an index can be searched for what is late. A schedule whose next time no worker has
# computed yet, -infinity, is late if it was changed some time ago.
COUNTS = f"""/* gw:schedule-counts */
select schedules.failing + items.failing, schedules.missed + items.missed, late.number
from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
cross join lateral (
    select count(*) filter (where schedule.last_job_id not in ({_LAST_SUCCEEDED}) and {IS_FAILING}) as failing,
        count(*) filter (where schedule.last_missed_at >= clock.now - interval '{MISSED_WITHIN} seconds') as missed
    from only :SCHEMA._private_schedules as schedule
) as schedules
cross join lateral (
    select count(*) as number from only :SCHEMA._private_schedules as schedule
    where schedule.next_at <= clock.now - interval '{LATE_AFTER} seconds' and schedule.is_enabled
        and (schedule.next_at > '-infinity'
            or schedule.changed_at <= clock.now - interval '{LATE_AFTER} seconds')
) as late
cross join lateral (
    select count(*) filter (where {_IS_FAILING_ITEM}) as failing,
        count(*) filter (where exists (
            select from only :SCHEMA._private_schedule_runs as run
            where run.crontab_identifier = item.identifier and run.kind = 'missed'
                and run.added_at >= clock.now - interval '{MISSED_WITHIN} seconds')) as missed
    from unnest(%(identifiers)s::text[]) as item(identifier)
) as items"""


class Counts(NamedTuple):
    """How many schedules and items of the crontab need attention."""

    # The last run of which an attempt has ended failed, and may be tried again.
    failing: int
    # A tick of the last day was given up, because no worker ran.
    missed: int
    # A tick is due, and no worker has fired it for a minute; items of the crontab are not counted here.
    late: int


def counts(cursor: Any, *, schema: str, crontab_identifiers: Iterable[str] = (), now: datetime | None = None) -> Counts:
    """Return the numbers of all schedules, and of these items of the crontab."""
    cursor.execute(statement(COUNTS, schema), {"identifiers": list(crontab_identifiers), "now": now})
    return Counts(*cursor.fetchone())


def failing_ids(cursor: Any, ids: Iterable[int], *, schema: str) -> set[int]:
    """Return those of the schedules that are failing."""
    cursor.execute(statement(FAILING_IDS, schema), {"ids": int_array(ids)})
    return {row[0] for row in cursor.fetchall()}


def failing_crontabs(cursor: Any, identifiers: Iterable[str], *, schema: str) -> list[str]:
    """Return those of the items of the crontab that are failing."""
    names = list(identifiers)
    if not names:
        return []
    cursor.execute(statement(FAILING_CRONTABS, schema), {"identifiers": names})
    return [row[0] for row in cursor.fetchall()]
