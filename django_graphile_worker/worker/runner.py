"""The life of one worker: starts its parts in order, drains the jobs, shuts down.

``database_worker.py`` has the parts, and ``shutdown.py`` stops them in order.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import psycopg
from django.db import connections

from django_graphile_worker import signals
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.exceptions import BreakingMigrationError, GraphileWorkerError, SchemaError
from django_graphile_worker.registry import Registry
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.errors import not_installed, not_permitted, translated
from django_graphile_worker.sql.install import privileges
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.database.connection import POOLER_CONFUSION, Database
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.fetching.fetcher import ADJUST_INTERVAL
from django_graphile_worker.worker.service import Service
from django_graphile_worker.worker.shutdown import CHECK_INTERVAL, CLEANUP_TIMEOUT, Shutdown
from django_graphile_worker.worker.stop_request import Ending
from django_graphile_worker.worker.task_selection import selected_tasks, task_finder, unmatched_patterns

# How often in a row a draining worker fails to claim before it gives up: with the delays of service.Loop, after 10 to
# 20 seconds, and longer if the database answers slowly.
ATTEMPTS_TO_CLAIM = 9

# Seconds until the first look for dead workers. It opens a session and plans statements, and no job of this worker
# waits for it.
FIRST_RECOVERY = 0.25

# Seconds that a draining worker takes at its end to delete what has expired.
LOOK_AT_THE_END = 1.0

Question = Callable[[], bool]


def never() -> bool:
    return False


class Runner:
    """One worker on one database. Process signals and exit codes belong to ``process/``."""

    def __init__(
        self,
        place: Place,
        *,
        registry: Registry = registered_tasks,
        cron_items: Sequence[CronItem] | None = (),
        every: Mapping[str, timedelta] | None = None,
        version: str = "",
    ) -> None:
        self.place = place
        self.settings = place.settings
        # Set by begin(): this worker is one of several, which start side by side, or its database did not answer.
        self.delayed_start: DelayedStart | None = None
        # Whether another process takes the place of this process.
        self.is_retiring = False
        self._started_at = time.monotonic()
        self._registry = registry
        self.worker = DatabaseWorker(
            place,
            tasks=selected_tasks(registry, place.settings),
            find_task=task_finder(place.settings),
            registry=registry,
            cron_items=cron_items,
            every=every,
            version=version,
            sender=type(self),
        )

    @property
    def label(self) -> str:
        """The name that distinguishes this worker from the other workers of the process."""
        return self.place.label

    def begin(self) -> DelayedStart:
        """Start the worker on another thread, as soon as its database answers."""
        self.delayed_start = DelayedStart(self)
        self.delayed_start.start()
        return self.delayed_start

    def start_with_unused_id(self) -> None:
        """Start the worker, under another id if an earlier try has used this one."""
        try:
            self.start()
        except psycopg.errors.UniqueViolation:
            # An earlier try entered this id into the register, and then failed or lost the answer. For the other
            # workers, the worker of that try is dead.
            self.worker.take_new_id()
            raise

    def end(self, reason: str, *, is_forced: Question = never) -> Ending:
        """Shut down the worker, or cancel its start if it has not started yet."""
        if self.delayed_start is None or self.delayed_start.cancel():
            return self.shutdown(reason, is_forced=is_forced)
        # The worker holds no claims, and the thread that starts it may be waiting for its database.
        self.delayed_start.join(CLEANUP_TIMEOUT)
        return Ending(was_released=True, was_cut_off=False)

    def start(self) -> None:
        """Register the worker, then start its parts."""
        worker = self.worker
        self._prepare()
        self._report_started()
        self._prepare_history()
        # The part that claims starts first, so that the first job does not wait for the others.
        worker.fetcher.start()
        # While the first claim is under way.
        django_connections.create_caches()
        worker.releaser.warm_up()
        worker.recovery.start(after=FIRST_RECOVERY)
        for service in (
            worker.signal_sender,
            worker.releaser,
            worker.heartbeat,
            worker.retention,
            worker.unserved_tasks,
            worker.statistics,
        ):
            service.start()
        if worker.alerting is not None:
            worker.alerting.start()
        if worker.limited is not None:
            worker.limited.keeper.start()
        if worker.scheduler.has_own_work:
            # Otherwise it starts when a schedule is expected.
            worker.scheduler.start()

    def drain(self, should_stop: Question = never) -> None:
        """Run all jobs that are runnable, then return."""
        worker = self.worker
        worker.is_draining = True
        self._prepare()
        for service in (worker.heartbeat, worker.signal_sender, worker.releaser, worker.statistics):
            service.start()
        self._report_started()
        # In a project that only drains, no other worker recovers the jobs of a worker that died.
        worker.recovery.skips_watching = True
        worker.recovery.attempt()
        self._prepare_history()
        self._claim_until_empty(should_stop)
        worker.reports.write_noted(worker.claim_database)
        if worker.keeps_anything:
            worker.retention.finish_look(LOOK_AT_THE_END)

    def _claim_until_empty(self, should_stop: Question) -> None:
        fetcher, claimer, failures = self.worker.fetcher, self.worker.claimer, 0
        while not should_stop() and failures < ATTEMPTS_TO_CLAIM:
            was_quiet = self._is_quiet
            delay = fetcher.attempt()
            failures = failures + 1 if fetcher.trouble else 0
            if failures:
                self._wait(delay, should_stop)
            elif fetcher.last_claim_was_empty:
                if was_quiet:
                    if claimer.scan.has_seen_all:
                        break
                    # A job may have come in before the place behind which claims look.
                    claimer.scan.begin_again()
                self._wait_until_quiet_or_woken(should_stop)
        if failures and fetcher.trouble:
            raise fetcher.trouble

    def shutdown(self, reason: str, *, is_forced: Question = never) -> Ending:
        """Stop claiming, let jobs end, return the rest; a forced shutdown waits as little as possible."""
        self.worker.is_stopping, self.worker.stop_reason = True, reason
        self.worker.reports.send(signals.worker_stopping, reason=reason)
        try:
            ending = Shutdown(self.worker, is_forced).perform()
            if not ending.was_released:
                error = GraphileWorkerError("The last results were not stored: their jobs run again.")
                self.worker.reports.send(signals.shutdown_failed, reason=reason, error=error)
            duration = time.monotonic() - self._started_at
            self.worker.reports.send(signals.worker_stopped, reason=reason, duration=duration)
            return ending
        except Exception as error:
            self.worker.reports.send(signals.shutdown_failed, reason=reason, error=error)
            raise
        finally:
            self.worker.signal_sender.stop()
            self.worker.signal_sender.join(CLEANUP_TIMEOUT)

    def retire(self, is_forced: Question = never) -> None:
        """Stop claiming, and return the jobs that have not begun. The jobs that run may end in their own time."""
        self.is_retiring = self.worker.is_stopping = True
        if self.delayed_start is None or self.delayed_start.has_begun:
            Shutdown(self.worker, is_forced).stop_claiming()

    @property
    def has_retired(self) -> bool:
        """Whether no job runs any more that could still end: a coroutine cannot, while its event loop is blocked."""
        return self.worker.pool.is_idle or self.worker.executor.event_loop.is_blocked

    def _prepare(self) -> None:
        worker = self.worker
        # All on the connection that is already open: the heartbeat opens its own connection for its first beat, and no
        # job waits for that.
        for prepare in (
            check_installation,
            self._refuse_other_schema,
            # Before the names of tasks are read: a clean-up keeps the names that a registered worker uses.
            worker.heartbeat.register,
            lambda database: worker.directory.review(),
            # Before the first claim: what is paused must not run for a moment after a restart.
            worker.control_reader.read,
        ):
            try:
                prepare(worker.claim_database)
            except POOLER_CONFUSION:
                # From now on the connection uses no prepared statements, so the second try can succeed.
                prepare(worker.claim_database)
        worker.executor.start()

    def _prepare_history(self) -> None:
        if self.settings.history is not None:
            # One step: it makes the partitions of the history before the first job is recorded. A row on its way into
            # the default partition is refused at the moment at which the partition of its day comes into being.
            self.worker.retention.attempt()

    def _refuse_other_schema(self, database: Database) -> None:
        """Raise an error for the schema of a release that this worker cannot work with."""
        error = self.worker.schema_version.find_error(database)
        if isinstance(error, BreakingMigrationError):
            self.worker.schema_version.write_event(database, error)
        if error is not None:
            raise error

    def _wait(self, seconds: float, should_stop: Question) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not should_stop():
            self.worker.pool.wait_for_change(CHECK_INTERVAL)

    def _wait_until_quiet_or_woken(self, should_stop: Question) -> None:
        fetcher = self.worker.fetcher
        pool = self.worker.pool
        while not self._is_quiet and not fetcher.was_woken() and not should_stop():
            if pool.is_idle:
                # No other outcome follows that could be released together with those that wait.
                self.worker.releaser.end_pause()
            pool.wait_for_change(ADJUST_INTERVAL if pool.could_do_more else CHECK_INTERVAL)
            fetcher.adjust_slots()
        fetcher.forget_wake()

    @property
    def _is_quiet(self) -> bool:
        return self.worker.pool.is_idle and self.worker.releaser.pending_count == 0

    def report_not_started(self, action: str, error: BaseException, retry_in: float) -> None:
        self.worker.reports.send(signals.database_trouble, action=action, error=error, retry_in=retry_in)
        # Send the signal on this thread: the signal sender has not started yet.
        self.worker.signal_sender.step()

    def _report_started(self) -> None:
        self.worker.reports.send(
            signals.worker_started,
            concurrency=self.settings.concurrency,
            tasks=tuple(sorted(self.worker.directory.tasks)),
        )
        for setting, patterns in unmatched_patterns(self._registry, self.settings).items():
            self.worker.reports.send(signals.tasks_not_found, setting=setting, patterns=patterns)


class DelayedStart(Service):
    """The service that tries to start a worker until its database answers, and then ends.

    The other workers of the process run meanwhile.
    """

    name = "start"

    def __init__(self, runner: Runner) -> None:
        super().__init__(on_trouble=runner.report_not_started)
        self._runner = runner
        self._deciding = threading.Lock()
        # Set when the worker has started: from then on the runner's caller shuts the worker down, not this service.
        self.has_begun = False
        self.has_tried = threading.Event()

    def step(self) -> float:
        self._runner.start_with_unused_id()
        with self._deciding:
            self.has_begun = not self.is_stopping
        self.stop()
        return math.inf

    def attempt(self) -> float:
        delay = super().attempt()
        self.has_tried.set()
        return delay

    def cancel(self) -> bool:
        """Stop trying; return True if the worker has started."""
        with self._deciding:
            self.stop()
            return self.has_begun

    def close(self) -> None:
        try:
            if not self.has_begun:
                self._runner.shutdown("it has not begun")
        finally:
            # Receivers of the signals about the trouble run on this thread, and may have opened connections.
            connections.close_all()


def check_installation(database: Database) -> None:
    """Raise an error that describes what is wrong with the worker schema, if the worker cannot use it."""
    alias, schema = database.alias, database.schema
    try:
        with database.cursor() as cursor:
            are_installed, are_secured = privileges.worker_tables(cursor, schema=schema)
            role, hidden = privileges.hidden_tables(cursor, schema=schema) if are_secured else ("", ())
    except psycopg.errors.InsufficientPrivilege as error:
        raise translated(error, alias=alias, schema=schema) or error from error
    if not are_installed:
        raise SchemaError(not_installed(alias, schema))
    if hidden:
        raise SchemaError(not_permitted(alias, schema, f"{', '.join(hidden)} appear empty to it", role=role))
