"""Jobs that failed, by task and by what the error is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.reading import within_python_years as readable
from django_graphile_worker.sql.schema import statement

MOST_GROUPS = 100
# So many jobs are counted altogether; the fewer groups, the further each is counted.
MOST_COUNTED = 30_000

# When a job failed last is not stored. Its next attempt is: the usual back-off earlier it was.
FAILED_AT = """greatest(job.created_at, least(now(), greatest(
    job.run_at - exp(least(job.attempts, 10)) * interval '1 second', '-infinity')))"""

# From one group to the next along the index, which has all jobs of a group side by side.
GROUPS = f"""/* gw:error-groups */
with recursive task as materialized (select id, identifier from :SCHEMA._private_tasks),
first_group (task_id, name) as (
    select task.id, first_job.name from task
    cross join lateral (
        select :SCHEMA._private_error_name(job.last_error) as name from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.locked_at is null and job.attempts > 0
            and :SCHEMA._private_error_name(job.last_error) is not null
        order by :SCHEMA._private_error_name(job.last_error) limit 1) as first_job),
walk (task_id, name) as (
    select * from first_group
    union all
    select walk.task_id, next_job.name from walk
    cross join lateral (
        select :SCHEMA._private_error_name(job.last_error) as name from :SCHEMA._private_jobs as job
        where job.task_id = walk.task_id and job.locked_at is null and job.attempts > 0
            and :SCHEMA._private_error_name(job.last_error) > walk.name
        order by :SCHEMA._private_error_name(job.last_error) limit 1) as next_job),
found as materialized (select * from walk limit %(most_groups)s)
select task.identifier, found.name, counted.number, counted.failed,
    counted.number >= (select %(most)s / greatest(count(*), 1) from found),
    {readable("earliest.failed_at")}, {readable("latest.failed_at")}, latest.id, latest.error
from found
join task on task.id = found.task_id
cross join lateral (
    select count(*) as number, count(*) filter (where not job.is_available) as failed
    from (
        select job.is_available from :SCHEMA._private_jobs as job
        where job.task_id = found.task_id and job.locked_at is null and job.attempts > 0
            and :SCHEMA._private_error_name(job.last_error) = found.name
        limit (select %(most)s / greatest(count(*), 1) from found)) as job) as counted
cross join lateral (
    select {FAILED_AT} as failed_at from :SCHEMA._private_jobs as job
    where job.task_id = found.task_id and job.locked_at is null and job.attempts > 0
        and :SCHEMA._private_error_name(job.last_error) = found.name
    order by job.run_at limit 1) as earliest
cross join lateral (
    select {FAILED_AT} as failed_at, job.id, left(job.last_error, 500) as error from :SCHEMA._private_jobs as job
    where job.task_id = found.task_id and job.locked_at is null and job.attempts > 0
        and :SCHEMA._private_error_name(job.last_error) = found.name
    order by job.run_at desc limit 1) as latest
order by counted.number desc, latest.failed_at desc"""


class ErrorGroup(NamedTuple):
    """The jobs of one task that fail in one way."""

    task_identifier: str
    name: str
    number: int
    failed: int
    # There are more than were counted.
    is_more: bool
    first_seen: Any
    last_seen: Any
    latest_id: int
    latest_error: str

    @property
    def retrying(self) -> int:
        return self.number - self.failed


def error_groups(
    cursor: Any, *, schema: str, most_groups: int = MOST_GROUPS, most: int = MOST_COUNTED
) -> Sequence[ErrorGroup]:
    """Groups of failed jobs, the largest first."""
    cursor.execute(statement(GROUPS, schema), {"most_groups": most_groups, "most": most})
    return [ErrorGroup._make(row) for row in cursor.fetchall()]
