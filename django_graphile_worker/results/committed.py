"""Refuses to wait for a job that the caller's own transaction has added or changed: no worker can run it meanwhile."""

from __future__ import annotations

from django_graphile_worker.api.connection import open_place
from django_graphile_worker.exceptions import UncommittedJobError
from django_graphile_worker.results.listeners import listener_of
from django_graphile_worker.results.waits import Wait
from django_graphile_worker.routing import Place, queue_connection
from django_graphile_worker.sql.records import result_rows

# How often to compare the versions of a row that workers may be changing at the same time.
MOST_COMPARISONS = 5


def refuse_uncommitted(place: Place, job_id: int) -> None:
    """Raise UncommittedJobError if the transaction that is open on Django's connection has written the job's row.

    Another connection sees the row as it was before, or not at all.
    """
    if queue_connection(place.using).get_autocommit():
        return
    for _ in range(MOST_COMPARISONS):
        own, sees_commits = _own_version(place, job_id)
        if own is None:
            return
        committed = listener_of(place).add(Wait(job_id, place.settings.schema, is_peek=True)).result()
        if committed is not None and (committed.version == own or not sees_commits):
            return
        # Unless a worker has changed the row in between, the difference is the work of this transaction.
        if _own_version(place, job_id)[0] == own:
            raise UncommittedJobError(
                f"wait_for_result: expected a job that is committed, got {job_id}, which was added or changed in the "
                "transaction that is still open: no worker can run it before the end of the transaction, so it would "
                "never end. Wait after the atomic() block, or in transaction.on_commit(). In a TestCase, whose tests "
                "are transactions, run the job with run_jobs() of django_graphile_worker.testing."
            )


def _own_version(place: Place, job_id: int) -> tuple[str | None, bool]:
    with open_place(place) as queue:
        return result_rows.version(queue.cursor, job_id, schema=queue.schema)
