"""The priority that lets jobs run next: one lower than that of every other job that waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.job_options import LARGEST_PRIORITY, SMALLEST_PRIORITY
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# The index of available jobs begins with the priority, so this reads one row, and those of the given jobs before it.
LOWEST_PRIORITY = """/* gw:lowest-priority */
select job.priority from only :SCHEMA._private_jobs as job
where job.is_available and job.id <> all (%(ids)s::bigint[])
order by job.priority, job.run_at limit 1"""


def first_priority(cursor: Cursor, job_ids: Sequence[int] = (), *, schema: str) -> int | None:
    """Return the priority that puts these jobs before all others; None if no priority is low enough.

    It is one priority for all of them: among each other the jobs keep their order.
    """
    cursor.execute(statement(LOWEST_PRIORITY, schema), {"ids": list(job_ids)})
    row = cursor.fetchone()
    if row is None:
        # No other job waits: none of these needs another priority.
        return LARGEST_PRIORITY
    return int(row[0]) - 1 if row[0] > SMALLEST_PRIORITY else None
