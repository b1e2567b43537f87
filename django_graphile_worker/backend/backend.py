"""``GraphileWorkerBackend``: the backend of Django Tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from django.core.checks import CheckMessage

from django_graphile_worker.api.add import add_spec
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.backend import checks, validation
from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from django_graphile_worker.backend.options import BackendOptions, read_options
from django_graphile_worker.backend.result_ids import job_id_of
from django_graphile_worker.backend.runnable import register, registered_identifier
from django_graphile_worker.backend.task_class import GraphileTask, as_graphile_task, validate_options
from django_graphile_worker.backend.task_results import enqueued_result, stored_result, with_values
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.registry import is_path, split_identifier
from django_graphile_worker.sql.results import StoredTask, stored_task
from django_graphile_worker.text import quoted

P = ParamSpec("P")
R = TypeVar("R")


class GraphileWorkerBackend(BaseTaskBackend):
    """Runs Django tasks as jobs: added in the caller's transaction, run by ``manage.py runworker``."""

    task_class = GraphileTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    # A worker runs only tasks of backends with this mark.
    runs_in_graphile_worker = True

    @cached_property
    def checked_options(self) -> BackendOptions:
        """The options of the setting; raises ConfigurationError if they have mistakes, which ``check()`` reports."""
        return read_options(self.options, alias=self.alias, labels=self.queues)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask for a task that cannot run; called when a task is made and when it is enqueued."""
        validation.validate_priority(task)
        validation.validate_run_after(task.run_after)
        validation.validate_label(task, self.queues, self.alias)
        # Django's own check of a time does not take a timedelta.
        run_after: object = task.run_after
        super().validate_task(with_values(task, run_after=None) if isinstance(run_after, timedelta) else task)
        validation.validate_identifier(task)
        if isinstance(task, GraphileTask):
            validate_options(task)

    def register_task(self, task: GraphileTask[..., Any]) -> None:
        """Make a task known to workers and to the admin; called when a task is made."""
        if not validation.is_declared(task):
            register(task)

    def enqueue(self, task: Task[P, R], args: Any, kwargs: Any) -> TaskResult[P, R]:
        """Add a job for this call in the current transaction."""
        call, spec = self.prepare(task, args, kwargs)
        options = self.checked_options
        job = add_spec(spec, using=options.database, installation=options.installation)
        return self.added(task, call, job)

    def prepare(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, JobSpec]:
        """Return a call and its job to be; raise before any statement if the task or an argument is not valid."""
        self.validate_task(task)
        declared = validation.declared_task(task)
        validation.validate_arguments(task, args, kwargs)
        options = self.checked_options
        call = Call.of(task, args, kwargs, backend=self.alias)
        own = as_graphile_task(task)
        spec = JobSpec(
            registered_identifier(declared, task.queue_name),
            call.to_payload(),
            queue_name=options.serial_queues.get(task.queue_name),
            run_at=call.run_after,
            max_attempts=own.max_attempts if own.max_attempts is not None else options.max_attempts,
            job_key=own.job_key_for(call.args, call.kwargs),
            job_key_mode=own.job_key_mode,
            unique=own.unique_for(call.args, call.kwargs),
            # Django's larger numbers run sooner, ours later.
            priority=-call.priority,
            flags=own.flags,
            expires=own.expires,
        )
        return call, spec

    def added(self, task: Task[P, R], call: Call, job: Job) -> TaskResult[P, R]:
        """Return the result of a job that was added, and send ``task_enqueued``; or that of the job that was there."""
        result = enqueued_result(task, call, job_id=job.id, added_at=job.created_at, alias=self.alias)
        # What became of a job that was there is not read: the role may not be allowed to. refresh() reads it.
        if not job.existed:
            task_enqueued.send(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result with this id; raise TaskResultDoesNotExist, for a malformed id without a query."""
        job_id = job_id_of(result_id, self.alias)
        if job_id is None:
            raise TaskResultDoesNotExist(
                f"expected an id that enqueue() of the backend {self.alias!r} returned, got {quoted(result_id)}. "
                "The id of another backend, or of a job, is none."
            )
        result = self.result_of_job(job_id)
        if result is None:
            raise TaskResultDoesNotExist(
                f"{result_id}: there is no such task result in the backend {self.alias!r}. It may have expired: see "
                "RESULT_TTL."
            )
        return result

    def result_of_job(self, job_id: int) -> TaskResult[..., Any] | None:
        """Return the result of a job of this backend, or None."""
        with open_place(self.checked_options.place()) as queue:
            stored = stored_task(queue.cursor, job_id, schema=queue.schema)
        call = None if stored is None else _call_of(stored, self.alias)
        if stored is None or call is None:
            return None
        return stored_result(stored, call, alias=self.alias)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return what is wrong with the setting of this backend."""
        return checks.check_backend(self)


def _call_of(stored: StoredTask, alias: str) -> Call | None:
    if not is_path(split_identifier(stored.task_identifier)[0]):
        return None
    if stored.payload is None:
        # The job was removed before it ran, and its arguments with it.
        return Call(backend=alias)
    try:
        return Call.from_payload(stored.payload)
    except PayloadError:
        return None
