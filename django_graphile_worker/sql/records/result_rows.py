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

# A row that is visible though the transaction of its xmin has not ended was written by this transaction, or in one of
# its savepoints, whose ids are not lower than its own. The id of a transaction has 64 bits, an xmin only the lower 32.
IS_UNCOMMITTED = """
    case when (job.xmin::text::bigint - own.id) & 4294967295::bigint < 1073741824::bigint
        then pg_xact_status((own.id + ((job.xmin::text::bigint - own.id) & 4294967295::bigint))::text::pg_catalog.xid8)
            = 'in progress'::text
        else false
    end"""

# A progress is of use only for the attempt that reported it, or for its result.
RESULTS = f"""/* gw:results */
select wanted.job_id, job.id is not null, {IS_UNCOMMITTED}, coalesce(task.identifier, result.task_identifier),
    case when job.id is null then result.queue_name else queue.queue_name end,
    :SCHEMA._private_worker_of(job.locked_by), {readable("job.locked_at")}, job.attempts, job.max_attempts,
    job.last_error, {readable("coalesce(job.created_at, result.added_at)")},
    result.status, {readable("result.first_started_at")}, {readable("result.last_started_at")},
    {readable("result.finished_at")}, result.value, result.attempts::text,
    progress.done, progress.total, progress.message, {readable("progress.updated_at")}
from unnest(%(ids)s::bigint[]) as wanted (job_id)
cross join (select pg_current_xact_id_if_assigned()::text::bigint as id) as own
left join :SCHEMA._private_jobs as job on job.id = wanted.job_id
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
left join :SCHEMA._private_results as result on result.job_id = wanted.job_id
left join :SCHEMA._private_progress as progress on progress.job_id = wanted.job_id
    and (job.id is null or progress.attempt >= job.attempts)
where job.id is not null or result.job_id is not null"""


class ResultRow(NamedTuple):
    """What the database has about a job, in the order of the columns."""

    job_id: int
    is_job_there: bool
    # Whether the transaction that reads the job has added or changed it, so that nobody else sees it as it is.
    is_uncommitted: bool
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
