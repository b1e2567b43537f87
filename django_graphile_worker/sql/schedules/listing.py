"""Lists and counts schedules: for the lists of the command line and the admin, and for checks.

The list of the admin is a query of Django's ORM, which takes the conditions of states from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import int_array, microseconds_of, moment_of, text_array
from django_graphile_worker.sql.results import ResultStatus
from django_graphile_worker.sql.statements import statement

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


# The last run of most schedules has succeeded, which the row of its result shows: one probe of an index. The row of the
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


class ScheduleState(StrEnum):
    """What a schedule does now. Each is in one of the first four; the others are problems that it may have beside."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    ENDED = "ended"
    FAILING = "failing"
    MISSED = "missed"
    LATE = "late"
    UNKNOWN_TASK = "unknown_task"
    ANY = "all"


_IS_PAUSED = "coalesce(schedule.paused_until > clock.now, false)"
_LATE_BEFORE = f"clock.now - interval '{LATE_AFTER} seconds'"
_FIRES = f"schedule.is_enabled and not {_IS_PAUSED}"

CONDITIONS: Mapping[ScheduleState, str] = {
    ScheduleState.ACTIVE: f"{_FIRES} and schedule.next_at < 'infinity'",
    ScheduleState.PAUSED: f"schedule.is_enabled and {_IS_PAUSED}",
    ScheduleState.DISABLED: "not schedule.is_enabled",
    ScheduleState.ENDED: f"{_FIRES} and schedule.next_at = 'infinity'",
    # How a run ended says something of its job, which not every user may see.
    ScheduleState.FAILING: f"%(sees_outcomes)s::boolean and {IS_FAILING}",
    ScheduleState.MISSED: f"schedule.last_missed_at >= clock.now - interval '{MISSED_WITHIN} seconds'",
    # A schedule whose next time no worker has computed yet has -infinity.
    ScheduleState.LATE: f"""{_FIRES} and schedule.next_at <= {_LATE_BEFORE}
        and (schedule.next_at > '-infinity' or schedule.changed_at <= {_LATE_BEFORE})""",
    ScheduleState.UNKNOWN_TASK: "schedule.task = any (%(unknown_tasks)s::text[])",
    ScheduleState.ANY: "true",
}

# Goes from one task to the next in the index.
TASKS = """/* gw:schedules:tasks */
with recursive found (task) as (
    (select schedule.task from :SCHEMA._private_schedules as schedule order by schedule.task limit 1)
    union all
    select (select schedule.task from :SCHEMA._private_schedules as schedule
        where schedule.task > found.task order by schedule.task limit 1)
    from found where found.task is not null
)
select found.task from found where found.task is not null limit %(limit)s"""

MISSED_ITEMS = f"""/* gw:schedules:missed-items */
select item.identifier from unnest(%(identifiers)s::text[]) as item(identifier)
where exists (
    select from :SCHEMA._private_schedule_runs as run
    where run.crontab_identifier = item.identifier and run.kind = 'missed'
        and run.added_at >= clock_timestamp() - interval '{MISSED_WITHIN} seconds')"""

IS_ANY = "/* gw:schedules:is-any */ select exists (select from :SCHEMA._private_schedules)"

_DUE_AT = "case when schedule.next_at = '-infinity' then schedule.changed_at else schedule.next_at end"
# The index of next_at has what is late first.
LATE = f"""/* gw:schedules:late */
select schedule.name, {microseconds_of(_DUE_AT)}
from :SCHEMA._private_schedules as schedule cross join (select clock_timestamp() as now) as clock
where {CONDITIONS[ScheduleState.LATE]} order by schedule.next_at limit %(limit)s"""


_HAS_MISSED = CONDITIONS[ScheduleState.MISSED]
TROUBLED = f"""/* gw:schedules:troubled */
select schedule.name, coalesce({_HAS_MISSED}, false), {IS_FAILING}
from only :SCHEMA._private_schedules as schedule cross join (select clock_timestamp() as now) as clock
where schedule.is_enabled and ({IS_FAILING} or {_HAS_MISSED}) order by schedule.name limit %(limit)s"""


class LateSchedule(NamedTuple):
    """A schedule whose time no worker has fired."""

    name: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCriteria:
    """Which schedules a list shows, and what its conditions compare with."""

    state: ScheduleState = ScheduleState.ANY
    # The tasks of schedules that the project does not have.
    unknown_tasks: tuple[str, ...] = ()
    # Whether the user may see how runs ended.
    sees_outcomes: bool = True

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the conditions."""
        return {"unknown_tasks": list(self.unknown_tasks), "sees_outcomes": self.sees_outcomes}


def expression(criteria: ScheduleCriteria, table: str, *, schema: str) -> tuple[str, list[Any]]:
    """Return the condition of the state of the criteria on a table of Django's ORM, and its parameters."""
    return _on_table(CONDITIONS[criteria.state], criteria, table, schema)


def states_expression(criteria: ScheduleCriteria, table: str, *, schema: str) -> tuple[str, list[Any]]:
    """Return an expression for a text with a letter for each of CONDITIONS: "t" if the schedule is in this state."""
    letters = (f"case when {condition} then 't' else 'f' end" for condition in CONDITIONS.values())
    return _on_table(f"concat({', '.join(letters)})", criteria, table, schema)


def _on_table(text: str, criteria: ScheduleCriteria, table: str, schema: str) -> tuple[str, list[Any]]:
    text = statement(text, schema).replace("clock.now", "pg_catalog.statement_timestamp()")
    text = re.sub(r"(?<![\w.])schedule\.", lambda found: f"{table}.", text)
    parameters = criteria.parameters()
    return re.sub(r"%\(\w+\)s", "%s", text), [parameters[name] for name in re.findall(r"%\((\w+)\)s", text)]


def tasks(cursor: Any, *, schema: str, limit: int) -> list[str]:
    """Return the tasks that schedules have, up to a limit."""
    cursor.execute(statement(TASKS, schema), {"limit": limit})
    return [row[0] for row in cursor.fetchall()]


def is_any(cursor: Any, *, schema: str) -> bool:
    """Return whether there is any schedule."""
    cursor.execute(statement(IS_ANY, schema))
    return bool(cursor.fetchone()[0])


def late(cursor: Any, *, schema: str, limit: int = 1_000) -> list[LateSchedule]:
    """Return the schedules that are late, the longest late first, up to a limit."""
    cursor.execute(statement(LATE, schema), {"limit": limit})
    return [LateSchedule(name, moment_of(due)) for name, due in cursor.fetchall()]


def troubled(cursor: Any, *, schema: str, limit: int = 100) -> tuple[list[str], list[str]]:
    """Return the names of the schedules that missed times in the last day, and of those that are failing."""
    cursor.execute(statement(TROUBLED, schema), {"limit": limit})
    found = cursor.fetchall()
    return [name for name, has_missed, _ in found if has_missed], [name for name, _, fails in found if fails]


def missed_items(cursor: Any, identifiers: Sequence[str], *, schema: str) -> list[str]:
    """Return those of the items of the crontab that missed times in the last day."""
    if not identifiers:
        return []
    cursor.execute(statement(MISSED_ITEMS, schema), {"identifiers": list(identifiers)})
    return [row[0] for row in cursor.fetchall()]


# How many different names one statement returns.
MAX_NAMES = 1_000

NAMED_TASKS = f"""/* gw:schedule-tasks */
select schedule.task, min(schedule.name), count(*)
from only :SCHEMA._private_schedules as schedule where schedule.is_enabled
group by schedule.task order by schedule.task limit {MAX_NAMES}"""

NAMED_TIMES = f"""/* gw:schedule-times */
select schedule.cron, schedule.time_zone, min(schedule.name), count(*)
from only :SCHEMA._private_schedules as schedule where schedule.is_enabled
group by schedule.cron, schedule.time_zone order by 3 limit {MAX_NAMES}"""

CLASHES = f"""/* gw:schedule-clashes */
select schedule.name from only :SCHEMA._private_schedules as schedule
where schedule.name = any (%(identifiers)s::text[])
    or exists (select from :SCHEMA._private_known_crontabs as known where known.identifier = schedule.name)
order by schedule.name limit {MAX_NAMES}"""


class NamedTask(NamedTuple):
    """A task that enabled schedules have, the first of them, and how many they are."""

    task: str
    schedule: str
    number: int


class NamedTimes(NamedTuple):
    """A cron line and a time zone that enabled schedules have, the first of them, and how many they are."""

    cron: str | None
    time_zone: str
    schedule: str
    number: int


def named_tasks(cursor: Any, *, schema: str) -> list[NamedTask]:
    cursor.execute(statement(NAMED_TASKS, schema), {})
    return [NamedTask(*row) for row in cursor.fetchall()]


def named_times(cursor: Any, *, schema: str) -> list[NamedTimes]:
    cursor.execute(statement(NAMED_TIMES, schema), {})
    return [NamedTimes(*row) for row in cursor.fetchall()]


def clashes(cursor: Any, identifiers: Iterable[str], *, schema: str) -> list[str]:
    """Return the names of schedules that are also identifiers of crontab items, given or known to the database."""
    cursor.execute(statement(CLASHES, schema), {"identifiers": text_array(identifiers)})
    return [row[0] for row in cursor.fetchall()]
