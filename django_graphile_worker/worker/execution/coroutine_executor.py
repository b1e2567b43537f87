"""Starts the jobs of async tasks on the event loop, without a thread that waits for each of them.

A job of 20 ms that waits for an answer takes less time of the processor than the two changes of threads that its own
thread would need. So one thread starts the coroutines of many jobs, and one thread takes the outcomes of many. A job
gets a thread of its own for its first synchronous call, such as a query of the ORM, and if it has to stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from django_graphile_worker import signals
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.django_connections import NO_CONNECTIONS, this_thread
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Outcome


class CoroutineExecutor(Executor):
    """The executor of a worker, whose pool calls a thread when the event loop asks for it."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        # The ids of the tasks whose jobs ``start_job()`` can start.
        self.coroutine_tasks: set[int] = set()

    def note_tasks(self, tasks: Mapping[int, Task[Any, Any]]) -> None:
        """Note which of these tasks need no thread, before their first jobs: a thread would be started for each job."""
        can_start = self._invoker.can_start
        self.coroutine_tasks.update(task_id for task_id, task in tasks.items() if can_start(task))

    def start_job(self, claim: Claim) -> Outcome | None:
        """Start a job and return None, or return the outcome of a job that could not start; never raises.

        ``resume_job()`` returns the outcome of a job that has started. The event loop calls a thread for it.
        """
        run = JobRun(claim, monotonic(), self._tasks(claim.task_id))
        if run.task is None or not self._invoker.can_start(run.task):
            # The task has been replaced by another with its id.
            return self.run(claim)
        self._running.add(run)
        outcome = self._start(run)
        if outcome is not None:
            self._running.discard(run)
        elif run.stopping is not None:
            # request_stop() may have come before the coroutine. A report of progress marks the run, too.
            self.request_stop(run)
        return outcome

    def _start(self, run: JobRun) -> Outcome | None:
        try:
            if (refused := self._refused(run)) is not None:
                return refused
            # For the receivers of the signals, which run on this thread.
            if this_thread.watched != NO_CONNECTIONS:
                django_connections.begin()
            if signals.job_started.is_heard():
                self._send(signals.job_started, run)
            # Each job has its own context, which its coroutine copies.
            self._invoker.start(run)
            return None
        except BaseException as error:  # the payload is not JSON, or the event loop is closed
            return self._not_started(run, error)

    def _not_started(self, run: JobRun, error: BaseException) -> Outcome:
        run.is_ending = True
        try:
            leftovers = self._end_marked(run) if run.is_marked else ()
            return self._other_outcome(run, None, error, leftovers)
        except BaseException as own_error:
            return self._failed_by_worker(run, own_error)

    def resume_job(self, run: JobRun) -> Outcome:
        """Run the synchronous calls of a coroutine until it ends, and return the outcome of its job; never raises."""
        try:
            return self._run(run)
        except BaseException as error:
            return self._failed_by_worker(run, error)
        finally:
            self._running.discard(run)

    def runs(self) -> list[JobRun]:
        """Return the runs of this moment."""
        return list(self._running)

    def is_running(self, run: JobRun) -> bool:
        return run in self._running

    def request_stop(self, run: JobRun) -> None:
        """Set ``helpers.abort`` of a run that is to stop, and have a thread wait for its coroutine."""
        self.aborts.set_for(run)
        if run.coroutine is not None:
            self.event_loop.call_thread(run.coroutine)
