"""The job that runs in this thread or coroutine, for code that its task calls: ``current_job()``."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol
from weakref import ref

from django_graphile_worker.jobs import Job


class CurrentRun(Protocol):
    """What is known of a run without building its ``Job``."""

    @property
    def claim(self) -> Any: ...
    @property
    def identifier(self) -> str: ...
    @property
    def job(self) -> Job: ...


# A weak reference: timers and connections that a coroutine leaves keep its context, and would keep its payload.
running: ContextVar[ref[CurrentRun] | None] = ContextVar("graphile_worker_run", default=None)


def current_run() -> CurrentRun | None:
    """Return the run of this context; None outside of jobs, and when the run is over."""
    reference = running.get()
    return None if reference is None else reference()


def current_job() -> Job | None:
    """Return the job whose task calls this function, at whatever depth; None outside of jobs.

    A thread that the task starts itself has no job, unless it runs in a copy of the context of the task.
    """
    run = current_run()
    return None if run is None else run.job
