"""Runs a claimed job and returns its outcome. No exception of a task passes beyond this module.

Most jobs run on the thread that took them: ``run()``. The job of an async task starts on the event loop, without a
thread that waits for it: ``start_job()``. A job of 20 ms that waits for an answer takes less time of the processor than
the two changes of threads that its own thread would need. So one thread starts the coroutines of many jobs, and one
thread takes the outcomes of many. A job gets a thread of its own for its first synchronous call, such as a query of the
ORM, and if it has to stop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from django_graphile_worker import signals
from django_graphile_worker.current import running
from django_graphile_worker.exceptions import LeftoverStateError, TaskStopped
from django_graphile_worker.job_flags import keep_in
from django_graphile_worker.logs import console
from django_graphile_worker.logs.errors import log_exception
from django_graphile_worker.logs.lines import JobFacts
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker import django_connections, fork_guard
from django_graphile_worker.worker.django_connections import NO_CONNECTIONS, Leftover, this_thread
from django_graphile_worker.worker.execution import retry
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.execution.helpers import Aborts
from django_graphile_worker.worker.execution.invoker import TaskInvoker
from django_graphile_worker.worker.execution.job_run import ActiveRunStop, JobRun, LostAtomicClaimError, RunningJob
from django_graphile_worker.worker.outcomes import (
    Cancelled,
    CancelledByWorker,
    CompletedAtomically,
    Expired,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    Succeeded,
)

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

logger = logging.getLogger("django_graphile_worker.worker")


class Executor:
    """Turns a claim into an outcome. Called on as many threads as jobs may run at once."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._task_of = worker.directory.task_of
        # The rules of the settings BACKOFF and GIVE_UP_ON, which start() loads.
        self._retry_rules = retry.NO_RULES
        # Whether jobs without flags may expire. Django tasks are found while the worker runs.
        self._may_expire = worker.directory.finds_tasks or any(
            task.expires is not None for task in worker.tasks.values()
        )
        self._has_history = worker.settings.history is not None
        self.aborts = Aborts()
        self.event_loop = EventLoop()
        self._invoker = TaskInvoker(worker, event_loop=self.event_loop, aborts=self.aborts)
        # The ids of the tasks whose jobs ``start_job()`` can start.
        self.coroutine_tasks: set[int] = set()
        self._running: set[JobRun] = set()
        self._generation = fork_guard.generation
        self._about = {"database": worker.place.using, "installation": worker.place.installation}
        self._is_cancelled = self._has_forgotten_running = False

    def start(self) -> None:
        """Prepare to run jobs; raise ConfigurationError if what the settings name cannot be loaded."""
        self._retry_rules = retry.RetryRules.of(self._settings)
        django_connections.start()
        fork_guard.watch()
        self._invoker.load_middleware()

    def note_tasks(self, tasks: Mapping[int, Task[Any, Any]]) -> None:
        """Note which of these tasks need no thread, before their first jobs: a thread would be started for each job."""
        can_start = self._invoker.can_start
        self.coroutine_tasks.update(task_id for task_id, task in tasks.items() if can_start(task))

    def abort(self) -> None:
        """Request every job to stop now, and every job that begins later: the worker is about to stop."""
        self.aborts.set_all()

    def cancel(self) -> None:
        """Cancel coroutines and start no more jobs: the grace period is over."""
        self._is_cancelled = True
        self.aborts.set_all()
        self.event_loop.cancel()

    def request_stop(self, run: JobRun) -> None:
        """Set ``helpers.abort`` of a run that is to stop, and have a thread wait for its coroutine."""
        self.aborts.set_for(run)
        if run.coroutine is not None:
            self.event_loop.call_thread(run.coroutine)

    def runs(self) -> list[JobRun]:
        """Return the runs of this moment."""
        return list(self._running)

    def is_running(self, run: JobRun) -> bool:
        return run in self._running

    def running(self) -> list[RunningJob]:
        """Return the jobs that run at this moment."""
        return [run.to_running_job() for run in list(self._running)]

    def forget_running(self) -> None:
        """End the wait of every thread for a coroutine that will not continue. The running jobs have been returned."""
        self._has_forgotten_running = True
        for run in self.runs():
            if run.end_observed is not None:
                run.end_observed("interrupted", None)
        self.event_loop.forget_running()

    def thread_finished(self) -> None:
        """Close the connections of this thread. Called on a slot's thread that runs no more jobs."""
        django_connections.thread_finished()

    # From a claim to the end of its task.

    def run(self, claim: Claim) -> Outcome:
        """Run one job on this thread and return its outcome; never raises."""
        run = JobRun(claim, monotonic(), self._task_of(claim.task_id))
        self._running.add(run)
        running.set(ref(run))
        try:
            if (self._is_cancelled or claim.flags_text or self._may_expire) and (refused := self._refused(run)):
                return refused
            return self._run(run)
        except BaseException as error:  # a bug of the worker must cost neither the slot nor the job
            return self._failed_by_worker(run, error)
        finally:
            running.set(None)
            self._running.discard(run)

    def start_job(self, claim: Claim) -> Outcome | None:
        """Start a job and return None, or return the outcome of a job that could not start; never raises.

        ``resume_job()`` returns the outcome of a job that has started. The event loop calls a thread for it.
        """
        run = JobRun(claim, monotonic(), self._task_of(claim.task_id))
        if run.task is None or not self._invoker.can_start(run.task):
            # The task has been replaced by another with its id.
            return self.run(claim)
        self._running.add(run)
        running.set(ref(run))
        outcome = self._start(run)
        running.set(None)
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
        running.set(ref(run))
        try:
            return self._run(run)
        except BaseException as error:
            return self._failed_by_worker(run, error)
        finally:
            running.set(None)
            self._running.discard(run)

    def _refused(self, run: JobRun) -> Outcome | None:
        """Return the outcome of a job that must not begin; None if it may."""
        if self._is_cancelled:
            return Interrupted(run.claim, 0.0, has_begun=False)
        flags_text = run.claim.flags_text
        if flags_text and keep_in(flags_text) is not None:
            # The run of a schedule is recorded like a result. A task that keeps its results replaces the value.
            run.value_text = "null"
        expires_at = run.expires_at
        if expires_at is not None and self._worker.server_time() > expires_at:
            expired = Expired(run.claim, expires_at)
            self._send(signals.job_expired, run, expires_at=expired.moment)
            return expired
        return None

    def _run(self, run: JobRun) -> Outcome:
        # Most jobs use no database. These comparisons cost less than the calls.
        if this_thread.watched != NO_CONNECTIONS:
            django_connections.begin()
        if signals.job_started.is_heard() and run.coroutine is None:
            self._send(signals.job_started, run)
        result, error = None, None
        try:
            # Each job has its own context: a language or a time zone that a job activates ends with it.
            result = copy_context().run(self._invoker.of(run.task), run)
        except BaseException as raised:  # SystemExit, too, fails this job alone
            error = raised
        try:
            if fork_guard.generation != self._generation:
                fork_guard.end_child(self._generation, error)
            if run.is_marked:
                # Set here: Python raises no exception of another thread between the check and this line, and at most
                # one after it.
                run.is_ending = True
                try:
                    leftovers = self._end_marked(run)
                except TaskStopped:
                    leftovers = self._end_marked(run)
            else:
                leftovers = django_connections.end() if this_thread.watched else ()
            if error is None and not leftovers:
                return self._succeeded(run, result)
            return self._other_outcome(run, result, error, leftovers)
        finally:
            # The traceback refers to this frame and to the frames of the task. Without this line they would stay in
            # memory until the garbage collector runs.
            error = None

    def _end_marked(self, run: JobRun) -> Sequence[Leftover]:
        """Do what few runs need at their end, and return what the job left on its connections."""
        if run.stopping is not None:
            run.stopping.close()
        leftovers = django_connections.end() if this_thread.watched else ()
        if run.has_progress:
            self._invoker.finish_progress(run)
        return leftovers

    def end_without_thread(self, run: JobRun) -> Outcome:
        """Return the outcome of a run whose thread does not stop. The caller has set ``is_without_thread``."""
        stopping = run.stopping
        assert stopping is not None
        self._running.discard(run)
        error = stopping.exception_class(stopping.stop.reason)
        if stopping.stack_text:
            # The error has no traceback of its own.
            error.add_note(stopping.remark)
        if run.end_observed is not None:
            run.end_observed("cancelled" if stopping.stop.kind == "cancelled" else "failed", error)
        return self._stopped(run, stopping, error)

    # From the end of a task to the outcome of its job.

    def _succeeded(self, run: JobRun, result: Any) -> Outcome:
        claim, task, duration = run.claim, run.task, monotonic() - run.started
        # Without a task, the run has raised an error.
        assert task is not None
        self._report_success(run, task, duration)
        if task.atomic:
            return CompletedAtomically(claim, duration, result)
        if self._has_history or run.value_text is not None:
            return Recorded(claim, duration, result, run.started, task, run.value_text)
        return Succeeded(claim, duration, result)

    def _other_outcome(
        self, run: JobRun, result: Any, error: BaseException | None, leftovers: Sequence[Leftover]
    ) -> Outcome:
        """Return the outcome of a run that raised an exception, or left something on its connections."""
        if run.stopping is not None and error is not None:
            return self._stopped(run, run.stopping, error)
        if isinstance(error, LostAtomicClaimError):
            # The worker holds no claim to release, either. The releaser detects and reports that.
            return Interrupted(run.claim, run.duration)
        is_work_lost = any(leftover.is_work_lost for leftover in leftovers)
        if isinstance(error, CancelledByWorker) or (not is_work_lost and self._stopped_as_asked(run, error)):
            return self._interrupted(run, error)
        if error is None and (run.is_atomic or not (is_work_lost or self._settings.leftover_state == "fail")):
            return self._succeeded_with_leftovers(run, result, leftovers)
        if error is None:
            error, leftovers = _leftover_error(leftovers), ()
        return self._failed(run, error, [f"The task also left {leftover.text}." for leftover in leftovers])

    def _stopped(self, run: JobRun, stopping: ActiveRunStop, error: BaseException) -> Outcome:
        """Return the outcome of a run that was stopped, and of which this exception is left."""
        if stopping.stop.kind == "cancelled":
            return Cancelled(run.claim, run.duration, stopping.stop, task=run.task)
        return self._failed(run, stopping.timeout_error(error), [stopping.remark])

    def _stopped_as_asked(self, run: JobRun, error: BaseException | None) -> bool:
        """Return True if the worker requested the task to stop, and it asked to run again: that costs no attempt."""
        return self.aborts.is_set_for(run) and retry.asks_to_run_at_once(error)

    def _failed(self, run: JobRun, error: BaseException, remarks: Sequence[str]) -> Failed:
        outcome = retry.failed(
            run,
            error,
            limit=self._settings.max_error_length,
            is_redacted=self._settings.redact_errors,
            remarks=remarks,
            rules=self._retry_rules,
        )
        if outcome.queue_pause is not None:
            # Before another job of the queue can begin.
            self._worker.queue_paused_by(run.claim)
        retry_in = outcome.retry_in
        if retry_in is None:
            given_up_by = retry.option_that_gives_up(run, error, self._retry_rules)
            why = {"error": error, "given_up_by": given_up_by}
            self._send(signals.job_permanently_failed, run, duration=outcome.duration, **why)
        else:
            self._send(signals.job_failed, run, duration=outcome.duration, error=error, retry_in=retry_in)
        return outcome

    def _failed_by_worker(self, run: JobRun, error: BaseException) -> Failed:
        """Return the outcome of a run that failed outside the code of the task."""
        run.is_ending = True
        if run.stopping is not None:
            # Raises EndedWithoutThread if the run has ended already.
            run.stopping.close()
        try:
            log_exception(logger, logging.ERROR, "Job %s could not be run.", run.claim.id, error=error)
            return retry.failed(run, error, limit=self._settings.max_error_length)
        except BaseException:  # for example, no memory is left for the text
            return Failed(run.claim, run.duration, f"The worker could not run it: {type(error).__name__}")

    def _interrupted(self, run: JobRun, error: BaseException | None) -> Interrupted:
        outcome = Interrupted(run.claim, run.duration, retry.remaining_payload(run, error))
        if not self._has_forgotten_running:
            # Otherwise the signal was sent when the running jobs were returned.
            self._send(signals.job_interrupted, run, duration=outcome.duration, reason="the worker stops")
        return outcome

    def _succeeded_with_leftovers(self, run: JobRun, result: Any, leftovers: Sequence[Leftover]) -> Outcome:
        """Report the leftovers, and succeed: the effects of the task are committed, a second run would repeat them."""
        texts = tuple(leftover.text for leftover in leftovers)
        self._send(signals.leftover_state_found, run, leftovers=texts)
        return self._succeeded(run, result)

    # The signals about runs, which are sent on the thread that runs the job.

    def _send(self, signal: signals.NamedSignal, run: JobRun, **arguments: Any) -> None:
        """Send a signal about a run. What its receivers raise or leave behind does not concern the job."""
        if signal.is_heard(**arguments):
            self._deliver(signal, run, **arguments)

    def _report_success(self, run: JobRun, task: Task[Any, Any], duration: float) -> None:
        """Send ``job_succeeded``, unless nothing but the worker's own log receives it, which then writes its line.

        No code of the site runs in this case, so nothing has to be cleaned up after it.
        """
        signal, log_success = signals.job_succeeded, self._settings.log_success
        if not signal.is_heard(log_success=log_success):
            return
        if signal.has_only_conditional_receiver:
            try:
                if console.write_success(task.identifier, run.claim, duration, self._about):
                    return
            except BaseException:  # a stream that the site has replaced may raise anything
                logger.exception("The line of a job could not be written.")
                return
        self._deliver(signal, run, duration=duration, log_success=log_success)

    def _deliver(self, signal: signals.NamedSignal, run: JobRun, **arguments: Any) -> None:
        try:
            # The worker's own log reads less of a job than there is to build.
            job = _facts(run) if signal.has_only_conditional_receiver else run.job
            about = {"worker_id": run.claim.worker_id, **self._about, "job": job}
            signal.send_robust(sender=type(self), **about, **arguments)
        except BaseException as error:  # send_robust lets SystemExit pass
            log_exception(logger, logging.ERROR, "A receiver tried to end the worker.", error=error)
        fork_guard.end_child(self._generation)
        # What receivers left on the connections of this thread is cleaned up, and does not count against the job.
        django_connections.end()


def _facts(run: JobRun) -> JobFacts:
    claim = run.claim
    return JobFacts(claim.id, run.identifier, claim.queue_name, claim.attempts, claim.max_attempts, claim.flags_text)


def _leftover_error(leftovers: Sequence[Leftover]) -> LeftoverStateError:
    left = "; ".join(leftover.text for leftover in leftovers)
    return LeftoverStateError(
        f"The task left its connections changed: {left}. "
        "Use transaction.atomic() and SET LOCAL, or undo it in a finally block."
    )
