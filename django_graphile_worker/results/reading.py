"""``result()``: what became of a job, read on Django's own connection."""

from __future__ import annotations

from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.results.job_ids import JobOrId, job_and_place
from django_graphile_worker.results.values import Result, result_from
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.results import ResultRow, read_results


def result(job_or_id: JobOrId, *, using: str | None = None, installation: str | None = None) -> Result | None:
    """Return what became of a job, or None if nothing of it is kept.

    While a job waits or runs, and after it has failed permanently, its row is there. After it has succeeded, its result
    is there for as long as ``@task(keep_result=...)`` or the setting ``KEEP_RESULTS`` says.
    """
    job_id, place = job_and_place(job_or_id, using, installation)
    row = read_row(place, job_id)
    return None if row is None else result_from(row)


def read_row(place: Place, job_id: int) -> ResultRow | None:
    """Return what the database has about a job, as the transaction of the caller sees it."""
    with open_place(place) as queue:
        row = read_results(queue.cursor, [job_id], schema=queue.schema).get(job_id)
        if row is None:
            queue.refuse_hidden_tables()
        return row


aresult = async_variant(result)
