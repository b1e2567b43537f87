"""A worker without threads: it claims, runs and releases one job at a time, on the thread and connection of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from django_graphile_worker import simulation
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.jobs import Job
from django_graphile_worker.pause_type import Pause
from django_graphile_worker.registry import Task
from django_graphile_worker.routing import Place, queue_connection
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.sql.result_keeping import keeping
from django_graphile_worker.testing.in_process.caller_database import CallerDatabase
from django_graphile_worker.testing.in_process.job_connections import JobConnections
from django_graphile_worker.testing.in_process.recording_executor import RecordingExecutor
from django_graphile_worker.testing.in_process.single_claims import LearningDirectory, SingleClaims
from django_graphile_worker.testing.ran_jobs import RanJob, outcome_name
from django_graphile_worker.worker import django_connections, fork_guard
from django_graphile_worker.worker.execution.job_control import JobControl
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.new_tasks import NewTasks
from django_graphile_worker.worker.identity import new_worker_id
from django_graphile_worker.worker.outcomes import Cancelled, Done, Failed, Interrupted, Outcome
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.release.statements import ReleaseStatements
from django_graphile_worker.worker.reporting.events import WorkerEvents
from django_graphile_worker.worker.reporting.signal_sender import SignalSender
from django_graphile_worker.worker.task_reports import TaskReports
from django_graphile_worker.worker.task_selection import task_finder

if TYPE_CHECKING:
    from django_graphile_worker.testing.in_process.limited_claims import LimitedSingleClaims

# The job that runs in this context for a test; also in the coroutines and threads that it passes its context to.
running_job: ContextVar[str | None] = ContextVar("graphile_worker_running_job", default=None)


class _Released:
    """The ``ReleaseEvents`` of the in-process worker: passes the signals on, and keeps the time of the next attempt."""

    def __init__(self, events: WorkerEvents, task_reports: TaskReports) -> None:
        self._events = events
        self._task_reports = task_reports
        self.retry_in: float | None = None
        self.was_cancelled = False
        # Set if a task has limits.
        self.limited: LimitedSingleClaims | None = None

    def released(self, outcomes: Sequence[Outcome]) -> None:
        self._events.jobs_released(outcomes)
        self._task_reports.released(outcomes)

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        if self.limited is not None:
            self.limited.free([outcome.claim for outcome in outcomes])

    def claim_lost(self, outcome: Outcome) -> None:
        self._task_reports.claim_lost(outcome)
        self._events.claim_lost(outcome)

    def cancelled(self, outcome: Cancelled) -> None:
        self.was_cancelled = True
        self._events.job_cancelled(outcome)

    def retry_scheduled(self, seconds: float) -> None:
        self.retry_in = seconds

    def queues_freed(self, queue_ids: set[int]) -> None:
        """Ignore it: the next claim looks at all queues."""

    def queues_released(self, queue_ids: Sequence[int]) -> None:
        """Ignore it: the next claim looks at all queues."""

    def jobs_returned(self, count: int) -> None:
        """Ignore it: the next claim finds them."""

    def queues_paused(self, pauses: Sequence[Pause]) -> None:
        simulation.has_pauses = True
        self._events.work_paused(pauses)


def _new_tasks(place: Place) -> NewTasks | None:
    """Return what finds Django tasks by their names, of all labels, or None in a project without them."""
    if task_finder(place.settings) is None:
        return None
    # Late import: a project without Django Tasks cannot load the backend.
    from django_graphile_worker.backend.runnable import find_runnable

    return NewTasks(find_runnable)


class InProcessWorker:
    """The parts of a worker that a job passes through, wired for one thread."""

    def __init__(self, place: Place, tasks: Sequence[Task[Any, Any]]) -> None:
        self._place = place
        self._tasks = tasks
        self.database = CallerDatabase(place)
        self._now: Callable[[], datetime] = partial(datetime.now, UTC)
        self._worker_id = new_worker_id()
        self._directory = LearningDirectory(
            self.database, {task.identifier: task for task in tasks}, new_tasks=_new_tasks(place)
        )
        self._claims = SingleClaims(self.database, self._directory, worker_id=self._worker_id, now=self._time)
        self._signal_sender = SignalSender(type(self))
        self.events = WorkerEvents(
            self._signal_sender,
            worker_id=lambda: self._worker_id,
            database=place.using,
            installation=place.installation,
            job_of=self._job_of,
        )
        self._released = _Released(self.events, self._task_reports())
        self._directory.on_limited = self._use_limits
        statements = ReleaseStatements(
            self.database,
            now=self._time,
            settings=place.settings,
            keeping=lambda: keeping(place.settings, tasks),
            limit_clock=self._time,
        )
        self._releaser = Releaser(statements=statements, events=self._released)
        self._generation = fork_guard.generation
        # Kept for the next call of run_jobs(), unless it has middleware or an event loop.
        self._kept_executor: RecordingExecutor | None = None

    def is_for(self, place: Place, tasks: Sequence[Task[Any, Any]]) -> bool:
        """Return whether another call of ``run_jobs()`` can use this worker: nothing that it depends on has changed."""
        return (
            self._place.settings is place.settings
            # A process that the tests forked, to run side by side, makes its own.
            and self._generation == fork_guard.generation
            and self._tasks == tasks
            and self.database.wrapper is queue_connection(place.using)
            # What it knows about Django tasks may be out of date.
            and not self._directory.finds_tasks
            and task_finder(place.settings) is None
            and not self._releaser.pending_count
            and not self._signal_sender.has_queued
        )

    def _use_limits(self) -> None:
        # Late import: most projects have no limits.
        from django_graphile_worker.testing.in_process.limited_claims import LimitedSingleClaims

        if self._claims.limited is None:
            self._claims.limited = self._released.limited = LimitedSingleClaims(
                self.database,
                self._directory,
                tokens=self._claims.tokens,
                now=self._time,
                overrides=self._place.settings.limits,
            )

    def _time(self) -> datetime:
        return self._now()

    def _end_executor(self) -> None:
        if self._place.settings.middleware or self._executor.event_loop.has_started:
            self._executor.close(0.0)
        else:
            self._kept_executor = self._executor

    def _new_executor(self) -> RecordingExecutor:
        place = self._place
        return RecordingExecutor(
            self.database,
            settings=place.settings,
            using=place.using,
            installation=place.installation,
            tasks=self._directory.task_of,
            control=JobControl(server_time=lambda: self._now().timestamp()),
        )

    def _task_reports(self) -> TaskReports:
        return TaskReports(
            task_of=self._directory.task_of,
            tasks=lambda: self._directory.tasks,
            call=self._signal_sender.call,
        )

    @contextmanager
    def working(self, now: Callable[[], datetime]) -> Iterator[None]:
        """Prepare for jobs, and clean up after them."""
        watched_before = django_connections.this_thread.watched
        self._now = now
        self.database.begin()
        self._claims.begin(ForbiddenFlags(self._place.settings))
        self._executor = self._kept_executor or self._new_executor()
        self._kept_executor = None
        # Settings of caches, options of tasks and receivers of signals may have changed since the last call.
        self._executor.forget_tasks()
        self._executor.start()
        self._executor.warm_up()
        # Connections that are open already belong to the test. Those that a job opens are watched, and closed at the
        # end.
        django_connections.this_thread.watched = []
        try:
            yield
        finally:
            self._end_executor()
            django_connections.thread_finished()
            django_connections.this_thread.watched = watched_before

    def claim(self) -> Claimed:
        """Claim the job that a worker would start next, if one is due."""
        return self._claims.claim()

    def run(self, claim: Claim) -> RanJob:
        """Run a claimed job, and release it."""
        job = self._job_of(claim)
        self.events.jobs_claimed([claim], 0.0)
        self._send_signals()
        token = running_job.set(f"{job.task_identifier} #{job.id}")
        try:
            outcome = self._executor.run(claim)
        finally:
            running_job.reset(token)
        self._release(claim, outcome)
        retry_in = self._released.retry_in if isinstance(outcome, Failed) else None
        return RanJob(
            job=job,
            outcome="cancelled" if self._released.was_cancelled else outcome_name(outcome, retry_in),
            result=outcome.result if isinstance(outcome, Done) else None,
            error=self._executor.error if isinstance(outcome, Failed) else None,
            retry_in=retry_in,
        )

    def return_job(self, claim: Claim) -> None:
        """Return a job that was claimed and has not begun."""
        self._release(claim, Interrupted(claim, 0.0, has_begun=False))

    def _release(self, claim: Claim, outcome: Outcome) -> None:
        self._released.retry_in, self._released.was_cancelled = None, False
        self._releaser.put(outcome)
        if claim.queue_id is not None:
            self._releaser.put(HeldQueue(claim.queue_id, claim.token))
        self._releaser.step()
        self._send_signals()
        if self._releaser.pending_count:
            raise GraphileWorkerError(
                f"run_jobs(): expected to store the outcome of job {claim.id}, got a row that another transaction has "
                "locked. Let the other transaction end first."
            )

    def _send_signals(self) -> None:
        if self._signal_sender.has_queued:
            with JobConnections():
                self._signal_sender.step()

    def _job_of(self, claim: Claim) -> Job:
        task: Task[Any, Any] | None = self._directory.task_of(claim.task_id)
        return JobRun(claim, monotonic(), task).job
