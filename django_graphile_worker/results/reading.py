"""``result()``: what became of a job, read on Django's own connection."""

from __future__ import annotations

from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.jobs import Job
from django_graphile_worker.results.job_ids import job_id_of
from django_graphile_worker.results.values import Result, result_from
from django_graphile_worker.sql import result_rows


def result(job_or_id: Job | int, *, using: str | None = None, installation: str | None = None) -> Result | None:
    """Return what became of a job, or None if nothing of it is kept.

    While a job waits or runs, and after it has failed permanently, its row is there. After it has succeeded, its result
    is there for as long as ``@task(keep_result=...)`` or the setting ``KEEP_RESULTS`` says.
    """
    job_id = job_id_of(job_or_id)
    with open_queue(using, installation) as queue:
        row = result_rows.read(queue.cursor, [job_id], schema=queue.schema).get(job_id)
        if row is None:
            queue.refuse_hidden_tables()
        return None if row is None else result_from(row)


aresult = async_variant(result)
