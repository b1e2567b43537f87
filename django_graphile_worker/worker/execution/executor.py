"""Runs a claimed job and returns its outcome. No exception of a task passes beyond this module."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any

from django_graphile_worker import conf, signals
from django_graphile_worker.exceptions import LeftoverStateError
from django_graphile_worker.logs import success_lines
from django_graphile_worker.logs.lines import JobFacts
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.django_connections import lifecycle
from django_graphile_worker.worker.django_connections.lifecycle import NO_CONNECTIONS, this_thread
from django_graphile_worker.worker.execution.abort import Aborts
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.execution.invoker import TaskInvoker
from django_graphile_worker.worker.execution.job_run import JobRun, LostAtomicClaimError, RunningJob
from django_graphile_worker.worker.outcomes import (
    CancelledByWorker,
    CompletedAtomically,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    Succeeded,
)

if TYPE_CHECKING:
    from django_graphile_worker.worker.django_connections.watched_connection import Leftover
    from django_graphile_worker.worker.execution.progress_reports import ProgressReports

logger = logging.getLogger("django_graphile_worker.worker")


class Executor:
    """Turns a claim into an outcome. Called on as many threads as jobs may run at once."""

    def __init__(
        self,
        *,
        settings: conf.Settings,
        using: str,
        installation: str = conf.DEFAULT,
        tasks: Callable[[int], Task[Any, Any] | None],
        build_progress: Callable[[], ProgressReports] | None = None,
        on_queue_pause: Callable[[Claim], None] = lambda claim: None,
    ) -> None:
        self._settings = settings
        self._about = {"database": using, "installation": installation}
        self._tasks = tasks
        # Called with a job whose task wants its queue to be paused, before another job of the queue can begin.
        self._on_queue_pause = on_queue_pause
        self._has_history = settings.history is not None
        self._aborts = Aborts()
        self._event_loop = EventLoop()
        self._invoker = TaskInvoker(
            settings=settings,
            using=using,
            installation=installation,
            event_loop=self._event_loop,
            aborts=self._aborts,
            build_progress=build_progress,
        )
        self._running: set[JobRun] = set()
        self._generation = fork_guard.generation
        self._is_cancelled = False
        self._has_forgotten_running = False

    def start(self) -> None:
        """Prepare to run jobs; raise ConfigurationError if a middleware cannot be loaded."""
        lifecycle.start()
        fork_guard.watch()
        self._invoker.load_middleware()

    def warm_up(self) -> None:
        """Create what the first job needs. Called while the first claim is under way."""
        lifecycle.create_caches()

    def abort(self) -> None:
        """Request every job to stop now, and every job that begins later: the worker is about to stop."""
        self._aborts.set_all()

    def cancel(self) -> None:
        """Cancel coroutines and start no more jobs: the grace period is over."""
        self._is_cancelled = True
        self._aborts.set_all()
        self._event_loop.cancel()

    def running(self) -> list[RunningJob]:
        """Return the jobs that run at this moment."""
        return [run.to_running_job() for run in list(self._running)]

    def runs(self) -> list[JobRun]:
        """Return the runs of this moment."""
        return list(self._running)

    @property
    def has_coroutines(self) -> bool:
        """Whether a coroutine runs at this moment."""
        return self._event_loop.has_coroutines

    def close(self, seconds: float) -> None:
        """Stop the event loop. Coroutines that jobs left running have ``seconds`` to end."""
        self._event_loop.close(seconds)

    def forget_running(self) -> None:
        """End the wait of every thread for a coroutine that will not continue. The running jobs have been returned."""
        self._has_forgotten_running = True
        self._event_loop.forget_running()

    def thread_finished(self) -> None:
        """Close the connections of this thread. Called on a slot's thread that runs no more jobs."""
        lifecycle.thread_finished()

    def run(self, claim: Claim) -> Outcome:
        """Run one job on this thread and return its outcome; never raises."""
        run = JobRun(claim, monotonic(), self._tasks(claim.task_id))
        self._running.add(run)
        try:
            if self._is_cancelled:
                return Interrupted(claim, 0.0, has_begun=False)
            return self._run(run)
        except BaseException as error:  # a bug of the worker must cost neither the slot nor the job
            return self._failed_by_worker(run, error)
        finally:
            self._running.discard(run)

    def _run(self, run: JobRun) -> Outcome:
        # Most jobs use no database. These comparisons cost less than the calls.
        if this_thread.watched != NO_CONNECTIONS:
            lifecycle.begin()
        if signals.job_started.is_heard():
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
            leftovers = lifecycle.end() if this_thread.watched else ()
            if run.has_progress:
                self._invoker.finish_progress(run)
            if error is None and not leftovers:
                return self._succeeded(run, result)
            return self._other_outcome(run, result, error, leftovers)
        finally:
            # The traceback refers to this frame and to the frames of the task. Without this line they would stay in
            # memory until the garbage collector runs.
            error = None

    def _succeeded(self, run: JobRun, result: Any) -> Outcome:
        duration = monotonic() - run.started
        log_success = self._settings.log_success
        if signals.job_succeeded.is_heard(log_success=log_success) and not self._is_logged_directly(run, duration):
            self._send(signals.job_succeeded, run, duration=duration, log_success=log_success)
        if run.is_atomic:
            return CompletedAtomically(run.claim, duration, result)
        if self._has_history or run.value_text is not None:
            assert run.task is not None
            return Recorded(run.claim, duration, result, run.started, run.task, run.value_text)
        return Succeeded(run.claim, duration, result)

    def _is_logged_directly(self, run: JobRun, duration: float) -> bool:
        """Write the line of a success without a signal, if nothing but the worker's own log would receive it.

        No code of the site runs then, so nothing has to be cleaned up after it.
        """
        try:
            return signals.job_succeeded.has_only_conditional_receiver and success_lines.write(
                run.identifier, run.claim, duration, self._about
            )
        except BaseException:  # a stream that the site has replaced may raise anything
            logger.exception("The line of a job could not be written.")
            return True

    def _other_outcome(
        self, run: JobRun, result: Any, error: BaseException | None, leftovers: Sequence[Leftover]
    ) -> Outcome:
        """Return the outcome of a run that raised an exception, or left something on its connections."""
        if isinstance(error, LostAtomicClaimError):
            # The worker holds no claim to release, either. The releaser detects and reports that.
            return Interrupted(run.claim, run.duration)
        is_work_lost = any(leftover.is_work_lost for leftover in leftovers)
        if isinstance(error, CancelledByWorker) or (not is_work_lost and self._stopped_as_asked(run, error)):
            return self._interrupted(run, error)
        if error is None and (run.is_atomic or not (is_work_lost or self._settings.leftover_state == "fail")):
            return self._succeeded_with_leftovers(run, result, leftovers)
        if error is None:
            error, leftovers = LeftoverStateError(_leftover_message(leftovers)), ()
        return self._failed(run, error, [leftover.text for leftover in leftovers])

    def _stopped_as_asked(self, run: JobRun, error: BaseException | None) -> bool:
        """Return True if the worker requested the task to stop, and the task requested to run again at once.

        Such a task did what the worker requested, so the run costs it no attempt.
        """
        if not self._aborts.is_set_for(run):
            return False
        # Late import: only failures need it, and it would take 1 ms of the start.
        from django_graphile_worker.worker.execution import retry

        return retry.asks_to_run_at_once(error)

    def _failed(self, run: JobRun, error: BaseException, leftovers: Sequence[str]) -> Failed:
        # Late import: only failures need it.
        from django_graphile_worker.worker.execution import retry

        outcome = retry.failed(
            run,
            error,
            limit=self._settings.max_error_length,
            is_redacted=self._settings.redact_errors,
            leftovers=leftovers,
        )
        if outcome.queue_pause is not None:
            self._on_queue_pause(run.claim)
        retry_in = retry.retry_in(outcome)
        if retry_in is None:
            self._send(signals.job_permanently_failed, run, duration=outcome.duration, error=error)
        else:
            self._send(signals.job_failed, run, duration=outcome.duration, error=error, retry_in=retry_in)
        return outcome

    def _failed_by_worker(self, run: JobRun, error: BaseException) -> Failed:
        """Return the outcome of a run that failed outside the code of the task."""
        try:
            # Late import: only failures need it.
            from django_graphile_worker.worker.execution import retry

            logger.error("Job %s could not be run.", run.claim.id, exc_info=error)
            return retry.failed(run, error, limit=self._settings.max_error_length)
        except BaseException:  # for example, no memory is left for the text
            return Failed(run.claim, run.duration, f"The worker could not run it: {type(error).__name__}")

    def _interrupted(self, run: JobRun, error: BaseException | None) -> Interrupted:
        # Late import: few jobs are interrupted.
        from django_graphile_worker.worker.execution import retry

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

    def _send(self, signal: signals.Event, run: JobRun, **arguments: Any) -> None:
        if not signal.is_heard(**arguments):
            return
        try:
            # The worker's own log reads less of a job than there is to build.
            job = _facts(run) if signal.has_only_conditional_receiver else run.job
            about = {"worker_id": run.claim.worker_id, **self._about, "job": job}
            signal.send_robust(sender=type(self), **about, **arguments)
        except BaseException:  # send_robust lets SystemExit pass
            logger.exception("A receiver tried to end the worker.")
        fork_guard.end_child(self._generation)
        # What receivers left on the connections of this thread is cleaned up, and does not count against the job.
        lifecycle.end()


def _facts(run: JobRun) -> JobFacts:
    claim = run.claim
    return JobFacts(claim.id, run.identifier, claim.queue_name, claim.attempts, claim.max_attempts)


def _leftover_message(leftovers: Sequence[Leftover]) -> str:
    left = "; ".join(leftover.text for leftover in leftovers)
    return (
        f"expected the task to leave its connections as it found them, got {left}. "
        "Use transaction.atomic() and SET LOCAL, or undo it in a finally block."
    )
