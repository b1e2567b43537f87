"""The job that a caller means, and its place."""

from __future__ import annotations

from typing import Any, Protocol

from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.job_options import whole_number
from django_graphile_worker.jobs import Job
from django_graphile_worker.printable_text import quoted
from django_graphile_worker.routing import Place, place_of

LARGEST_ID = 2**63 - 1


class TaskResultLike(Protocol):
    """The part of a ``TaskResult`` of Django Tasks that tells its job."""

    @property
    def id(self) -> str: ...

    @property
    def task(self) -> Any: ...


# A job, the id of a job, or the result of a Django task.
JobOrId = Job | int | TaskResultLike


def job_and_place(job_or_id: object, using: str | None, installation: str | None) -> tuple[int, Place]:
    """Return the id of the job that is meant, and its place; raise for anything else.

    The result of a Django task tells its place itself: its backend knows where its jobs are.
    """
    if isinstance(job_or_id, Job):
        return job_or_id.id, place_of(using, installation)
    if isinstance(job_or_id, int) and not isinstance(job_or_id, bool):
        return whole_number("job_or_id", job_or_id, 1, LARGEST_ID), place_of(using, installation)
    if hasattr(job_or_id, "task") and isinstance(getattr(job_or_id, "id", None), str):
        return _of_task_result(job_or_id)
    got = f"{quoted(job_or_id)} ({type(job_or_id).__name__})"
    raise InvalidTypeError(
        f"job_or_id: expected a Job, the id of a job (int), or the result of a Django task, got {got}."
    )


def _of_task_result(result: Any) -> tuple[int, Place]:
    backend: Any = result.task.get_backend()
    if getattr(backend, "runs_in_graphile_worker", False) is not True:
        raise InvalidTypeError(
            f"job_or_id: expected the result of a GraphileWorkerBackend, got one of {type(backend).__name__}, whose "
            "results only that backend can read: result.refresh()."
        )
    # Late import: only projects with Django Tasks have such a result.
    from django_graphile_worker.backend.result_ids import job_id_of

    job_id = job_id_of(result.id, backend.alias)
    if job_id is None:
        raise InvalidTypeError(
            f"job_or_id: expected an id that the backend {backend.alias!r} returned, got {quoted(result.id)}."
        )
    place: Place = backend.checked_options.place()
    return job_id, place
