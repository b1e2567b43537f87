"""A worker without threads: it claims, runs and releases one job at a time, on the thread and connection of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django_graphile_worker import simulation
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.registry import Task
from django_graphile_worker.routing import Place, queue_connection
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.pauses import Pause
from django_graphile_worker.sql.releases import HeldQueue, new_sender
from django_graphile_worker.sql.result_keeping import ResultKeeping, keeping
from django_graphile_worker.testing.in_process.caller_database import CallerDatabase
from django_graphile_worker.testing.in_process.job_connections import JobConnections
from django_graphile_worker.testing.in_process.recording_executor import RecordingExecutor
from django_graphile_worker.testing.in_process.single_claims import LearningDirectory, SingleClaims
from django_graphile_worker.testing.ran_jobs import RanJob, outcome_name
from django_graphile_worker.worker import django_connections, fork_guard
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.execution.helpers import DirectReports
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fleet import new_worker_id
from django_graphile_worker.worker.outcomes import Cancelled, Done, Failed, Interrupted, Outcome
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.reporting.events import WorkerEvents
from django_graphile_worker.worker.reporting.signal_sender import SignalSender
from django_graphile_worker.worker.reporting.task_reports import TaskReports
from django_graphile_worker.worker.task_selection import FindTask, task_finder

# The job that runs in this context for a test; also in the coroutines and threads that it passes its context to.
running_job: ContextVar[str | None] = ContextVar("graphile_worker_running_job", default=None)


def _task_finder(place: Place) -> FindTask | None:
    """Return what finds Django tasks by their names, of all labels, or None in a project without them."""
    if task_finder(place.settings) is None:
        return None
    # Late import: a project without Django Tasks cannot load the backend.
    from django_graphile_worker.backend.runnable import find_runnable

    return find_runnable


class InProcessWorker(DatabaseWorker):
    """The parts of a worker that a job passes through, for one thread, and what events mean for them.

    What concerns other parts of a worker, such as the fetcher, does nothing here.
    """

    def __init__(self, place: Place, tasks: Sequence[Task[Any, Any]]) -> None:
        # Not the constructor of the base class, which builds all parts, with connections of their own.
        self.place = place
        self.settings = place.settings
        self.tasks = {task.identifier: task for task in tasks}
        self.worker_id = new_worker_id()
        self.sender = new_sender()
        self.limited = None
        # A task with a time limit only learns its deadline.
        self.stops = None  # type: ignore[assignment]
        self.progress = DirectReports(  # type: ignore[assignment]
            using=place.using, schema=place.settings.schema
        )
        # A connection of the test takes the place of both connections of a worker.
        self.caller_database = CallerDatabase(place)
        self.claim_database = self.release_database = self.caller_database
        self.signal_sender = SignalSender(self, type(self))
        self.events = WorkerEvents(self)
        self.task_reports = TaskReports(self)
        self.directory = self.learning_directory = LearningDirectory(self, _task_finder(place))
        self.forbidden_flags = ForbiddenFlags(self.settings)
        self.releaser = Releaser(self)
        self._all_tasks = tasks
        self._now: Callable[[], datetime] = partial(datetime.now, UTC)
        self._claims = SingleClaims(self)
        self._retry_in: float | None = None
        self._was_cancelled = False
        self._generation = fork_guard.generation
        # Kept for the next call of run_jobs(), unless it has middleware or an event loop.
        self._kept_executor: RecordingExecutor | None = None

    def is_for(self, place: Place, tasks: Sequence[Task[Any, Any]]) -> bool:
        """Return whether another call of ``run_jobs()`` can use this worker: nothing that it depends on has changed."""
        return (
            self.settings is place.settings
            # A process that the tests forked, to run side by side, makes its own.
            and self._generation == fork_guard.generation
            and self._all_tasks == tasks
            and self.caller_database.wrapper is queue_connection(place.using)
            # What it knows about Django tasks may be out of date.
            and not self.directory.finds_tasks
            and task_finder(place.settings) is None
            and not self.releaser.pending_count
            and not self.signal_sender.has_queued
        )

    def now(self) -> datetime:
        return self._now()

    def limit_time(self) -> datetime:
        return self._now()

    def result_keeping(self) -> ResultKeeping:
        return keeping(self.settings, self._all_tasks)

    def troubles(self) -> list[BaseException | None]:
        return []

    def jobs_released(self, outcomes: Sequence[Outcome]) -> None:
        self.events.jobs_released(outcomes)
        self.task_reports.released(outcomes)

    def claims_settled(self, outcomes: Sequence[Outcome]) -> None:
        if self._claims.limited is not None:
            self._claims.limited.free([outcome.claim for outcome in outcomes])

    def job_cancelled(self, outcome: Cancelled) -> None:
        self._was_cancelled = True
        super().job_cancelled(outcome)

    def retry_scheduled(self, seconds: float) -> None:
        self._retry_in = seconds

    def queues_freed(self, queue_ids: set[int]) -> None:
        """Do nothing: the next claim looks at all queues."""

    def queues_released(self, queue_ids: Sequence[int]) -> None:
        """Do nothing: the next claim looks at all queues."""

    def queue_paused_by(self, claim: Claim) -> None:
        """Do nothing: no job is claimed behind another."""

    def jobs_returned(self, count: int) -> None:
        """Do nothing: the next claim finds them."""

    def queues_paused(self, pauses: Sequence[Pause]) -> None:
        simulation.has_pauses = True
        super().queues_paused(pauses)

    def tasks_found(self) -> None:
        """Do nothing: the executor reads the options of a task when it runs a job."""

    def limited_tasks_found(self) -> None:
        self._claims.use_limits()

    @contextmanager
    def working(self, now: Callable[[], datetime]) -> Iterator[None]:
        """Prepare for jobs, and clean up after them."""
        watched_before = django_connections.this_thread.watched
        self._now = now
        self.caller_database.begin()
        self.forbidden_flags = ForbiddenFlags(self.settings)
        self._claims.begin()
        self.executor = self._executor = self._kept_executor or RecordingExecutor(self)
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
            if self.settings.middleware or self._executor.event_loop.has_started:
                self._executor.close(0.0)
            else:
                self._kept_executor = self._executor
            django_connections.thread_finished()
            django_connections.this_thread.watched = watched_before

    def claim(self) -> Claimed:
        """Claim the job that a worker would start next, if one is due."""
        return self._claims.claim()

    def run(self, claim: Claim) -> RanJob:
        """Run a claimed job, and release it."""
        job = self.job_of(claim)
        self.events.jobs_claimed([claim], 0.0)
        self._send_signals()
        token = running_job.set(f"{job.task_identifier} #{job.id}")
        try:
            outcome = self._executor.run(claim)
        finally:
            running_job.reset(token)
        self._release(claim, outcome)
        retry_in = self._retry_in if isinstance(outcome, Failed) else None
        return RanJob(
            job=job,
            outcome="cancelled" if self._was_cancelled else outcome_name(outcome, retry_in),
            result=outcome.result if isinstance(outcome, Done) else None,
            error=self._executor.error if isinstance(outcome, Failed) else None,
            retry_in=retry_in,
        )

    def return_job(self, claim: Claim) -> None:
        """Return a job that was claimed and has not begun."""
        self._release(claim, Interrupted(claim, 0.0, has_begun=False))

    def _release(self, claim: Claim, outcome: Outcome) -> None:
        self._retry_in, self._was_cancelled = None, False
        self.releaser.put(outcome)
        if claim.queue_id is not None:
            self.releaser.put(HeldQueue(claim.queue_id, claim.token))
        self.releaser.step()
        self._send_signals()
        if self.releaser.pending_count:
            raise GraphileWorkerError(
                f"run_jobs(): expected to store the outcome of job {claim.id}, got a row that another transaction has "
                "locked. Let the other transaction end first."
            )

    def _send_signals(self) -> None:
        if self.signal_sender.has_queued:
            with JobConnections():
                self.signal_sender.step()
