"""``wait_for_result()``: waits until a job has ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from asgiref.sync import sync_to_async

from django_graphile_worker.exceptions import ResultTimeoutError, UncommittedJobError, UnknownResultError, to_delay
from django_graphile_worker.results.job_ids import JobOrId, job_and_place
from django_graphile_worker.results.listeners import listener_of
from django_graphile_worker.results.reading import read_row
from django_graphile_worker.results.values import Result, result_from
from django_graphile_worker.results.waits import Wait
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.results import ResultRow

Timeout = timedelta | float | None


def wait_for_result(
    job_or_id: JobOrId,
    *,
    timeout: Timeout = None,
    using: str | None = None,
    installation: str | None = None,
) -> Result:
    """Wait until a job has ended, in whichever way; return what became of it.

    ``timeout`` is a number of seconds or a timedelta; None waits for as long as it takes. The task must keep its
    results: ``@task(keep_result=...)``.
    """
    seconds, (job_id, place) = _seconds(timeout), job_and_place(job_or_id, using, installation)
    if ended := _ended(place, job_id):
        return ended
    wait = listener_of(place).add(_wait(place, job_id))
    try:
        return _result(wait.result(seconds), job_id)
    except TimeoutError:
        raise _timed_out(job_id, seconds) from None
    finally:
        listener_of(place).forget(wait)


async def await_for_result(
    job_or_id: JobOrId,
    *,
    timeout: Timeout = None,  # noqa: ASYNC109 - the same arguments as wait_for_result()
    using: str | None = None,
    installation: str | None = None,
) -> Result:
    """Asynchronous variant of ``wait_for_result()``."""
    seconds, (job_id, place) = _seconds(timeout), job_and_place(job_or_id, using, installation)
    if ended := await sync_to_async(_ended, thread_sensitive=True)(place, job_id):
        return ended
    wait = listener_of(place).add(_wait(place, job_id))
    try:
        return _result(await asyncio.wait_for(asyncio.wrap_future(wait), seconds), job_id)
    except TimeoutError:
        raise _timed_out(job_id, seconds) from None
    finally:
        listener_of(place).forget(wait)


def _ended(place: Place, job_id: int) -> Result | None:
    """Return what became of a job that has ended, as the transaction of the caller sees it; None if it has not ended.

    Raise UncommittedJobError for a job that this transaction has added or changed: others cannot see that before its
    end, so no worker runs the job meanwhile.
    """
    row = read_row(place, job_id)
    if row is None:
        return None
    if row.has_ended:
        return result_from(row)
    if row.is_uncommitted:
        raise UncommittedJobError(
            f"wait_for_result: job {job_id} was added or changed in the transaction that is still open. No worker can "
            "run it before the end of the transaction, so it would never end. Wait after the atomic() block, or in "
            "transaction.on_commit(). In a TestCase, whose tests are transactions, run the job first with run_jobs() "
            "of django_graphile_worker.testing."
        )
    return None


def _seconds(timeout: object) -> float | None:
    if timeout is None:
        return None
    return to_delay(timeout, name="timeout", expected="a number of seconds, a timedelta or None").total_seconds()


def _wait(place: Place, job_id: int) -> Wait:
    settings = place.settings
    return Wait(job_id, settings.schema, is_notified=settings.listen and settings.notify)


def _result(row: ResultRow | None, job_id: int) -> Result:
    if row is None:
        raise UnknownResultError(
            f"wait_for_result: expected a job that exists, or whose result is kept, got {job_id}. Either there is no "
            "such job, or its transaction is not committed yet, or it has ended and nothing of it is kept: declare its "
            'task with @task(keep_result=timedelta(hours=1)), or set GRAPHILE_WORKER["KEEP_RESULTS"].'
        )
    return result_from(row)


def _timed_out(job_id: int, seconds: float | None) -> ResultTimeoutError:
    return ResultTimeoutError(
        f"wait_for_result: expected job {job_id} to end within {seconds:g} seconds, it has not. The job is unchanged: "
        "wait again, or read result() later."
    )
