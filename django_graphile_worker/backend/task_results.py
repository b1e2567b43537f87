"""Makes ``TaskResult`` values: of a job that was just added, of one that runs, and of rows of the database."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import Task, TaskError, TaskResult, TaskResultStatus
from django_graphile_worker.backend.discovery import find_django_task
from django_graphile_worker.backend.result_ids import result_id
from django_graphile_worker.backend.task_class import GraphileTask
from django_graphile_worker.registry import split_identifier
from django_graphile_worker.sql.results import StoredAttempt, StoredTask

P = ParamSpec("P")
R = TypeVar("R")


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
            f"expected a Django task at {path!r}, got none: it was renamed, or its module has gone. Its results can "
            "be read, but it cannot run."
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
