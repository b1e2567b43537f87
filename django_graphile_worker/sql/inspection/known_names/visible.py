"""The names of the newest jobs that a user may see, for users that may not see all jobs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from django_graphile_worker.job_flags import without_run_flags
from django_graphile_worker.sql.inspection.job_search.criteria import Subquery
from django_graphile_worker.sql.statements import statement

MOST_LOOKED_AT = 5_000

VISIBLE = """/* gw:visible-names */
select task.identifier, queue.queue_name, job.key, left(job.flags::text, 1000),
    :SCHEMA._private_worker_of(job.locked_by),
    case when job.locked_at is null and job.attempts > 0 then :SCHEMA._private_error_name(job.last_error) end
from (select * from :SCHEMA._private_jobs as job order by job.id desc limit %(most)s) as job
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
where job.id in ({restriction})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleNames:
    """How many of the newest jobs that a user may see have each name."""

    tasks: Counter[str]
    queues: Counter[str]
    keys: Counter[str]
    flags: Counter[str]
    workers: Counter[str]
    error_names: Counter[str]


def visible_names(cursor: Any, within: Subquery, *, schema: str, most: int = MOST_LOOKED_AT) -> VisibleNames:
    """Return the names of the jobs that a user may see, among the newest jobs."""
    restriction, parameters = within.named()
    cursor.execute(statement(VISIBLE.format(restriction=restriction), schema), {**parameters, "most": most})
    rows = cursor.fetchall()
    columns = [[row[place] for row in rows if row[place] is not None] for place in range(6)]
    tasks, queues, keys, flags, workers, error_names = columns
    return VisibleNames(
        tasks=Counter(tasks),
        queues=Counter(queues),
        keys=Counter(keys),
        flags=Counter(flag for text in flags for flag in _flags(text)),
        workers=Counter(workers),
        error_names=Counter(error_names),
    )


def _flags(text: str) -> list[str]:
    try:
        flags = json.loads(text)
    except ValueError:
        return []
    return without_run_flags(flags) if isinstance(flags, dict) else []
