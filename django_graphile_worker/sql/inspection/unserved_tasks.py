"""Tasks that no live worker runs although jobs wait for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection.job_search.level_walks import PARTS
from django_graphile_worker.sql.jobs import IS_ALIVE
from django_graphile_worker.sql.statements import statement

MOST_NAMED = 20
# For each task, one job is looked up in an index. The limit keeps that fast if a program has filled the table with
# names.
MOST_TASKS = 10_000

_FIRST_JOB = " union all ".join(
    f"(select job.id from :SCHEMA._private_jobs as job where job.task_id = task.id and {condition}"
    " order by job.priority, job.run_at, job.id limit 1)"
    for condition in PARTS.values()
)

# A live worker that does not list its tasks may run any task; then the statement returns nothing.
UNSERVED = f"""/* gw:unserved-tasks */
with alive as materialized (
    select worker.metadata -> 'tasks' as tasks from :SCHEMA._private_workers as worker
    where {IS_ALIVE}),
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
    """A task, and the first job that waits for it."""

    identifier: str
    job_id: int


def unserved_tasks(cursor: Any, *, schema: str, timeout: float, most: int = MOST_NAMED) -> list[UnservedTask]:
    """Return the tasks of waiting jobs that no live worker runs; none while no worker is alive."""
    cursor.execute(statement(UNSERVED, schema), {"timeout": timeout, "most": most})
    return [UnservedTask._make(row) for row in cursor.fetchall()]
