"""Stops the parts of a worker in order, so that no result is lost and no claim is left behind."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from django_graphile_worker import signals
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.execution.job_run import RunningJob
from django_graphile_worker.worker.reporting.statistics import LAST_RECORD_TIMEOUT
from django_graphile_worker.worker.stop_request import Ending

# Seconds that a part, or a coroutine that was cancelled, gets to clean up.
CLEANUP_TIMEOUT = 1.0
# Seconds that the database gets to store the last results after a forced stop, or after the grace period. A checkpoint
# or a busy machine delays a statement for longer than a second, and a job that was not returned waits for its worker's
# lease to expire.
FORCED_RELEASE_TIMEOUT = 5.0
# Seconds between two checks whether the jobs of a stopping or draining worker have ended.
CHECK_INTERVAL = 0.02


class Shutdown:
    """The end of one worker.

    The order matters. The parts that bring in work stop first, then the jobs end. The releaser ends after the jobs,
    when it has stored the last result, and the heartbeat ends after the releaser: a result is only accepted while the
    lease holds. The worker leaves the register last, when it holds no claim any more.

    Jobs that ignore the stop are returned after everything else, because other workers may run them from then on, and
    only the end of the process stops them here.
    """

    def __init__(self, worker: DatabaseWorker, is_forced: Callable[[], bool]) -> None:
        self._worker = worker
        # Called repeatedly: as soon as it returns True, the shutdown waits as little as possible.
        self._is_forced = is_forced
        self._began_at = time.monotonic()

    def perform(self) -> Ending:
        self.stop_claiming()
        self._worker.executor.abort()
        have_ended = self._let_jobs_end()
        was_released = self._wait_for_releaser()
        if have_ended:
            self._leave(was_released)
            self._close_others()
        else:
            self._close_others()
            self._return_running_jobs()
            # A database that has not stored the results of before gets no second chance.
            patience = FORCED_RELEASE_TIMEOUT if was_released else CLEANUP_TIMEOUT
            was_released = self._wait_for_releaser(patience) and was_released
            self._leave(was_released)
        return Ending(was_released=was_released, was_cut_off=not have_ended)

    def stop_claiming(self) -> None:
        """Stop the parts that bring in work, and return the jobs that have not begun."""
        worker = self._worker
        for service in worker.outer_services():
            service.stop()
        self._wait_for_fetcher()
        with worker.pool.removal_lock:
            worker.return_jobs(worker.pool.remove_waiting())

    def _wait_for_fetcher(self) -> None:
        deadline = time.monotonic() + self._worker.settings.statement_timeout
        while not self._worker.fetcher.join(CHECK_INTERVAL) and time.monotonic() < deadline and not self._is_forced():
            pass

    def _let_jobs_end(self) -> bool:
        """Wait for the running jobs; return True when all of them ended by themselves."""
        pool, executor = self._worker.pool, self._worker.executor
        self._wait_for_jobs(self._worker.settings.grace_period)
        have_ended = pool.is_idle
        if not have_ended:
            # Only coroutines can be cancelled and get time to clean up; other tasks have had their grace period.
            has_coroutines = executor.event_loop.has_coroutines
            executor.cancel()
            self._wait_for_jobs(CLEANUP_TIMEOUT if has_coroutines else 0.0)
        # A coroutine that ignores its cancellation ends here: a job must not run on after it is returned.
        executor.event_loop.close(CLEANUP_TIMEOUT if have_ended and not self._is_forced() else 0.0)
        if have_ended:
            pool.stop()
        return have_ended

    def _wait_for_jobs(self, seconds: float) -> None:
        pool = self._worker.pool
        deadline = time.monotonic() + seconds
        while not pool.is_idle and time.monotonic() < deadline and not self._is_forced():
            pool.wait_for_change(CHECK_INTERVAL)

    def _return_running_jobs(self) -> None:
        """Return the jobs that still run, without counting the attempt: their results would come too late."""
        worker = self._worker
        running = self._still_running()
        outcomes = worker.pool.interrupt_running([job.claim for job in running])
        for job in running:
            duration = time.time() - job.started_at
            reason = "the worker stops"
            worker.reports.send(signals.job_interrupted, job=worker.job_of(job.claim), duration=duration, reason=reason)
        for outcome in outcomes:
            worker.releaser.put(outcome)
        worker.executor.forget_running()
        worker.pool.stop()

    def _still_running(self) -> list[RunningJob]:
        """Return the jobs that still run, after a wait for the slots whose jobs have ended to pass on the outcomes."""
        pool, executor = self._worker.pool, self._worker.executor
        deadline = time.monotonic() + CLEANUP_TIMEOUT
        while pool.running() > len(running := executor.running()) and time.monotonic() < deadline:
            pool.wait_for_change(CHECK_INTERVAL)
        return running

    def _wait_for_releaser(self, seconds: float = FORCED_RELEASE_TIMEOUT) -> bool:
        """Wait until every result is stored; return False when the worker gives up on some of them."""
        releaser = self._worker.releaser
        # A database that cannot be reached gets the grace period, too.
        grace_ends = self._began_at + self._worker.settings.grace_period
        deadline = max(time.monotonic(), grace_ends) + seconds
        releaser.hurry()
        while not releaser.wait_until_empty(CHECK_INTERVAL):
            if self._is_forced():
                deadline = min(deadline, time.monotonic() + FORCED_RELEASE_TIMEOUT)
            rejected = releaser.given_up_job_ids
            if rejected:
                self._worker.reports.send(signals.results_refused, job_ids=rejected)
            if rejected or time.monotonic() > deadline:
                return False
        return True

    def _leave(self, was_released: bool) -> None:
        """Stop the parts that keep the lease, and leave the register if no claim is left."""
        for inner in (self._worker.releaser, self._worker.heartbeat):
            inner.stop()
            inner.join(CLEANUP_TIMEOUT)
        self._worker.run_stops.close()
        if was_released:
            self._deregister()
        self._worker.claimer.close()

    def _close_others(self) -> None:
        self._stop_progress()
        self._write_last_statistics()
        for service in self._worker.outer_services():
            if service.join(CLEANUP_TIMEOUT):
                # A draining worker runs the steps of some services itself: no thread of theirs closes them.
                service.close()

    def _deregister(self) -> None:
        """Remove the worker from the register, on another thread: a database that hangs must not block this thread."""
        held, heartbeat = self._worker.held, self._worker.heartbeat

        def deregister() -> None:
            with contextlib.suppress(Exception):
                if held.is_in_doubt:
                    held.return_lost()
                heartbeat.deregister()
            heartbeat.close()

        thread = threading.Thread(target=deregister, daemon=True)
        thread.start()
        while thread.is_alive() and not self._is_forced():
            thread.join(CHECK_INTERVAL)
        thread.join(CLEANUP_TIMEOUT)

    def _stop_progress(self) -> None:
        """Stop the writer of progress, which has written the last report of each job before the job ended."""
        self._worker.progress.stop()
        self._worker.progress.join(CLEANUP_TIMEOUT)

    def _write_last_statistics(self) -> None:
        """Stop the recorder, which writes its last counts when it closes.

        If all jobs have ended, the worker has left the register before: the end of its lease must not wait for the
        counts.
        """
        statistics = self._worker.statistics
        statistics.stop()
        deadline = time.monotonic() + LAST_RECORD_TIMEOUT
        while not statistics.join(CHECK_INTERVAL) and time.monotonic() < deadline and not self._is_forced():
            continue
        if statistics.join(0):
            # A service that never had a thread is not closed yet.
            statistics.close()
