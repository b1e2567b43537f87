"""Tasks that jobs wait for and no live worker has."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection.index_walks import PARTS
from django_graphile_worker.sql.schema import statement

MOST_NAMED = 20
# Of each task one job is looked for, along an index; a table of names that somebody filled is not read to its end.
MOST_TASKS = 10_000

_FIRST_JOB = " union all ".join(
    f"(select job.id from :SCHEMA._private_jobs as job where job.task_id = task.id and {condition}"
    " order by job.priority, job.run_at, job.id limit 1)"
    for condition in PARTS.values()
)

# A live worker that tells no tasks may have any, so that nothing can be said.
UNSERVED = f"""/* gw:unserved-tasks */
with alive as materialized (
    select worker.metadata -> 'tasks' as tasks from :SCHEMA._private_workers as worker
    where worker.last_heartbeat_at >= pg_catalog.now() - interval '1 second' * %(timeout)s::float8),
served as materialized (
    select distinct pg_catalog.jsonb_array_elements_text(tasks) as identifier from alive
    where pg_catalog.jsonb_typeof(tasks) = 'array')
select task.identifier, first_job.id
from (
    select task.id, task.identifier from :SCHEMA._private_tasks as task
    where task.identifier not in (select served.identifier from served)
        and exists (select from alive)
        and not exists (select from alive where pg_catalog.jsonb_typeof(tasks) is distinct from 'array')
    order by task.id desc limit {MOST_TASKS}) as task
cross join lateral (select min_job.id from ({_FIRST_JOB}) as min_job limit 1) as first_job
order by first_job.id limit %(most)s"""


class UnservedTask(NamedTuple):
    """A task, and the first of the jobs that wait for it."""

    identifier: str
    job_id: int


def unserved_tasks(cursor: Any, *, schema: str, timeout: float, most: int = MOST_NAMED) -> list[UnservedTask]:
    """Tasks of waiting jobs that no live worker has; none while no worker is alive."""
    cursor.execute(statement(UNSERVED, schema), {"timeout": timeout, "most": most})
    return [UnservedTask._make(row) for row in cursor.fetchall()]
