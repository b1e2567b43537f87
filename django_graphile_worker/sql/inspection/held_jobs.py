"""The jobs that workers hold now, and how far each has got."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection.job_search.criteria import Subquery
from django_graphile_worker.sql.inspection.lock_holders import MOST_LOCKS
from django_graphile_worker.sql.jobs import IS_LOCKED
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.statements import statement

# The names and the progress are read only for the jobs that are shown.
HELD_JOBS = f"""/* gw:held-jobs */
with held as materialized (
    select job.id, job.task_id, job.attempts, job.locked_at, :SCHEMA._private_worker_of(job.locked_by) as worker_id
    from :SCHEMA._private_jobs as job where {IS_LOCKED} and {{visible}}
    order by job.locked_at limit {MOST_LOCKS}),
numbered as (
    select held.*, row_number() over (partition by held.worker_id order by held.locked_at, held.id) as number
    from held)
select numbered.worker_id, numbered.id, task.identifier, {readable("numbered.locked_at")},
    progress.done, progress.total, progress.message, {readable("progress.updated_at")}
from numbered
left join :SCHEMA._private_tasks as task on task.id = numbered.task_id
left join :SCHEMA._private_progress as progress
    on progress.job_id = numbered.id and progress.attempt >= numbered.attempts
where numbered.number <= %(most)s::int
order by numbered.locked_at, numbered.id"""


class HeldJob(NamedTuple):
    """A job that a worker holds."""

    worker_id: str
    id: int
    task_identifier: str | None
    locked_at: Any
    done: float | None
    total: float | None
    message: str | None
    progress_at: Any

    @property
    def progress(self) -> Progress | None:
        """How far the attempt has got; None if it has reported nothing."""
        if self.done is None:
            return None
        return Progress(done=self.done, total=self.total, message=self.message or "", updated_at=self.progress_at)


def held_jobs(cursor: Any, *, schema: str, most: int, within: Subquery | None = None) -> dict[str, list[HeldJob]]:
    """Return the jobs that each worker holds, up to ``most`` of each, longest held first; ``within`` restricts them."""
    condition, parameters = ("true", {}) if within is None else within.named()
    visible = condition if within is None else f"job.id in ({condition})"
    cursor.execute(statement(HELD_JOBS.format(visible=visible), schema), {"most": most, **parameters})
    by_worker: dict[str, list[HeldJob]] = {}
    for row in cursor.fetchall():
        job = HeldJob._make(row)
        by_worker.setdefault(job.worker_id or "", []).append(job)
    return by_worker
