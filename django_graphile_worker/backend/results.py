"""The results of Django tasks: of a job that was just added, of one that runs, and of rows of the database.

The id of a result is the number of its job with a checksum, an opaque string of 16 characters that are safe in a URL.
The checksum covers the alias of the backend: an id that was mistyped, or that another backend made, is refused without
a query. It is no secret. Who may read a result is decided by the view that takes the id.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode, urlsafe_b64encode
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from zlib import crc32

from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import Task, TaskError, TaskResult, TaskResultStatus
from django_graphile_worker.backend.tasks import GraphileTask, find_django_task
from django_graphile_worker.registry import split_identifier
from django_graphile_worker.sql.results import StoredAttempt, StoredTask

P = ParamSpec("P")
R = TypeVar("R")

_ID_LENGTH = 16
_id_layout = struct.Struct(">qI")


def enqueued_result(task: Task[P, R], call: Call, *, job_id: int, added_at: datetime, alias: str) -> TaskResult[P, R]:
    """Return the result of a job that was just added."""
    run_after = call.run_after_of(added_at)
    if task.run_after != run_after:
        task = with_values(task, run_after=run_after)
    return TaskResult(
        task=task,
        id=result_id(job_id, alias),
        status=TaskResultStatus.READY,
        enqueued_at=added_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def stored_result(stored: StoredTask, call: Call, *, alias: str) -> TaskResult[..., Any]:
    """Return the result of the rows of a job: the job itself, and what its attempts left."""
    result: TaskResult[..., Any] = TaskResult(
        task=task_of_call(stored.task_identifier, call, added_at=stored.added_at),
        id=result_id(stored.job_id, alias),
        status=_status(stored),
        enqueued_at=stored.added_at,
        started_at=stored.first_started_at,
        finished_at=stored.finished_at,
        last_attempted_at=stored.last_started_at,
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=[error_of(attempt) for attempt in stored.attempts if attempt.exception_class is not None],
        worker_ids=[attempt.worker_id for attempt in stored.attempts if attempt.worker_id is not None],
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", stored.value)
    return result


def error_of(attempt: StoredAttempt) -> TaskError:
    # Tracebacks end with a line feed, as those of the framework do; it is not stored.
    return TaskError(exception_class_path=attempt.exception_class or "", traceback=f"{attempt.traceback or ''}\n")


def _status(stored: StoredTask) -> TaskResultStatus:
    if stored.is_running:
        return TaskResultStatus.RUNNING
    if stored.is_waiting:
        return TaskResultStatus.READY
    return TaskResultStatus.SUCCESSFUL if stored.has_succeeded else TaskResultStatus.FAILED


def task_of_call(identifier: str, call: Call, *, added_at: datetime | None) -> Task[..., Any]:
    """Return the task of a call as it was enqueued; a stand-in if the function has gone."""
    path, label = split_identifier(identifier)
    task = find_django_task(path) or missing_task(path)
    return with_values(
        task,
        priority=call.priority,
        queue_name=label,
        run_after=call.run_after_of(added_at),
        backend=call.backend,
    )


def with_values(task: Task[P, R], **values: Any) -> Task[P, R]:
    """Return a copy of a task without validating it: a stored result may name a label that is not allowed any more."""
    if all(getattr(task, name) == value for name, value in values.items()):
        return task
    copy: Task[P, R] = object.__new__(type(task))
    for each in fields(task):
        object.__setattr__(copy, each.name, values.get(each.name, getattr(task, each.name)))
    return copy


def missing_task(path: str) -> Task[..., Any]:
    """Return a task for a path at which there is no task: its results stay readable, but it cannot be called."""
    module, _, name = path.rpartition(".")

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise LookupError(
            f"There is no Django task at {path!r}: it was renamed, or its module has gone. Its results can be read, "
            "but it cannot run."
        )

    missing.__module__, missing.__name__, missing.__qualname__ = module, name, name
    task: Task[..., Any] = object.__new__(GraphileTask)
    values: dict[str, Any] = {"func": missing, "takes_context": False, "atomic": False}
    for each in fields(GraphileTask):
        object.__setattr__(task, each.name, values.get(each.name))
    return task


def running_result(result: TaskResult[..., Any], *, worker_id: str, started_at: datetime) -> TaskResult[..., Any]:
    """Return a result whose next attempt begins now."""
    return replace(
        result,
        status=TaskResultStatus.RUNNING,
        started_at=result.started_at or started_at,
        last_attempted_at=started_at,
        errors=list(result.errors),
        worker_ids=[*result.worker_ids, worker_id],
    )


def result_id(job_id: int, alias: str) -> str:
    """Return the id of the result of a job."""
    return urlsafe_b64encode(_id_layout.pack(job_id, _checksum(job_id, alias))).decode()


def job_id_of(identity: object, alias: str) -> int | None:
    """Return the number of the job, or None for a value that ``result_id()`` did not return for this backend."""
    if not isinstance(identity, str) or len(identity) != _ID_LENGTH or not identity.isascii():
        return None
    try:
        job_id, checksum = _id_layout.unpack(b64decode(identity, altchars=b"-_", validate=True))
    except (binascii.Error, struct.error):
        return None
    # Several texts can have the same bytes; only one of them is the id.
    is_ours = checksum == _checksum(job_id, alias) and identity == result_id(job_id, alias)
    return job_id if is_ours else None


def _checksum(job_id: int, alias: str) -> int:
    return crc32(f"django_graphile_worker:{alias}:{job_id}".encode())
