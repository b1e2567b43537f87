"""Reads what became of jobs: from the row of a job while there is one, and from the row of its result.

The statement that ends a job deletes the one row and writes the other, so a statement that reads both sees one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# A progress is of use only for the attempt that reported it, or for its result.
RESULTS = f"""/* gw:results */
select wanted.job_id, job.id is not null, job.xmin::text, coalesce(task.identifier, result.task_identifier),
    case when job.id is null then result.queue_name else queue.queue_name end,
    :SCHEMA._private_worker_of(job.locked_by), {readable("job.locked_at")}, job.attempts, job.max_attempts,
    job.last_error, {readable("coalesce(job.created_at, result.added_at)")},
    result.status, {readable("result.first_started_at")}, {readable("result.last_started_at")},
    {readable("result.finished_at")}, result.value, result.attempts::text,
    progress.done, progress.total, progress.message, {readable("progress.updated_at")}
from unnest(%(ids)s::bigint[]) as wanted (job_id)
left join :SCHEMA._private_jobs as job on job.id = wanted.job_id
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
left join :SCHEMA._private_results as result on result.job_id = wanted.job_id
left join :SCHEMA._private_progress as progress on progress.job_id = wanted.job_id
    and (job.id is null or progress.attempt >= job.attempts)
where job.id is not null or result.job_id is not null"""

VERSION = """/* gw:job-version */
select job.xmin::text, current_setting('transaction_isolation') = 'read committed'::text
from :SCHEMA._private_jobs as job where job.id = %(id)s::bigint"""


class ResultRow(NamedTuple):
    """What the database has about a job, in the order of the columns."""

    job_id: int
    is_job_there: bool
    # The transaction that wrote the job's row. It differs for each change of the row.
    version: str | None
    task_identifier: str
    queue_name: str | None
    worker_id: str | None
    locked_at: Any
    attempts: int | None
    max_attempts: int | None
    last_error: str | None
    added_at: Any
    status: int | None
    first_started_at: Any
    last_started_at: Any
    finished_at: Any
    value_text: str | None
    attempts_text: str | None
    done: float | None
    total: float | None
    message: str | None
    progress_at: Any

    @property
    def has_ended(self) -> bool:
        """Whether the job never runs again by itself: it has succeeded, failed permanently, or is gone."""
        if not self.is_job_there:
            return True
        return self.worker_id is None and (self.attempts or 0) >= (self.max_attempts or 0)


def read(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> dict[int, ResultRow]:
    """Return what the database has about these jobs; an id of which it has nothing is missing."""
    cursor.execute(statement(RESULTS, schema), {"ids": int_array(job_ids)})
    return {row[0]: ResultRow._make(row) for row in cursor.fetchall()}


def version(cursor: Cursor, job_id: int, *, schema: str) -> tuple[str | None, bool]:
    """Return the version of a job's row as this transaction sees it, and whether it sees what others have committed."""
    cursor.execute(statement(VERSION, schema), {"id": job_id})
    return cursor.fetchone() or (None, True)
