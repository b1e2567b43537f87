"""Runs a claimed job and says how it ended. Nothing that a task does gets past it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any

from django_graphile_worker import conf, signals
from django_graphile_worker.exceptions import LeftoverStateError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.connections import lifecycle
from django_graphile_worker.worker.execution.event_loop import CancelledByWorker, EventLoop
from django_graphile_worker.worker.execution.invoker import TaskInvoker
from django_graphile_worker.worker.execution.job_run import JobRun, LostAtomicClaimError, RunningJob
from django_graphile_worker.worker.execution.task_helpers import Aborts
from django_graphile_worker.worker.outcomes import CompletedAtomically, Failed, Interrupted, Outcome, Succeeded

if TYPE_CHECKING:
    from django_graphile_worker.worker.connections.watched import Leftover

__all__ = ["Executor", "RunningJob"]

logger = logging.getLogger("django_graphile_worker.worker")


class Executor:
    """Claim in, outcome out; called on as many threads as jobs may run at once."""

    def __init__(
        self,
        *,
        settings: conf.Settings,
        using: str,
        installation: str = conf.DEFAULT,
        tasks: Callable[[int], Task[Any, Any] | None],
    ) -> None:
        self._settings = settings
        self._about = {"database": using, "installation": installation}
        self._tasks = tasks
        self._aborts = Aborts()
        self._event_loop = EventLoop()
        self._performer = TaskInvoker(
            settings=settings,
            using=using,
            installation=installation,
            event_loop=self._event_loop,
            aborts=self._aborts,
        )
        self._running: set[JobRun] = set()
        self._generation = fork_guard.generation
        self._is_cancelled = False
        self._has_let_go = False

    def start(self) -> None:
        """Raises ConfigurationError when a middleware cannot be loaded."""
        lifecycle.start()
        fork_guard.watch()
        self._performer.load_middleware()

    def warm_up(self) -> None:
        """Load, while the first claim is under way, what the first job would have to wait for."""
        lifecycle.share_caches()

    def abort(self) -> None:
        """Tell every job, running or to come, to stop now: the worker is about to stop."""
        self._aborts.set_all()

    def cancel(self) -> None:
        """The grace period is over: cancel coroutines, start nothing more."""
        self._is_cancelled = True
        self._aborts.set_all()
        self._event_loop.cancel()

    def running(self) -> list[RunningJob]:
        """The jobs that run at this moment."""
        return [run.to_running_job() for run in list(self._running)]

    @property
    def has_coroutines(self) -> bool:
        """Does a coroutine run at this moment?"""
        return self._event_loop.is_visited

    def job_of(self, claim: Claim) -> Job:
        """The job as people see it, whatever its payload."""
        run = JobRun(claim, monotonic())
        run.task = self._tasks(claim.task_id)
        return run.job

    def close(self, seconds: float) -> None:
        """Stop the event loop, with so much time for what jobs have left running there."""
        self._event_loop.close(seconds)

    def let_go(self) -> None:
        """What still runs has been given back: no thread shall wait for a coroutine that nobody runs any more."""
        self._has_let_go = True
        self._event_loop.let_go()

    def thread_finished(self) -> None:
        """Called on a slot thread that runs no more jobs: closes its connections."""
        lifecycle.thread_finished()

    def run(self, claim: Claim) -> Outcome:
        """Run one job on this thread and say how it ended; never raises."""
        run = JobRun(claim, monotonic())
        self._running.add(run)
        try:
            if self._is_cancelled:
                return Interrupted(claim, 0.0, has_begun=False)
            run.task = self._tasks(claim.task_id)
            return self._run(run)
        except BaseException as error:  # a mistake of ours must cost neither the slot nor the job
            return self._failed_by_mistake(run, error)
        finally:
            self._running.discard(run)

    def _run(self, run: JobRun) -> Outcome:
        lifecycle.begin()
        if signals.job_started.is_heard():
            self._tell(signals.job_started, run)
        result, error = None, None
        try:
            # A context of its own: a language or a time zone that a job activates ends with it.
            result = copy_context().run(self._performer.perform, run)
        except BaseException as raised:  # SystemExit too is this job's failure alone
            error = raised
        try:
            if fork_guard.generation != self._generation:
                fork_guard.end_child(self._generation, error)
            leftovers = lifecycle.end()
            if error is None and not leftovers:
                return self._succeeded(run, result)
            return self._ended_badly(run, result, error, leftovers)
        finally:
            # Its traceback holds this frame, and the task's: they shall not wait for the garbage collector.
            error = None

    def _succeeded(self, run: JobRun, result: Any) -> Outcome:
        duration = monotonic() - run.started
        log_success = self._settings.log_success
        if signals.job_succeeded.is_heard(log_success=log_success):
            self._tell(signals.job_succeeded, run, duration=duration, log_success=log_success)
        return (CompletedAtomically if run.is_atomic else Succeeded)(run.claim, duration, result)

    def _ended_badly(
        self, run: JobRun, result: Any, error: BaseException | None, leftovers: Sequence[Leftover]
    ) -> Outcome:
        if isinstance(error, LostAtomicClaimError):
            # Nothing is left to be returned either; the releaser will notice, and say so.
            return Interrupted(run.claim, run.duration)
        is_work_lost = any(leftover.is_work_lost for leftover in leftovers)
        if isinstance(error, CancelledByWorker) or (not is_work_lost and self._makes_way(run, error)):
            return self._interrupted(run, error)
        if error is None and (run.is_atomic or not (is_work_lost or self._settings.leftover_state == "fail")):
            return self._succeeded_but(run, result, leftovers)
        if error is None:
            error, leftovers = LeftoverStateError(_left_behind(leftovers)), ()
        return self._failed(run, error, [leftover.text for leftover in leftovers])

    def _makes_way(self, run: JobRun, error: BaseException | None) -> bool:
        """A task that was told to stop and asks to be run again at once did as we wished: it costs it nothing."""
        if not self._aborts.is_set_for(run):
            return False
        # Here, as all that only failures need: a start that waits for none is 1 ms shorter.
        from django_graphile_worker.worker.execution import retry

        return retry.wants_to_run_at_once(error)

    def _failed(self, run: JobRun, error: BaseException, leftovers: Sequence[str]) -> Failed:
        from django_graphile_worker.worker.execution import retry

        outcome = retry.failed(
            run,
            error,
            limit=self._settings.max_error_length,
            is_redacted=self._settings.redact_errors,
            leftovers=leftovers,
        )
        retry_in = retry.retry_in(outcome)
        if retry_in is None:
            self._tell(signals.job_permanently_failed, run, duration=outcome.duration, error=error)
        else:
            self._tell(signals.job_failed, run, duration=outcome.duration, error=error, retry_in=retry_in)
        return outcome

    def _failed_by_mistake(self, run: JobRun, error: BaseException) -> Failed:
        try:
            from django_graphile_worker.worker.execution import retry

            logger.error("Job %s could not be run.", run.claim.id, exc_info=error)
            return retry.failed(run, error, limit=self._settings.max_error_length)
        except BaseException:  # no memory left for words
            return Failed(run.claim, run.duration, f"The worker could not run it: {type(error).__name__}")

    def _interrupted(self, run: JobRun, error: BaseException | None) -> Interrupted:
        from django_graphile_worker.worker.execution import retry

        outcome = Interrupted(run.claim, run.duration, retry.remaining_payload(run, error))
        if not self._has_let_go:
            # Otherwise it was told when the job was given back.
            self._tell(signals.job_interrupted, run, duration=outcome.duration, reason="the worker stops")
        return outcome

    def _succeeded_but(self, run: JobRun, result: Any, leftovers: Sequence[Leftover]) -> Outcome:
        """What the task did is committed, and the connections are closed: to run it again would do it twice."""
        texts = tuple(leftover.text for leftover in leftovers)
        self._tell(signals.leftover_state_found, run, leftovers=texts)
        return self._succeeded(run, result)

    def _tell(self, signal: signals.Event, run: JobRun, **arguments: Any) -> None:
        if not signal.is_heard(**arguments):
            return
        try:
            about = {"worker_id": run.claim.worker_id, **self._about, "job": run.job}
            signal.send_robust(sender=type(self), **about, **arguments)
        except BaseException:  # send_robust lets SystemExit through
            logger.exception("A receiver tried to end the worker.")
        fork_guard.end_child(self._generation)
        # Receivers may have used the database, and are not the job.
        lifecycle.end()


def _left_behind(leftovers: Sequence[Leftover]) -> str:
    left = "; ".join(leftover.text for leftover in leftovers)
    return (
        f"expected the task to leave its connections as it found them, it left {left}. "
        "Use transaction.atomic() and SET LOCAL, or undo it in a finally block."
    )
