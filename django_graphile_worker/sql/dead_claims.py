"""The claims of a worker whose process is known to be dead, as the worker itself had read them."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import locked_by_worker

# The columns in the order of the fields of Claim.
_COLUMNS = """job.id, job.task_id, job.attempts, job.payload::text, job.job_queue_id, job.priority,
    date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision, job.flags::text, job.last_error,
    date_part('epoch', job.created_at), date_part('epoch', job.updated_at),
    (select queue.queue_name from only :SCHEMA._private_job_queues as queue where queue.id = job.job_queue_id),
    job.locked_by"""

DEAD_CLAIMS = f"""/* gw:dead-claims */
select {_COLUMNS} from only :SCHEMA._private_jobs as job
where {locked_by_worker("job", "= any(%(worker_ids)s::text[])")}"""


def dead_claims(cursor: Any, worker_ids: list[str], *, schema: str) -> list[Claim]:
    """Return all claims of these workers."""
    cursor.execute(statement(DEAD_CLAIMS, schema), {"worker_ids": worker_ids})
    return [Claim(*row) for row in cursor.fetchall()]
