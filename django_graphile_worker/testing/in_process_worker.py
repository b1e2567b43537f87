"""A worker without threads: it claims, runs and releases one job at a time, on the thread and connection of a test.

It claims with the claimer of a worker, but each claim begins at the start of the queue: the part that remembers where
the last claim stopped, and that rests between two claims, goes by the clock of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from django_graphile_worker import simulation
from django_graphile_worker.exceptions import GraphileWorkerError, LeftoverStateError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.sql import claims, control
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.limits import LimitedClaimed, free_places
from django_graphile_worker.sql.releases import HeldQueue, new_sender
from django_graphile_worker.testing.connections import CallerDatabase, JobConnections
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.database_worker import DatabaseWorker, new_worker_id
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.helpers import DirectReports
from django_graphile_worker.worker.execution.invoker import Invoke, TaskInvoker
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.fetching.claimable import ForbiddenFlags, TaskDirectory
from django_graphile_worker.worker.fetching.claimer import Claimer, HeldClaims
from django_graphile_worker.worker.limited import LimitedClaims, LimitedTasks, Sorter
from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat
from django_graphile_worker.worker.outcomes import Cancelled, Done, Expired, Failed, Interrupted, Outcome
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.reporting.reports import SignalSender, TaskReports, WorkerReports
from django_graphile_worker.worker.task_selection import any_task_finder

AnswerT = TypeVar("AnswerT", Claimed, LimitedClaimed)

# How often a claim is repeated that found only lanes whose keys are full.
MAX_LIMITED_CLAIMS = 1_000

# The job that runs in this context for a test; also in the coroutines and threads that it passes its context to.
running_job: ContextVar[str | None] = ContextVar("graphile_worker_running_job", default=None)


@dataclass(frozen=True, slots=True)
class RanJob:
    """A run of a job: the job as it was claimed, and how the run ended."""

    job: Job
    # "succeeded", "failed" (another attempt follows), "permanently failed", "expired", "cancelled" or "interrupted".
    outcome: str
    # What the task returned.
    result: Any = None
    # What the task raised.
    error: BaseException | None = None
    # Seconds until the next attempt.
    retry_in: float | None = None

    @property
    def task_identifier(self) -> str:
        return self.job.task_identifier

    @property
    def payload(self) -> Any:
        return self.job.payload

    @property
    def succeeded(self) -> bool:
        return self.outcome == "succeeded"

    def __repr__(self) -> str:
        end = "" if self.error is None else f" with {self.error!r}"
        return f"<{self.task_identifier} #{self.job.id} {self.outcome}{end}, payload {self.payload!r}>"


def _outcome_name(outcome: Outcome, retry_in: float | None) -> str:
    if isinstance(outcome, Expired):
        return "expired"
    if isinstance(outcome, Interrupted):
        return "interrupted"
    if isinstance(outcome, Failed):
        return "permanently failed" if retry_in is None else "failed"
    return "succeeded"


class InProcessWorker(DatabaseWorker):
    """The parts of a worker that a job passes through, for one call of ``run_jobs()``, and what follows in a test.

    What concerns other parts of a worker, such as the fetcher, does nothing here. ``now`` is the time of the test.
    """

    def __init__(self, place: Place, now: Callable[[], datetime]) -> None:
        # Not the constructor of the base class, which builds all parts, with connections of their own.
        self.place = place
        self.settings = place.settings
        self.registry = registered_tasks
        self.tasks = {task.identifier: task for task in registered_tasks}
        self.worker_id = new_worker_id()
        self.metrics = None
        self.sender = new_sender()
        # A task with a time limit only learns its deadline.
        self.run_stops = None  # type: ignore[assignment]
        self.progress = DirectReports(  # type: ignore[assignment]
            using=place.using, schema=place.settings.schema
        )
        # A connection of the test takes the place of both connections of a worker.
        self.caller_database = CallerDatabase(place)
        self.claim_database = self.release_database = self.caller_database
        self.signal_sender = SignalSender(self, type(self))
        self.reports = WorkerReports(self)
        self.task_reports = TaskReports(self)
        self.held = HeldClaims(self)
        self.heartbeat = Heartbeat(self)
        self.limited: LimitedJobs | None = None  # type: ignore[assignment]
        self.directory = TaskDirectory(self, any_task_finder())
        self.forbidden_flags = ForbiddenFlags(self.settings)
        self.claimer = Claimer(self)
        self.releaser = Releaser(self)
        self._now = now
        self._retry_in: float | None = None
        self._was_cancelled = False

    def now(self) -> datetime:
        return self._now()

    def limit_time(self) -> datetime:
        return self._now()

    def database(self, part: str, *, deadline: float | None = None) -> CallerDatabase:
        return self.caller_database

    def troubles(self) -> list[BaseException | None]:
        return []

    def jobs_released(self, outcomes: Sequence[Outcome]) -> None:
        self.reports.jobs_released(outcomes)
        self.task_reports.released(outcomes)

    def claims_settled(self, outcomes: Sequence[Outcome]) -> None:
        self.held.forget(outcome.claim for outcome in outcomes)
        if self.limited is not None:
            self.limited.free([outcome.claim for outcome in outcomes])

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
        """Do nothing: the executor prepares a task when it runs the first job of it."""

    def limited_tasks_found(self) -> None:
        if self.limited is None:
            self.limited = LimitedJobs(self)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Prepare for jobs, and clean up after them."""
        watched_before = django_connections.this_thread.watched
        self.caller_database.begin()
        self.executor = self._executor = RecordingExecutor(self)
        self._executor.start()
        django_connections.create_caches()
        # Connections that are open already belong to the test. Those that a job opens are watched, and closed at the
        # end.
        django_connections.this_thread.watched = []
        try:
            yield
        finally:
            self._executor.event_loop.close(0.0)
            django_connections.thread_finished()
            django_connections.this_thread.watched = watched_before

    def claim(self) -> Claimed:
        """Claim the job that a worker would start next, if one is due."""
        if self.directory.is_review_due:
            self.directory.review()
        until_end = self._read_pauses() if simulation.has_pauses else None
        claimed = self._claim_next()
        if not claimed.claims and self.directory.find_new_tasks():
            claimed = self._claim_next()
        return claimed if claimed.claims else _no_later_than(claimed, until_end)

    def _read_pauses(self) -> float | None:
        """Pause what is paused at this time; return the seconds until the end of a pause, None if no end is known."""
        schema, now = self.settings.schema, self._now()
        with self.caller_database.cursor() as cursor:
            control.settle_pauses(cursor, schema=schema, now=now)
            read = control.read_control(cursor, "", schema=schema, now=now).pauses
        tasks, flags = (frozenset(each.name for each in read if each.kind == kind) for kind in ("task", "flag"))
        self.directory.pause(tasks)
        self.forbidden_flags.pause(flags)
        # The test that paused something may be over, and rolled back.
        simulation.has_pauses = bool(read)
        return min((each.seconds_left for each in read if each.seconds_left is not None), default=None)

    def _claim_next(self) -> Claimed:
        if self.limited is None:
            return self._claim_ordinary()
        limited = self.limited.claim()
        if limited.claims:
            return Claimed(claims=limited.claims, seconds_until_next=None, has_more=True)
        return _no_later_than(self._claim_ordinary(), limited.seconds_until_next)

    def _claim_ordinary(self) -> Claimed:
        behind, is_waiting = claims.START, False
        while True:
            claimed = self.claimer.send(behind, (), self.forbidden_flags(), max_jobs=1, max_per_queue=1)
            is_waiting = is_waiting or claimed.is_waiting
            if not claimed.is_cut:
                # A job that another transaction has locked is due now.
                return replace(claimed, seconds_until_next=0.0) if is_waiting else claimed
            behind = claimed.continuation

    def run(self, claim: Claim) -> RanJob:
        """Run a claimed job, and release it."""
        job = self.job_of(claim)
        self.reports.jobs_claimed([claim], 0.0)
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
            outcome="cancelled" if self._was_cancelled else _outcome_name(outcome, retry_in),
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


def _no_later_than(claimed: AnswerT, seconds: float | None) -> AnswerT:
    """Return an answer to a claim after which the next claim follows in so many seconds at the latest."""
    times = [each for each in (claimed.seconds_until_next, seconds) if each is not None]
    return replace(claimed, seconds_until_next=min(times, default=None))


class LimitedJobs:
    """Sorts and claims limited jobs one by one, and frees the place of each when it has ended."""

    def __init__(self, worker: InProcessWorker) -> None:
        self._database = worker.caller_database
        self.tasks = LimitedTasks(worker.directory, worker.settings.limits)
        # The transaction and the connection belong to the test: the server must not end it, however long a debugger
        # stops it.
        self._sorter = Sorter(worker, self._database, self.tasks, idle_seconds=None, close_connections=_leave_open)
        self._claims = LimitedClaims(worker, self.tasks)

    def claim(self) -> LimitedClaimed:
        """Claim the limited job that a worker would start next, if one may start."""
        while (found := self._sorter.sort()).has_more:
            pass
        claimed = self._claims.claim(max_jobs=1)
        for _ in range(MAX_LIMITED_CLAIMS):
            if claimed.claims or not claimed.has_more:
                break
            claimed = self._claims.claim(max_jobs=1)
        # Limited jobs that are due later are not sorted yet.
        return _no_later_than(claimed, found.seconds_until_next)

    def free(self, claims: Sequence[Claim]) -> None:
        """Free the places of jobs that have ended, and the queues of all of them."""
        ended = [claim for claim in claims if self.tasks.is_limited(claim.task_id)]
        queue_ids = [claim.queue_id for claim in claims if claim.queue_id is not None]
        if ended or queue_ids:
            with self._database.cursor() as cursor:
                free_places(cursor, ended, schema=self._database.schema, queue_ids=queue_ids)


def _leave_open() -> None:
    pass


class RecordingExecutor(Executor):
    """An executor that keeps the exception of the last job, and looks for transactions that the job left open."""

    def __init__(self, worker: InProcessWorker) -> None:
        super().__init__(worker)
        self.error: BaseException | None = None
        self._invoker: CheckingInvoker = CheckingInvoker(worker, event_loop=self.event_loop, aborts=self.aborts)

    def run(self, claim: Claim) -> Outcome:
        self.error = None
        with JobConnections() as self._invoker.job_connections:
            return super().run(claim)

    def _failed(self, run: JobRun, error: BaseException, remarks: Sequence[str]) -> Failed:
        self.error = error
        return super()._failed(run, error, remarks)

    def _failed_by_worker(self, run: JobRun, error: BaseException) -> Failed:
        self.error = error
        return super()._failed_by_worker(run, error)


class CheckingInvoker(TaskInvoker):
    """An invoker that rolls back transactions which a task has left open on the connections of the test."""

    _worker: InProcessWorker
    job_connections: JobConnections

    def open_cursor(self) -> AbstractContextManager[Any]:
        return self._worker.caller_database.cursor_of_job()

    def of(self, task: Task[Any, Any] | None) -> Invoke:
        invoke = super().of(task)

        def checked(run: JobRun) -> Any:
            try:
                result = invoke(run)
            except BaseException:
                # The error of the task says more than that of its leftovers.
                with suppress(LeftoverStateError):
                    self.job_connections.roll_back_leftovers()
                raise
            self.job_connections.roll_back_leftovers()
            return result

        return checked
