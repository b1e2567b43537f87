"""Runs a claimed job and returns its outcome. No exception of a task passes beyond this module."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any

from django_graphile_worker import conf, signals
from django_graphile_worker.exceptions import LeftoverStateError, TaskStopped
from django_graphile_worker.logs.lines import log_exception
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker import django_connections, fork_guard
from django_graphile_worker.worker.django_connections import NO_CONNECTIONS, this_thread
from django_graphile_worker.worker.execution.coroutines.event_loop import EventLoop
from django_graphile_worker.worker.execution.invoker import TaskInvoker
from django_graphile_worker.worker.execution.job_control import JobControl
from django_graphile_worker.worker.execution.job_run import JobRun, LostAtomicClaimError, RunningJob
from django_graphile_worker.worker.execution.job_signals import JobSignals
from django_graphile_worker.worker.execution.stops.abort import Aborts
from django_graphile_worker.worker.outcomes import (
    Cancelled,
    CancelledByWorker,
    CompletedAtomically,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    Succeeded,
)

if TYPE_CHECKING:
    from django_graphile_worker.worker.django_connections import Leftover
    from django_graphile_worker.worker.execution.progress_reports import ProgressReports
    from django_graphile_worker.worker.execution.retry import RetryRules
    from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun
    from django_graphile_worker.worker.execution.time_limits import TimeLimits

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
        build_deadlines: Callable[[], TimeLimits] | None = None,
        control: JobControl | None = None,
    ) -> None:
        self._settings = settings
        # None if the settings BACKOFF and GIVE_UP_ON are not set.
        self._retry_rules: RetryRules | None = None
        self._tasks = tasks
        self._control = control or JobControl()
        self._may_expire = self._control.has_expiring_tasks
        self._read_flags, self._expired = self._control.read_flags, self._control.expired
        self._has_history = settings.history is not None
        self.aborts = Aborts()
        self.event_loop = EventLoop()
        self._invoker = TaskInvoker(
            settings=settings,
            using=using,
            installation=installation,
            event_loop=self.event_loop,
            aborts=self.aborts,
            build_progress=build_progress,
            build_deadlines=build_deadlines,
        )
        self._running: set[JobRun] = set()
        self._generation = fork_guard.generation
        job_signals = JobSignals(type(self), {"database": using, "installation": installation})
        self._send, self._send_success = job_signals.send, job_signals.send_success
        self._is_cancelled = self._has_forgotten_running = False

    def start(self) -> None:
        """Prepare to run jobs; raise ConfigurationError if what the settings name cannot be loaded."""
        if self._settings.backoff is not None or self._settings.give_up_on:
            # Late import: only failures need it.
            from django_graphile_worker.worker.execution import retry

            self._retry_rules = retry.RetryRules.of(self._settings)
        django_connections.start()
        fork_guard.watch()
        self._invoker.load_middleware()

    def warm_up(self) -> None:
        """Create what the first job needs. Called while the first claim is under way."""
        django_connections.create_caches()

    def abort(self) -> None:
        """Request every job to stop now, and every job that begins later: the worker is about to stop."""
        self.aborts.set_all()

    def cancel(self) -> None:
        """Cancel coroutines and start no more jobs: the grace period is over."""
        self._is_cancelled = True
        self.aborts.set_all()
        self.event_loop.cancel()

    def running(self) -> list[RunningJob]:
        """Return the jobs that run at this moment."""
        return [run.to_running_job() for run in list(self._running)]

    @property
    def has_coroutines(self) -> bool:
        """Whether a coroutine runs at this moment."""
        return self.event_loop.has_coroutines

    def close(self, seconds: float) -> None:
        """Stop the event loop. Coroutines that jobs left running have ``seconds`` to end."""
        self.event_loop.close(seconds)

    def forget_running(self) -> None:
        """End the wait of every thread for a coroutine that will not continue. The running jobs have been returned."""
        self._has_forgotten_running = True
        self.event_loop.forget_running()

    def thread_finished(self) -> None:
        """Close the connections of this thread. Called on a slot's thread that runs no more jobs."""
        django_connections.thread_finished()

    def run(self, claim: Claim) -> Outcome:
        """Run one job on this thread and return its outcome; never raises."""
        run = JobRun(claim, monotonic(), self._tasks(claim.task_id))
        self._running.add(run)
        try:
            if (self._is_cancelled or claim.flags_text or self._may_expire) and (refused := self._refused(run)):
                return refused
            return self._run(run)
        except BaseException as error:  # a bug of the worker must cost neither the slot nor the job
            return self._failed_by_worker(run, error)
        finally:
            self._running.discard(run)

    def _refused(self, run: JobRun) -> Outcome | None:
        """Return the outcome of a job that must not begin; None if it may."""
        if self._is_cancelled:
            return Interrupted(run.claim, 0.0, has_begun=False)
        if ((run.claim.flags_text and self._read_flags(run)) or self._may_expire) and (expired := self._expired(run)):
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

    def _succeeded(self, run: JobRun, result: Any) -> Outcome:
        duration = monotonic() - run.started
        self._send_success(run, duration=duration, log_success=self._settings.log_success)
        if run.is_atomic:
            return CompletedAtomically(run.claim, duration, result)
        if self._has_history or run.value_text is not None:
            assert run.task is not None
            return Recorded(run.claim, duration, result, run.started, run.task, run.value_text)
        return Succeeded(run.claim, duration, result)

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

    def _stopped(self, run: JobRun, stopping: StopOfRun, error: BaseException) -> Outcome:
        """Return the outcome of a run that was stopped, and of which this exception is left."""
        # Late import: few runs are stopped.
        from django_graphile_worker.worker.execution.stops import stopped_runs

        if stopping.stop.kind == "cancelled":
            return Cancelled(run.claim, run.duration, stopping.stop, task=run.task)
        error = stopped_runs.timeout_error(stopping, error)
        return self._failed(run, error, [stopped_runs.remark(stopping)])

    def end_without_thread(self, run: JobRun) -> Outcome:
        """Return the outcome of a run whose thread does not stop. The caller has set ``is_without_thread``."""
        assert run.stopping is not None
        self._running.discard(run)
        return self._stopped(run, run.stopping, run.stopping.exception_class())

    def _stopped_as_asked(self, run: JobRun, error: BaseException | None) -> bool:
        """Return True if the worker requested the task to stop, and it asked to run again: that costs no attempt."""
        if not self.aborts.is_set_for(run):
            return False
        # Late import: only failures need it.
        from django_graphile_worker.worker.execution import retry

        return retry.asks_to_run_at_once(error)

    def _failed(self, run: JobRun, error: BaseException, remarks: Sequence[str]) -> Failed:
        # Late import: only failures need it.
        from django_graphile_worker.worker.execution import retry

        rules = self._retry_rules or retry.NO_RULES
        outcome = retry.failed(
            run,
            error,
            limit=self._settings.max_error_length,
            is_redacted=self._settings.redact_errors,
            remarks=remarks,
            rules=rules,
        )
        if outcome.queue_pause is not None:
            self._control.on_queue_pause(run.claim)
        retry_in = retry.retry_in(outcome)
        if retry_in is None:
            given_up_by = retry.option_that_gives_up(run, error, rules)
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
            # Late import: only failures need it.
            from django_graphile_worker.worker.execution import retry

            log_exception(logger, logging.ERROR, "Job %s could not be run.", run.claim.id, error=error)
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


def _leftover_error(leftovers: Sequence[Leftover]) -> LeftoverStateError:
    left = "; ".join(leftover.text for leftover in leftovers)
    return LeftoverStateError(
        f"expected the task to leave its connections as it found them, got {left}. "
        "Use transaction.atomic() and SET LOCAL, or undo it in a finally block."
    )
