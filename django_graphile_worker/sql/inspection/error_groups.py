"""Groups of failed jobs: a group has the jobs of one task whose errors have the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection import job_list
from django_graphile_worker.sql.inspection.job_list import Criteria, State, Subquery
from django_graphile_worker.sql.jobs import HAS_FAILED
from django_graphile_worker.sql.statements import statement

MAX_GROUPS = 100
# How many jobs are counted in all groups together. If more have failed, all groups have equal shares of one half, and
# those that have more jobs than that have equal shares of the other half.
MAX_COUNTED = 100_000

# The jobs of a group. The index has two halves: the jobs that will be retried, and the permanently failed jobs.
_JOBS = f"""from :SCHEMA._private_jobs as job
    where job.task_id = found.task_id and job.is_available = {{half}} and {HAS_FAILED}
        and :SCHEMA._private_error_name(job.last_error) = found.name"""
_SHARE = f"""(select case when number <= %(most)s::int then %(most)s::int + 1
    else greatest(%(most)s::int / 2 / (2 * greatest((select count(*) from found), 1)), 1) end
    from (select count(*) as number from (
        select from task cross join lateral (
            select from :SCHEMA._private_jobs as job
            where job.task_id = task.id and job.is_available = task.is_available and {HAS_FAILED}
            order by job.run_at, job.id limit %(most)s::int + 1) as job
        limit %(most)s::int + 1) as job) as total)"""
_LARGER_SHARE = "(select number from larger_share)"
_NAME = ":SCHEMA._private_error_name(job.last_error)"


def _count(half: str, share: str) -> str:
    return f"(select count(*) from (select {_JOBS.format(half=half)} limit {share}) as job)"


def _half(name: str, half: str) -> str:
    """Return joins that read the first and the last failure of one half of a group, and its latest job."""
    jobs = _JOBS.format(half=half)
    return f"""
left join lateral (
    select job.updated_at {jobs} order by job.updated_at, job.id limit 1) as {name}_first on true
left join lateral (
    select job.updated_at, job.id, job.last_error {jobs}
    order by job.updated_at desc, job.id desc limit 1) as {name}_last on true"""


# The walk goes from one group to the next along the index, which has all jobs of a group side by side. It begins
# with the newest tasks, and reads one group of each in turn.
GROUPS = f"""/* gw:error-groups */
with recursive task as materialized (
    select id, identifier, half.is_available from :SCHEMA._private_tasks
    cross join unnest(array[true, false]) as half(is_available)
    where %(tasks)s::text[] is null or identifier = any (%(tasks)s::text[])
    order by id desc),
first_group (task_id, is_available, name) as (
    select task.id, task.is_available, first_job.name from task
    cross join lateral (
        select {_NAME} as name from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.is_available = task.is_available and {HAS_FAILED}
            and {_NAME} is not null
        order by {_NAME} limit 1) as first_job),
walk (task_id, is_available, name) as (
    select * from first_group
    union all
    select walk.task_id, walk.is_available, next_job.name from walk
    cross join lateral (
        select {_NAME} as name from :SCHEMA._private_jobs as job
        where job.task_id = walk.task_id and job.is_available = walk.is_available and {HAS_FAILED}
            and {_NAME} > walk.name
        order by {_NAME} limit 1) as next_job),
found as materialized (
    select task_id, name from (select * from walk limit 2 * %(most_groups)s::int) as walk
    group by task_id, name),
share as materialized (select {_SHARE} as number),
first_count as materialized (
    select found.*, {_count("false", "(select number from share)")} as failed,
        {_count("true", "(select number from share)")} as retrying
    from found),
larger_share as materialized (
    select greatest(max(share.number), %(most)s::int / 2 / greatest(
        count(*) filter (where failed >= share.number) + count(*) filter (where retrying >= share.number), 1)) as number
    from first_count cross join share),
counted as materialized (
    select found.task_id, found.name,
        case when found.failed < share.number then found.failed
            else {_count("false", _LARGER_SHARE)} end as failed,
        case when found.retrying < share.number then found.retrying
            else {_count("true", _LARGER_SHARE)} end as retrying
    from first_count as found cross join share)
select task.identifier, found.name, found.failed + found.retrying, found.failed,
    greatest(found.failed, found.retrying) >= {_LARGER_SHARE},
    {readable("least(failed_first.updated_at, retrying_first.updated_at)")},
    {readable("greatest(failed_last.updated_at, retrying_last.updated_at)")},
    latest.id, left(latest.last_error, 500)
from counted as found
join :SCHEMA._private_tasks as task on task.id = found.task_id
{_half("failed", "false")}
{_half("retrying", "true")}
cross join lateral (
    select * from (values
        (failed_last.updated_at, failed_last.id, failed_last.last_error),
        (retrying_last.updated_at, retrying_last.id, retrying_last.last_error)) as each (updated_at, id, last_error)
    order by updated_at desc nulls last limit 1) as latest
where found.failed + found.retrying > 0
order by found.failed + found.retrying desc, latest.updated_at desc
limit %(most_groups)s"""


class ErrorGroup(NamedTuple):
    """The jobs of one task that failed with errors of one name."""

    task_identifier: str
    name: str
    number: int
    failed: int
    # Whether there are more jobs than were counted.
    is_more: bool
    # The earliest and the latest time at which a job of the group last failed, or was changed after that.
    first_seen: Any
    last_seen: Any
    latest_id: int
    latest_error: str

    @property
    def retrying(self) -> int:
        return self.number - self.failed


def error_groups(
    cursor: Any,
    *,
    schema: str,
    most_groups: int = MAX_GROUPS,
    most: int = MAX_COUNTED,
    tasks: Sequence[str] | None = None,
) -> Sequence[ErrorGroup]:
    """Return the groups of failed jobs of all tasks, or of these: the largest first, and of equal ones the newest.

    There are no more groups if fewer than ``most_groups`` are returned. Otherwise at least so many were compared.
    """
    named = None if tasks is None else list(tasks)
    cursor.execute(statement(GROUPS, schema), {"most_groups": most_groups, "most": most, "tasks": named})
    return [ErrorGroup._make(row) for row in cursor.fetchall()]


# For a user that may not see all jobs: how many of the latest failed jobs are read.
MAX_EXAMINED = 1_000


def error_groups_within(
    cursor: Any, within: Subquery, *, schema: str, most_groups: int = MAX_GROUPS, most: int = MAX_EXAMINED
) -> Sequence[ErrorGroup]:
    """Return the groups of the failed jobs that a user may see, among ``most`` failed and ``most`` retrying jobs."""
    states = (State.FAILED, State.RETRYING)
    ids = [job_list.job_ids(cursor, Criteria(state=state), schema=schema, limit=most) for state in states]
    restriction, parameters = within.named()
    text = f"""/* gw:error-groups-within */
    select task.identifier, {_NAME}, count(*), count(*) filter (where not job.is_available),
        %(is_more)s::bool, {readable("min(job.updated_at)")},
        {readable("max(job.updated_at)")}, (array_agg(job.id order by job.updated_at desc, job.id desc))[1],
        left((array_agg(job.last_error order by job.updated_at desc, job.id desc))[1], 500)
    from :SCHEMA._private_jobs as job
    join :SCHEMA._private_tasks as task on task.id = job.task_id
    where job.id = any (%(ids)s::bigint[]) and {HAS_FAILED} and job.last_error is not null
        and job.id in ({restriction})
    group by 1, 2 order by 3 desc limit %(most_groups)s"""
    own = {"ids": [each for found in ids for each in found], "is_more": max(map(len, ids)) >= most}
    cursor.execute(statement(text, schema), {**parameters, **own, "most_groups": most_groups})
    return [ErrorGroup._make(row) for row in cursor.fetchall()]
