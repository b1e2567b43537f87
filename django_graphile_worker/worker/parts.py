"""The parts of one worker, and the rules that concern several of them.

``wiring.py`` builds the parts. A part has no reference to the parts that it reports to: it calls an object of
``part_callbacks.py``, which finds the other parts here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from django_graphile_worker import signals
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Registry, Task
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.sql.result_keeping import ResultKeeping, keeping
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.identity import new_worker_id
from django_graphile_worker.worker.outcomes import Interrupted, Outcome
from django_graphile_worker.worker.service import Service
from django_graphile_worker.worker.work_units import WorkUnit, interrupted

if TYPE_CHECKING:
    from datetime import timedelta

    from django_graphile_worker.crontab import CronItem
    from django_graphile_worker.worker.control.control_reader import ControlReader
    from django_graphile_worker.worker.control.pause_endings import PauseEndings
    from django_graphile_worker.worker.control.pauses import Pauses
    from django_graphile_worker.worker.control.stops import Stops
    from django_graphile_worker.worker.database.connection import Database
    from django_graphile_worker.worker.execution.coroutine_executor import CoroutineExecutor
    from django_graphile_worker.worker.fetching.claimer import Claimer
    from django_graphile_worker.worker.fetching.fast_claim import FastClaim
    from django_graphile_worker.worker.fetching.fast_path import FastPath
    from django_graphile_worker.worker.fetching.fetcher import Fetcher
    from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
    from django_graphile_worker.worker.fetching.held_claims import HeldClaims
    from django_graphile_worker.worker.fetching.listener import Listener
    from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
    from django_graphile_worker.worker.job_clock import JobClock
    from django_graphile_worker.worker.limited.keeper import Keeper
    from django_graphile_worker.worker.limited.limited_work import LimitedWork
    from django_graphile_worker.worker.maintenance.cron import Cron
    from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat
    from django_graphile_worker.worker.maintenance.recovery import Recovery
    from django_graphile_worker.worker.maintenance.retention import Retention
    from django_graphile_worker.worker.maintenance.schema_version import SchemaVersion
    from django_graphile_worker.worker.maintenance.unserved_tasks import UnservedTasks
    from django_graphile_worker.worker.pool.slot_pool import SlotPool
    from django_graphile_worker.worker.release.releaser import Releaser
    from django_graphile_worker.worker.reporting.events import WorkerEvents
    from django_graphile_worker.worker.reporting.progress_writer import ProgressWriter
    from django_graphile_worker.worker.reporting.signal_sender import SignalSender
    from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer
    from django_graphile_worker.worker.reporting.statistics_recorder import StatisticsRecorder
    from django_graphile_worker.worker.scheduling.scheduler import Scheduler
    from django_graphile_worker.worker.task_reports import TaskReports


class Parts:
    """The parts of one worker on one database."""

    # Set by wiring.build_parts(), in an order in which each part is built after the parts that it uses.
    signal_sender: SignalSender
    events: WorkerEvents
    statistics_buffer: StatisticsBuffer
    statistics: StatisticsRecorder
    # The connection that claims jobs. It is the first connection that a worker opens.
    claim_database: Database
    now: JobClock
    directory: TaskDirectory
    # None in a project without Django tasks.
    task_reports: TaskReports | None
    forbidden_flags: ForbiddenFlags
    held: HeldClaims
    claimer: Claimer
    fast_claim: FastClaim
    fast_path: FastPath
    executor: CoroutineExecutor
    releaser: Releaser
    slots: SlotPool
    heartbeat: Heartbeat
    control_reader: ControlReader
    pauses: Pauses
    # None until there is a pause that has an end.
    pause_endings: PauseEndings | None = None
    # None without the setting LISTEN.
    listener: Listener | None
    fetcher: Fetcher
    schema_version: SchemaVersion
    recovery: Recovery
    retention: Retention
    unserved_tasks: UnservedTasks
    # None without a crontab.
    cron: Cron | None
    # None until there is a schedule.
    scheduler: Scheduler | None = None
    # None until a task reports its progress.
    progress: ProgressWriter | None = None
    # How the notifications of the releaser begin: other workers must look, this worker does already.
    sender: str
    # The connection of the releaser.
    release_database: Database
    # None until the worker has a task with limits; late_parts.use_limits() builds it.
    limited: LimitedWork | None = None
    # None until a run has to stop, or a run with a time limit begins; late_parts.stops_of() builds it.
    stops: Stops | None = None

    def __init__(
        self,
        place: Place,
        *,
        tasks: Mapping[str, Task[Any, Any]],
        registry: Registry,
        cron_items: Sequence[CronItem] | None = (),
        every: Mapping[str, timedelta] | None = None,
        version: str = "",
    ) -> None:
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
        # Set by the runner before it runs all jobs that are runnable, and ends.
        self.is_draining = False
        # Set by the runner at the shutdown. From then on the worker claims nothing.
        self.is_stopping = False
        self.stop_reason = ""
        # Which process of the supervisor this process replaces, and why; None for no such process.
        self.replaced_process: Mapping[str, Any] | None = None
        # What the pool calls before each job, apart from pauses; None for ``may_begin``.
        self._check: Callable[[Claim], bool] | None = None
        self._choosing_check = Lock()
        # Called when a run has ended without its thread, which still runs: the process should be replaced.
        self.on_thread_left: Callable[[], None] = lambda: None

    @property
    def keeps_anything(self) -> bool:
        """Whether this worker keeps results, or a history. Django tasks, which it finds later, usually keep results."""
        kept = self.result_keeping()
        return kept.has_history or kept.default is not None or any(kept.seconds.values()) or self.directory.finds_tasks

    def result_keeping(self) -> ResultKeeping:
        """Return which tasks keep their results, and whether there is a history.

        This worker also ends jobs of tasks that it does not run, and it finds Django tasks while it runs.
        """
        return keeping(self.settings, self.registry)

    def may_claim(self) -> bool:
        return self.directory.may_have_tasks and not self.is_stopping and self.heartbeat.holds_lease

    def may_begin(self, claim: Claim) -> bool:
        """Return True if this worker certainly still holds the claim.

        After the process was suspended, the lease may have expired without any part having noticed.
        """
        return self.heartbeat.holds_lease and claim.token.startswith(self.worker_id)

    def server_time(self) -> float:
        """Return the time of the jobs, in seconds since 1970."""
        now = self.now()
        return self.heartbeat.server_time() if now is None else now.timestamp()

    def refuse(self, claim: Claim) -> Outcome:
        """Return the outcome of a job that may not begin: it was cancelled, or its claim may be lost."""
        outcome = None if self.stops is None else self.stops.refuse(claim)
        return outcome or Interrupted(claim, 0.0, has_begun=False)

    def check_begin(self, may_begin: Callable[[Claim], bool]) -> None:
        """Have the pool call this function before each job, and after it the check of pauses while there are any."""
        with self._choosing_check:
            self._check = may_begin
            self._choose_check()

    def _choose_check(self) -> None:
        """Choose the function that the pool calls before each job. Without pauses, a job costs as much as before.

        Called under the lock: the threads of jobs and of the heartbeat change what the choice depends on.
        """
        check, pauses = self._check or self.may_begin, self.pauses
        self.slots.check_begin((lambda claim: check(claim) and not pauses.holds(claim)) if pauses else check)

    def use_limits(self, limited: LimitedWork) -> None:
        """Claim limited jobs, too, from now on."""
        self.limited = limited
        self.fetcher.use(limited.claimer, limited.fast_path)
        self.slots.pass_outcomes_to(limited.on_outcome)
        if self.is_draining:
            limited.sort_while_draining()
        elif self.fetcher.has_started:
            limited.keeper.start()

    def apply_pauses(self) -> None:
        """Claim and begin no jobs of what is paused, and claim the jobs of what is not paused any more."""
        pauses = self.pauses
        self.directory.pause(pauses.tasks)
        self.forbidden_flags.pause(pauses.flags)
        with self._choosing_check:
            self._choose_check()
        if self.limited is not None:
            # Lanes may wait for a queue that is not paused any more.
            self.limited.keeper.sweep_soon()
        self.wake_fetcher()

    def return_rest_of_queue(self, claim: Claim) -> None:
        """Return the jobs that were claimed behind this job in its queue, because it pauses the queue."""
        if claim.queue_id is not None:
            with self.slots.removal_lock:
                self.return_jobs(self.slots.remove_queue(HeldQueue(claim.queue_id, claim.token)))

    def return_jobs(self, work_units: Sequence[WorkUnit]) -> None:
        """Return jobs that have not begun, with the queues that were claimed for them."""
        queues = [work_unit.queue for work_unit in work_units if work_unit.queue is not None]
        self.releaser.return_jobs(list(interrupted(work_units)), queues)

    def take_new_id(self) -> None:
        """Claim under another worker id from now on."""
        self.worker_id = new_worker_id()

    def lose_lease(self) -> str:
        """Continue under a new worker id, and return the old id: other workers may have recovered its claims."""
        lost = self.worker_id
        self.take_new_id()
        # Jobs that have not begun may have been claimed by another worker by now, and must not begin here.
        with self.slots.removal_lock:
            self.return_jobs(self.slots.remove_waiting())
        # The same applies to the jobs that a claim statement under way still returns.
        self.fetcher.return_all_jobs()
        self.events.send(signals.worker_lost_lease, worker_id=lost, new_worker_id=self.worker_id)
        return lost

    def wake_fetcher(self) -> None:
        self.fetcher.wake()

    def proof_channel(self) -> str:
        """Return the channel on which the worker proves to itself that notifications arrive."""
        return f"worker:{self.worker_id}"

    def job_of(self, claim: Claim) -> Job:
        """Return the ``Job`` of a claim, which the receivers of signals get."""
        run = JobRun(claim, time.monotonic())
        run.task = self.directory.task_of(claim.task_id)
        return run.job

    def outer_services(self) -> list[Service | Fetcher]:
        """Return the services that bring in work, for this worker or for others. A shutdown stops them first."""
        services = (
            self.recovery,
            self.cron,
            self.scheduler,
            self.retention,
            self.unserved_tasks,
            self.pause_endings,
            self.keeper,
            self.fetcher,
        )
        return [service for service in services if service is not None]

    @property
    def keeper(self) -> Keeper | None:
        """The service that sorts limited jobs; None while the worker has no task with limits."""
        return None if self.limited is None else self.limited.keeper

    def troubles(self) -> list[BaseException | None]:
        """Return the error of the last step of each part that uses the database, or None if the step succeeded."""
        parts = (
            self.fetcher,
            self.releaser,
            self.heartbeat,
            self.recovery,
            self.statistics,
            self.cron,
            self.scheduler,
            self.progress,
            self.pause_endings,
            self.keeper,
        )
        return [part.trouble for part in parts if part is not None]

    def dead(self) -> list[str]:
        """Return the names of the parts whose thread has ended although the part was not stopped."""
        always = (self.signal_sender, self.fetcher, self.releaser, self.heartbeat, self.recovery)
        parts = (*always, self.cron, self.scheduler, self.keeper)
        return [part.name for part in parts if part is not None and part.has_died]
