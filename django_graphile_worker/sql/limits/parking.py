"""The end of the parking of jobs, which are sorted again, or run like ordinary jobs if their task has no limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_graphile_worker.sql.codecs import int_array, nullable_array
from django_graphile_worker.sql.schema import statement

UNPARK_TASKS = """/* gw:unpark-tasks */
select :SCHEMA._private_unpark_tasks_v1(%(task_ids)s::int[], %(shapes)s::int[], %(seconds)s::float8, %(most)s::int)"""

UNPARK_JOBS = "/* gw:unpark-jobs */ select :SCHEMA._private_unpark_jobs_v1(%(job_ids)s::bigint[])"

# How many jobs one statement finds.
MOST_JOBS = 1_000


def unpark_tasks(cursor: Any, shapes: Mapping[int, int | None], *, schema: str, seconds: float = 0.0) -> int:
    """End the parking of jobs of tasks whose limits have changed; return how many were found.

    ``shapes`` are the numbers of the limits of each task as they are now, None for no limits. Jobs that were sorted in
    the last ``seconds`` stay: another worker may still have the code for them.
    """
    if not shapes:
        return 0
    parameters = {
        "task_ids": int_array(shapes),
        "shapes": nullable_array(shapes.values()),
        "seconds": seconds,
        "most": MOST_JOBS,
    }
    cursor.execute(statement(UNPARK_TASKS, schema), parameters)
    (found,) = cursor.fetchone()
    return int(found)


def unpark_jobs(cursor: Any, job_ids: Sequence[int], *, schema: str) -> None:
    """End the parking of these jobs: they are sorted again."""
    cursor.execute(statement(UNPARK_JOBS, schema), {"job_ids": int_array(job_ids)})
