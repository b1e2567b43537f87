"""``DatabaseWorker``: one worker on one database. It owns the parts, and knows what follows when something happens.

A part gets this object and imports no other part. What concerns one other part, it calls there:
``worker.fetcher.wake()``. What several parts react to has a method here: ``worker.lease_lost()``. So to find out what
a lost lease leads to, read its method, and to find out who reports it, search for its name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import psycopg

from django_graphile_worker import signals
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Registry, Task
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.control import CancelledJob, Pause, RequestedStop
from django_graphile_worker.sql.limits import MAX_UNPARKED, unpark_tasks
from django_graphile_worker.sql.recovery import Exhausted, Recovered, Unlocked
from django_graphile_worker.sql.releases import HeldQueue, new_sender
from django_graphile_worker.sql.results import ResultKeeping, keeping
from django_graphile_worker.sql.workers import WORKER_PREFIX, wake_workers
from django_graphile_worker.worker.control.control_reader import ControlReader
from django_graphile_worker.worker.control.pauses import PauseEndings, Pauses
from django_graphile_worker.worker.control.run_stops import RunStops
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.fetching.claimable import ForbiddenFlags, TaskDirectory
from django_graphile_worker.worker.fetching.claimer import Claimer, FastPath, HeldClaims
from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.fetching.listener import Listener
from django_graphile_worker.worker.limited import Keeper, LimitedWork
from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat
from django_graphile_worker.worker.maintenance.recovery import Recovery
from django_graphile_worker.worker.maintenance.regular_checks import BacklogSampler, SchemaVersion, UnservedTasks
from django_graphile_worker.worker.maintenance.retention import Retention
from django_graphile_worker.worker.outcomes import Cancelled, Interrupted, Outcome, RunStop
from django_graphile_worker.worker.pool.line import WorkUnit, interrupted
from django_graphile_worker.worker.pool.pool import Pool
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.reporting.metrics import MetricsRecorder
from django_graphile_worker.worker.reporting.progress_writer import ProgressWriter
from django_graphile_worker.worker.reporting.reports import SignalSender, TaskReports, WorkerReports
from django_graphile_worker.worker.reporting.statistics import StatisticsRecorder
from django_graphile_worker.worker.scheduling.scheduler import Scheduler
from django_graphile_worker.worker.service import Service
from django_graphile_worker.worker.task_selection import FindTask

# Seconds between two looks for parked jobs of tasks without limits.
UNPARK_INTERVAL = 60.0


class DatabaseWorker:
    """The parts of one worker, and what happens in it that several of them react to."""

    def __init__(
        self,
        place: Place,
        *,
        tasks: Mapping[str, Task[Any, Any]],
        registry: Registry,
        find_task: FindTask | None = None,
        cron_items: Sequence[CronItem] | None = (),
        every: Mapping[str, timedelta] | None = None,
        version: str = "",
        sender: type[Any],
    ) -> None:
        """Build the parts, each after those that it uses while it is built.

        ``cron_items`` is None for a worker that fires neither a crontab nor schedules, ``every`` has the intervals of
        tasks in the code. ``find_task`` finds Django tasks, which the worker learns of while it runs; None in a project
        without them. ``sender`` is the sender of the worker's signals.
        """
        self.place = place
        self.settings = place.settings
        # The tasks that this worker runs from its start, and all tasks of the process.
        self.tasks = tasks
        self.registry = registry
        self.cron_items = tuple(cron_items or ())
        # The intervals of tasks in the code, whose schedules this worker writes.
        self.every = dict(every or {})
        # Whether this worker adds the jobs of recurring tasks, those of the code and those of schedules.
        self.fires = cron_items is not None
        self.version = version
        # Changes when the lease is lost: other workers may recover what was claimed under the old id.
        self.worker_id = new_worker_id()
        # How the worker's own notifications begin: the other workers must look for jobs, this one does already.
        self.sender = new_sender()
        # Set by the runner before it runs all jobs that are runnable, and ends.
        self.is_draining = False
        # Set by the runner at the shutdown. From then on the worker claims nothing.
        self.is_stopping = False
        self.stop_reason = ""
        # Which process of the supervisor this process replaces, and why; None for no such process.
        self.replaced_process: Mapping[str, Any] | None = None
        # Whether this process takes the place of another, which has died or comes near a limit.
        self.is_successor = False
        # Called once, when this worker cannot continue with the schema: then the caller must stop the worker.
        self.on_refused: Callable[[BreakingMigrationError], None] = lambda error: None
        # Called when a run has ended without its thread, which still runs: the process should be replaced.
        self.on_thread_left: Callable[[], None] = lambda: None
        # Called with the outcome of each run, if the process has a limit at which another takes its place.
        self.on_job_ended: Callable[[Outcome], None] | None = None
        # Set by the process if it serves metrics.
        self.metrics: MetricsRecorder | None = None
        self._using_limits = Lock()
        self._unpark_at = 0.0

        self.signal_sender = SignalSender(self, sender)
        self.reports = WorkerReports(self)
        self.statistics = StatisticsRecorder(self)
        self.progress = ProgressWriter(self)
        self.task_reports = TaskReports(self)
        # The connection that claims jobs. It is the first connection that a worker opens.
        self.claim_database = self.database("fetcher")
        self.directory = TaskDirectory(self, find_task)
        self.forbidden_flags = ForbiddenFlags(self.settings)
        self.held = HeldClaims(self)
        self.executor = Executor(self)
        self.release_database = self.database("releaser")
        self.releaser = Releaser(self)
        self.pauses = Pauses(self)
        self.pause_endings = PauseEndings(self)
        self.run_stops = RunStops(self)
        self.pool = Pool(self)
        self.heartbeat = Heartbeat(self)
        self.control_reader = ControlReader(self)
        # None without the setting LISTEN.
        self.listener = Listener(self) if self.settings.listen else None
        self.claimer = Claimer(self)
        self.fast_path = FastPath(self)
        self.fetcher = Fetcher(self)
        # None until the worker has a task with limits.
        self.limited: LimitedWork | None = None
        self.schema_version = SchemaVersion(self)
        self.backlog_sampler = BacklogSampler(self)
        self.recovery = Recovery(self)
        self.retention = Retention(self)
        self.unserved_tasks = UnservedTasks(self)
        # None without the setting ALERTS.
        self.alerting = self._new_alerting()
        self.scheduler = Scheduler(self)

    def _new_alerting(self) -> Service | None:
        if self.settings.alerts is None:
            return None
        # Late import: it loads the clients of mail and HTTP.
        from django_graphile_worker.worker.maintenance.alerting import Alerting

        return Alerting(self, self.settings.alerts)

    def database(self, part: str, *, deadline: float | None = None) -> Database:
        """Return a connection for a part of the worker. It opens when it is first used."""
        return Database(self.place.using, self.settings, part=part, deadline=deadline)

    # What parts ask of the worker as a whole.

    def now(self) -> datetime | None:
        """Return the time to send with a statement; None to use the clock of the database."""
        return datetime.now(UTC) if self.settings.use_local_time else None

    def server_time(self) -> float:
        """Return the time of the jobs, in seconds since 1970."""
        now = self.now()
        return self.heartbeat.server_time() if now is None else now.timestamp()

    def limit_time(self) -> datetime | None:
        """Return the time of the windows of limits; None for the clock of the database, which all workers share."""
        return None

    def result_keeping(self) -> ResultKeeping:
        """Return which tasks keep their results, and whether there is a history.

        This worker also ends jobs of tasks that it does not run, and it finds Django tasks while it runs.
        """
        return keeping(self.settings, self.registry)

    @property
    def keeps_anything(self) -> bool:
        """Whether this worker keeps results, or a history. Django tasks, which it finds later, usually keep results."""
        kept = self.result_keeping()
        return kept.has_history or kept.default is not None or any(kept.seconds.values()) or self.directory.finds_tasks

    def job_of(self, claim: Claim) -> Job:
        """Return the ``Job`` of a claim, which the receivers of signals get."""
        return JobRun(claim, time.monotonic(), self.directory.task_of(claim.task_id)).job

    def may_claim(self) -> bool:
        return self.directory.may_have_tasks and not self.is_stopping and self.heartbeat.holds_lease

    def may_begin(self, claim: Claim) -> bool:
        """Return True if the job of a claim may begin: it is still held, not cancelled and not paused.

        After the process was suspended, the lease may have expired without any part having noticed.
        """
        if self.run_stops.unbegun and self.run_stops.is_requested(claim):
            return False
        if not (self.heartbeat.holds_lease and claim.token.startswith(self.worker_id)):
            return False
        return not (self.pauses.hold_any and self.pauses.holds(claim))

    def refuse(self, claim: Claim) -> Outcome:
        """Return the outcome of a job that may not begin."""
        return self.run_stops.refuse(claim) or Interrupted(claim, 0.0, has_begun=False)

    @property
    def hears_requests(self) -> bool:
        """Whether the worker is notified when something is asked of it."""
        return self.listener is not None and self.listener.is_healthy

    def proof_channel(self) -> str:
        """Return the channel on which the worker proves to itself that notifications arrive."""
        return f"worker:{self.worker_id}"

    def about_process(self) -> dict[str, Any]:
        """Return the facts about this process that the lists of workers show."""
        return {"host": socket.gethostname(), "pid": os.getpid(), "version": self.version}

    def metadata(self) -> Mapping[str, Any]:
        """Return the facts about the worker that the register holds."""
        return {
            **self.about_process(),
            "database": self.place.using,
            "installation": self.place.installation,
            "schema": self.settings.schema,
            "concurrency": self.settings.concurrency,
            "tasks": sorted(self.directory.tasks),
            # Unknown if a callable of the project chooses them for every claim.
            "forbidden_flags": list(flags) if isinstance(flags := self.settings.forbidden_flags, tuple) else None,
            # Whether it is to listen, and whether notifications arrive.
            "listens": self.listener is not None,
            "is_listening": self.listener is not None and self.listener.is_heard,
            "is_stopping": self.is_stopping,
            "running": [
                {"job_id": job.claim.id, "task": job.task_identifier, "started_at": job.started_at}
                for job in self.executor.running()
            ],
        }

    def unrenewable_job_ids(self) -> list[int]:
        """Return the running atomic jobs: at REPEATABLE READ they could not delete a row that was renewed meanwhile."""
        running = (job.claim for job in self.executor.running())
        task_of = self.directory.task_of
        return [claim.id for claim in running if (task := task_of(claim.task_id)) and task.atomic]

    # The parts together.

    @property
    def keeper(self) -> Keeper | None:
        """The service that sorts limited jobs; None while the worker has no task with limits."""
        return None if self.limited is None else self.limited.keeper

    def outer_services(self) -> list[Service | Fetcher]:
        """Return the services that bring in work, for this worker or for others. A shutdown stops them first."""
        services = (
            self.recovery,
            self.scheduler,
            self.retention,
            self.unserved_tasks,
            self.alerting,
            self.pause_endings,
            self.keeper,
            self.fetcher,
        )
        return [service for service in services if service is not None]

    def troubles(self) -> list[BaseException | None]:
        """Return the error of the last step of each part that uses the database, or None if the step succeeded."""
        parts = (
            self.fetcher,
            self.releaser,
            self.heartbeat,
            self.recovery,
            self.statistics,
            self.scheduler,
            self.progress,
            self.pause_endings,
            self.keeper,
        )
        return [part.trouble for part in parts if part is not None]

    def dead(self) -> list[str]:
        """Return the names of the parts whose thread has ended although the part was not stopped."""
        always = (self.signal_sender, self.fetcher, self.releaser, self.heartbeat, self.recovery)
        parts = (*always, self.scheduler, self.keeper)
        return [part.name for part in parts if part is not None and part.has_died]

    # The way of a job.

    def job_ended(self, outcome: Outcome) -> None:
        """Release a job whose run has ended. Other jobs may wait for the place of a limited job."""
        limited = self.limited
        if limited is not None and limited.tasks.is_limited(outcome.claim.task_id):
            self.releaser.put_urgently(outcome)
        else:
            self.releaser.put(outcome)
        if self.on_job_ended is not None:
            self.on_job_ended(outcome)

    def limit_reached(self) -> None:
        """The process has reached one of its limits: claim nothing more, and begin none of the claimed jobs."""
        self.is_stopping = True
        self.pool.begin_no_more()

    def claims_settled(self, outcomes: Sequence[Outcome]) -> None:
        """These claims have ended in the database, or are lost."""
        claims = [outcome.claim for outcome in outcomes]
        self.held.forget(claims)
        if self.limited is not None:
            self.limited.free(claims)
        self.progress.settled([claim.id for claim in claims])

    def jobs_released(self, outcomes: Sequence[Outcome]) -> None:
        """The database has stored these outcomes."""
        self.statistics.add(outcomes)
        if self.metrics is not None:
            self.metrics.released(outcomes)
        self.reports.jobs_released(outcomes)
        if self.directory.finds_tasks:
            self.task_reports.released(outcomes)

    def job_cancelled(self, outcome: Cancelled) -> None:
        """A job has ended because it was cancelled."""
        self.reports.job_cancelled(outcome)

    def claim_lost(self, outcome: Outcome) -> None:
        """The database did not take an outcome: another worker has recovered the claim."""
        self.task_reports.claim_lost(outcome)
        self.reports.claim_lost(outcome)

    def retry_scheduled(self, seconds: float) -> None:
        """A job runs again in so many seconds. Later retries are found by polling."""
        if seconds < self.settings.poll_interval:
            self.fetcher.expect(seconds)

    def queues_released(self, queue_ids: Sequence[int]) -> None:
        """These named queues were released. Lanes of limited jobs may wait for them."""
        if self.limited is not None:
            self.limited.free_queues(queue_ids)

    def queues_freed(self, queue_ids: set[int]) -> None:
        """These queues were released, and have jobs that can run now."""
        self.claimer.note_freed_queues(queue_ids)
        self.fetcher.wake()

    def queue_paused_by(self, claim: Claim) -> None:
        """A job has paused its queue: return the jobs that were claimed behind it."""
        if claim.queue_id is not None:
            with self.pool.removal_lock:
                self.return_jobs(self.pool.remove_queue(HeldQueue(claim.queue_id, claim.token)))

    def queues_paused(self, pauses: Sequence[Pause]) -> None:
        """Jobs that have ended have paused their queues."""
        self.reports.work_paused(pauses)

    def return_jobs(self, work_units: Sequence[WorkUnit]) -> None:
        """Return jobs that have not begun, with the queues that were claimed for them."""
        queues = [work_unit.queue for work_unit in work_units if work_unit.queue is not None]
        self.releaser.return_jobs(list(interrupted(work_units)), queues)

    def jobs_returned(self, count: int) -> None:
        """So many jobs were returned to the queue without an end."""
        self.fetcher.wake()
        if count:
            # This worker may have no free slot, or may be about to stop.
            self.wake_others(self.release_database, count)

    def wake_others(self, database: Database, count: int) -> None:
        """Notify the other workers of so many jobs. If that fails, they find the jobs by polling."""
        if self.settings.notify:
            with contextlib.suppress(psycopg.Error), database.cursor() as cursor:
                wake_workers(cursor, count, schema=database.schema)

    def lanes_ready(self, lanes: int, database: Database) -> None:
        """Limited jobs can be claimed; other workers are notified if there are more of them than free slots here."""
        if self.limited is not None:
            self.limited.claimer.claim_limited_soon()
        self.fetcher.wake()
        if lanes > self.pool.free:
            self.wake_others(database, lanes)

    # The tasks of the worker.

    def tasks_found(self) -> None:
        """The directory has other tasks than before."""
        self.executor.note_tasks(self.directory.by_id)

    def limited_tasks_found(self) -> None:
        """The directory has a task with limits: from now on the worker sorts, claims and frees limited jobs, too."""
        with self._using_limits:
            if self.limited is not None:
                return
            self.limited = LimitedWork(self)
        if self.is_stopping:
            # The shutdown may have stopped the other services before it could see this one.
            self.limited.keeper.stop()
        elif self.fetcher.has_started and not self.is_draining:
            self.limited.keeper.start()

    # The lease.

    def registered(self, former_id: str | None) -> None:
        """The worker is in the register; ``former_id`` is its id before its lease was lost, if it was."""
        self.reports.note_start(former_id)
        if former_id is not None:
            # A clean-up may have deleted the names of the tasks while the worker was not registered.
            self.directory.review_soon()
            self.fetcher.wake()

    def take_new_id(self) -> None:
        """Claim under another worker id from now on."""
        self.worker_id = new_worker_id()

    def lease_lost(self) -> str:
        """Continue under a new worker id, and return the old id: other workers may have recovered its claims."""
        lost = self.worker_id
        self.take_new_id()
        # Jobs that have not begun may have been claimed by another worker by now, and must not begin here.
        with self.pool.removal_lock:
            self.return_jobs(self.pool.remove_waiting())
        # The same applies to the jobs that a claim statement under way still returns.
        self.fetcher.return_all_jobs()
        self.reports.send(signals.worker_lost_lease, worker_id=lost, new_worker_id=self.worker_id)
        return lost

    # What is asked of the worker from outside.

    def run_stops_requested(self, requests: Sequence[RequestedStop]) -> None:
        """These runs are to stop. A request is passed on with each read until its claim has ended."""
        for request in requests:
            stop = RunStop(kind="cancelled", reason=request.reason, by=request.requested_by)
            self.run_stops.request(request.job_id, request.token, stop)

    def run_stops_missed(self, requests: Sequence[RequestedStop]) -> None:
        """These requests came too late: the jobs had ended by themselves."""
        for request in requests:
            self.reports.cancellation_missed(request.job_id, reason=request.reason, cancelled_by=request.requested_by)

    def run_ended_without_thread(self, run: JobRun, thread_id: int) -> None:
        """A run that was stopped does not end: its job ends without it, and another thread takes its slot."""
        outcome = self.executor.end_without_thread(run)
        self.releaser.put_urgently(outcome)
        with self.pool.removal_lock:
            rest = self.pool.replace_thread(thread_id)
            if rest is not None:
                # The other jobs of the queue: this worker may stop soon, and another can run them now.
                self.return_jobs([rest])
        self.reports.send(signals.thread_left_behind, job=run.job, duration=outcome.duration)
        self.on_thread_left()

    def pauses_changed(self) -> None:
        """Claim and begin no jobs of what is paused, and claim the jobs of what is not paused any more."""
        self.directory.pause(self.pauses.tasks)
        self.forbidden_flags.pause(self.pauses.flags)
        if self.limited is not None:
            # Lanes may wait for a queue that is not paused any more.
            self.limited.keeper.sweep_soon()
        self.fetcher.wake()

    def schedule_expected(self, seconds: float) -> None:
        """A schedule is due in so many seconds. A worker that drains the queue ends before."""
        if self.fires and not self.is_draining:
            self.scheduler.expect(seconds)

    def schema_changed(self) -> None:
        """A migration was announced, or its announcement may have been missed. The recovery checks the version."""
        self.schema_version.check_soon()
        self.recovery.wake()

    def schema_refused(self, error: BreakingMigrationError) -> None:
        """This worker cannot continue with the schema."""
        self.reports.send(signals.schema_refused, error=error)
        self.on_refused(error)

    # The recovery of what dead workers have left.

    def recovery_begins(self, database: Database) -> None:
        """Do the other regular checks, on the connection of the recovery."""
        self.schema_version.check_if_due(database)
        if not self.is_draining:
            # The first job of a draining worker waits for its recovery: the runner writes the events at the end.
            self.reports.write_noted(database)
        if time.monotonic() >= self._unpark_at:
            found_all = self._unpark(database)
            # Again and again: a worker with the code of before may still run, and park more jobs until it stops.
            self._unpark_at = time.monotonic() + (UNPARK_INTERVAL if found_all else 0.0)
        # A draining worker looks once, and its first job waits for that look.
        if not self.is_draining:
            self.backlog_sampler.sample(database)

    def _unpark(self, database: Database) -> bool:
        """End the parking of jobs whose tasks have no limits any more; return True if all were found."""
        unlimited = [task_id for task_id, task in self.directory.by_id.items() if not task.limits]
        with database.cursor() as cursor:
            return unpark_tasks(cursor, unlimited, schema=database.schema) < MAX_UNPARKED

    def cancelled_jobs_recovered(self, jobs: Sequence[CancelledJob]) -> None:
        """Jobs have ended that were cancelled while workers held them that did not end them."""
        self.task_reports.ended(each.job for each in jobs)
        if self.metrics is not None:
            self.metrics.ended((each.job for each in jobs), "cancelled")
        self.reports.cancelled_jobs_recovered(jobs)

    def jobs_recovered(self, recovered: Recovered) -> None:
        """Jobs and queues of dead workers are free again."""
        if self.limited is not None:
            self.limited.keeper.sweep_soon()
        self._jobs_exhausted(recovered.exhausted)
        self.reports.jobs_recovered(recovered)

    def stale_locks_released(self, unlocked: Unlocked) -> None:
        """Locks were released that unregistered workers had held for hours."""
        self._jobs_exhausted(unlocked.exhausted)
        self.reports.stale_locks_released(unlocked)

    def _jobs_exhausted(self, exhausted: Sequence[Exhausted]) -> None:
        """Jobs have failed for good, because their workers died too often."""
        self.task_reports.ended(each.job for each in exhausted)
        if self.metrics is not None:
            self.metrics.ended((each.job for each in exhausted), "permanently_failed")


def new_worker_id() -> str:
    """Return an id that was never used before: a restarted worker must not be mistaken for the dead worker."""
    return f"{WORKER_PREFIX}{secrets.token_hex(9)}"
