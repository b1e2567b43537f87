"""The life of a worker: started in order, drained, and stopped so that nothing is lost."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from psycopg.errors import UniqueViolation

from django_graphile_worker import signals
from django_graphile_worker.worker.database.connection import POOLER_CONFUSION
from django_graphile_worker.worker.execution.job_run import RunningJob
from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.fetching.installation_check import check_installation
from django_graphile_worker.worker.identity import new_worker_id
from django_graphile_worker.worker.reporting.statistics_recorder import LAST_RECORD_TIMEOUT
from django_graphile_worker.worker.service import Service
from django_graphile_worker.worker.stop_request import Ending
from django_graphile_worker.worker.wiring import Parts

if TYPE_CHECKING:
    from django_graphile_worker.worker.delayed_start import DelayedStart

# After the grace period cancelled coroutines get this long to clean up.
LAST_WORDS = 1.0
# How often a stopping or draining worker looks whether its jobs are over.
LOOK_INTERVAL = 0.02
# How often in a row a draining worker tries to claim before it gives up: about half a minute.
ATTEMPTS_TO_CLAIM = 9

Question = Callable[[], bool]


def never() -> bool:
    return False


class Runner(Parts):
    """One worker on one database. Process signals and exit codes are the command's business."""

    # Set while it is one of several, which start side by side.
    beginning: DelayedStart | None = None

    def begin(self) -> DelayedStart:
        """Start as soon as the database answers, on a thread of its own."""
        # Here, as most workers have one database, and either start or do not.
        from django_graphile_worker.worker.delayed_start import DelayedStart

        self.beginning = DelayedStart(
            begin=self._start_or_know_why,
            give_up=lambda: self.shutdown("it has not begun"),
            on_trouble=self._tell_not_begun,
        )
        self.beginning.start()
        return self.beginning

    def _start_or_know_why(self) -> None:
        try:
            self.start()
        except UniqueViolation:
            # In the register already, by a try that got no further, or whose answer never came: that one is dead.
            self.worker_id = new_worker_id()
            raise

    def end(self, reason: str, *, is_forced: Question = never) -> Ending:
        """Shut down, unless there is nothing yet to shut down."""
        if self.beginning is None or self.beginning.end():
            return self.shutdown(reason, is_forced=is_forced)
        # It holds nothing, and the thread on which it begins may be waiting for its database.
        self.beginning.join(LAST_WORDS)
        return Ending(was_released=True, was_cut_off=False)

    def start(self) -> None:
        """Enter the register, then start the parts."""
        self._prepare()
        self._tell_started()
        # The one that claims before those that can wait: the first job shall not.
        self.fetcher.start()
        self.executor.warm_up()
        for service in (self.announcer, self.releaser, self.heartbeat, *self._outer_services(), self.statistics):
            service.start()

    def drain(self, should_stop: Question = never) -> None:
        """Run everything that is runnable, then return."""
        self._prepare()
        for service in (self.heartbeat, self.announcer, self.releaser, self.statistics):
            service.start()
        self._tell_started()
        # Where only this ever runs, nobody else frees what a run that died has left.
        self.recovery.judges_at_once = True
        self.recovery.attempt()
        failures = 0
        while not should_stop() and failures < ATTEMPTS_TO_CLAIM:
            was_quiet = self._is_quiet
            delay = self.fetcher.attempt()
            failures = failures + 1 if self.fetcher.trouble else 0
            if failures:
                self._wait(delay, should_stop)
            elif self.fetcher.last_claim_was_empty:
                if was_quiet:
                    break
                self._wait_until_quiet_or_woken(should_stop)
        if failures and self.fetcher.trouble:
            raise self.fetcher.trouble

    def shutdown(self, reason: str, *, is_forced: Question = never) -> Ending:
        """Stop claiming, let jobs end, give back the rest."""
        self._is_stopping = True
        self.news.tell(signals.worker_stopping, reason=reason)
        for service in self._outer_services():
            service.stop()
        self._wait_for_fetcher(is_forced)
        with self.slots.removal_lock:
            self.return_jobs(self.slots.remove_waiting())
        self.executor.abort()
        was_cut_off = not self._let_jobs_end(is_forced)
        was_released = self._wait_for_releaser(is_forced)
        self._close(was_released, is_forced)
        duration = time.monotonic() - self._started_at
        self.news.tell(signals.worker_stopped, reason=reason, duration=duration)
        self.announcer.stop()
        self.announcer.join(LAST_WORDS)
        return Ending(was_released=was_released, was_cut_off=was_cut_off)

    def _outer_services(self) -> list[Service | Fetcher]:
        """Those that bring work in, to others or to this one: they stop first."""
        services = (self.recovery, self.cron, self.unserved, self.fetcher)
        return [service for service in services if service is not None]

    def _prepare(self) -> None:
        # In the register before the names are read: from then on nobody cleans them away.
        for begin in (
            self._check_installation,
            self._refuse_newer_schema,
            self._register,
            self.directory.review,
        ):
            try:
                begin()
            except POOLER_CONFUSION:
                # From now on without prepared statements.
                begin()
        self.executor.start()

    def _check_installation(self) -> None:
        check_installation(self.claiming)

    def _refuse_newer_schema(self) -> None:
        error = self._breaking_migration(self.claiming)
        if error is not None:
            raise error

    def _register(self) -> None:
        # By the connection that is open already: the heartbeat opens its own for the first beat, which no job awaits.
        self.heartbeat.register(self.claiming)

    def _let_jobs_end(self, is_forced: Question) -> bool:
        """True when all of them came to their own end."""
        self._wait_for_jobs(self.settings.grace_period, is_forced)
        have_ended = self.slots.is_idle
        if not have_ended:
            # Only coroutines are told anything new by it: plain tasks had their time.
            has_coroutines = self.executor.has_coroutines
            self.executor.cancel()
            self._wait_for_jobs(LAST_WORDS if has_coroutines else 0.0, is_forced)
        # A coroutine that heeds no cancellation ends here; what is given back then runs no more.
        self.executor.close(LAST_WORDS if have_ended and not is_forced() else 0.0)
        if not self.slots.is_idle:
            self._abandon()
            self.executor.forget_running()
        self.slots.stop()
        return have_ended

    def _abandon(self) -> None:
        """Their results would come too late: the jobs go back as they were, the last thing before the end."""
        for service in self._outer_services():
            service.join(LAST_WORDS)
        running = self._running_for_good()
        for outcome in self.slots.interrupt_running([job.claim for job in running]):
            self.releaser.put(outcome)
        for job in running:
            duration = time.time() - job.started_at
            reason = "the worker stops"
            self.news.tell(signals.job_interrupted, job=self._job_of(job.claim), duration=duration, reason=reason)

    def _running_for_good(self) -> list[RunningJob]:
        """Without those that have just ended, whose slots are about to hand their outcome over."""
        deadline = time.monotonic() + LAST_WORDS
        while self.slots.running() > len(running := self.executor.running()) and time.monotonic() < deadline:
            self._look_again()
        return running

    def _wait_for_fetcher(self, is_forced: Question) -> None:
        deadline = time.monotonic() + self.settings.statement_timeout
        while not self.fetcher.join(LOOK_INTERVAL) and time.monotonic() < deadline and not is_forced():
            pass

    def _wait_for_jobs(self, seconds: float, is_forced: Question) -> None:
        deadline = time.monotonic() + seconds
        while not self.slots.is_idle and time.monotonic() < deadline and not is_forced():
            self._look_again()

    def _wait(self, seconds: float, should_stop: Question) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not should_stop():
            self._look_again()

    def _wait_until_quiet_or_woken(self, should_stop: Question) -> None:
        while not self._is_quiet and not self.fetcher.was_woken() and not should_stop():
            self._look_again()
        self.fetcher.forget_wake()

    def _wait_for_releaser(self, is_forced: Question) -> bool:
        deadline = math.inf
        self.releaser.hurry()
        while not self.releaser.wait_until_empty(LOOK_INTERVAL):
            if is_forced():
                deadline = min(deadline, time.monotonic() + LAST_WORDS)
            refused = self.releaser.refused_for_good
            if refused:
                self.news.tell(signals.results_refused, job_ids=refused)
            if refused or time.monotonic() > deadline:
                return False
        return True

    def _look_again(self) -> None:
        self.slots.wait_for_change(LOOK_INTERVAL)

    @property
    def _is_quiet(self) -> bool:
        return self.slots.is_idle and self.releaser.in_hand == 0

    def _close(self, was_released: bool, is_forced: Question) -> None:
        for inner in (self.releaser, self.heartbeat):
            inner.stop()
            inner.join(LAST_WORDS)
        if was_released:
            self._deregister(is_forced)
        self.claimer.close()
        self._write_last_statistics(is_forced)
        for service in self._outer_services():
            if service.join(LAST_WORDS):
                # A draining worker steps some of them itself: they have no thread that would close them.
                service.close()

    def _write_last_statistics(self, is_forced: Question) -> None:
        """After the lease has ended, which nobody should wait for; the service writes them when it closes."""
        self.statistics.stop()
        deadline = time.monotonic() + LAST_RECORD_TIMEOUT
        while not self.statistics.join(LOOK_INTERVAL) and time.monotonic() < deadline and not is_forced():
            continue
        if self.statistics.join(0):
            # Without a thread nobody has closed it.
            self.statistics.close()

    def _deregister(self, is_forced: Question) -> None:
        """On a thread, which a database that does not answer may keep."""

        def deregister() -> None:
            with contextlib.suppress(Exception):
                if self.held.is_in_doubt:
                    self.held.return_lost()
                self.heartbeat.deregister()
            self.heartbeat.close()

        thread = threading.Thread(target=deregister, daemon=True)
        thread.start()
        while thread.is_alive() and not is_forced():
            thread.join(LOOK_INTERVAL)
        thread.join(LAST_WORDS)

    def _tell_not_begun(self, action: str, error: BaseException, retry_in: float) -> None:
        self.news.tell(signals.database_trouble, action=action, error=error, retry_in=retry_in)
        # By hand, as the announcer starts with the rest.
        self.announcer.step()

    def _tell_started(self) -> None:
        self.news.tell(
            signals.worker_started,
            concurrency=self.settings.concurrency,
            tasks=tuple(sorted(self.tasks)),
        )
