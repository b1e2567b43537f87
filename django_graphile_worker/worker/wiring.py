"""A worker's parts, put together: each is given what it calls, and none knows another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import errors

from django_graphile_worker import signals
from django_graphile_worker.conf import DEFAULT, Settings
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Registry
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.ledger import breaking_migration
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.fetching.claimer import Claimer
from django_graphile_worker.worker.fetching.fast_claim import FastClaim
from django_graphile_worker.worker.fetching.fast_path import FastPath
from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.listener import Listener
from django_graphile_worker.worker.fetching.preconnect import database_of
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.identity import about_this_process, new_worker_id
from django_graphile_worker.worker.job_clock import job_clock
from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat, deadline_of_beats
from django_graphile_worker.worker.maintenance.lease_clock import lease_clock
from django_graphile_worker.worker.maintenance.recovery import Recovery
from django_graphile_worker.worker.maintenance.unserved_tasks import FIRST_LOOK, UnservedTasks
from django_graphile_worker.worker.outcomes import Outcome
from django_graphile_worker.worker.pool.slot_pool import SlotPool
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.release.statements import ReleaseStatements
from django_graphile_worker.worker.reporting.events import WorkerEvents
from django_graphile_worker.worker.reporting.signal_sender import SignalSender
from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer
from django_graphile_worker.worker.reporting.statistics_recorder import StatisticsRecorder
from django_graphile_worker.worker.task_selection import selected_tasks
from django_graphile_worker.worker.work_units import WorkUnit, interrupted

if TYPE_CHECKING:
    from django_graphile_worker.crontab import CronItem
    from django_graphile_worker.worker.maintenance.cron import Cron

# A listener that heard nothing for so many beats is deaf.
BEATS_OF_SILENCE = 2.5
# Jobs that fall due later than this are added without a notification: whoever listens must look as often.
ANNOUNCED_AHEAD = 10.0


class Parts:
    """The parts of one worker on one database, and what passes between them."""

    def __init__(
        self,
        settings: Settings,
        using: str,
        *,
        installation: str = DEFAULT,
        registry: Registry = registered_tasks,
        cron_items: Sequence[CronItem] = (),
        version: str = "",
    ) -> None:
        self.settings = settings
        self.using = using
        self.installation = installation
        self.worker_id = new_worker_id()
        self.tasks = selected_tasks(registry, settings)
        self.cron_items = tuple(cron_items)
        self._version = version
        self._started_at = time.monotonic()
        self._is_stopping = False
        self._is_refused = False
        # Called once, when this worker cannot go on with the schema: whoever started it is to stop it.
        self.on_refused: Callable[[BreakingMigrationError], None] = lambda error: None
        self._build()

    @property
    def label(self) -> str:
        """What tells it from the other workers of this process."""
        return Place(using=self.using, installation=self.installation, settings=self.settings).label

    def _build(self) -> None:
        """From the bottom up: each part is given what it calls."""
        settings = self.settings
        self.announcer = SignalSender(type(self), look=lambda: self.news.look())
        self.tally = StatisticsBuffer()
        self.claiming = claiming = self._database("fetcher")
        self.now = job_clock(use_local_time=settings.use_local_time)
        self.directory = TaskDirectory(claiming, self.tasks)
        self.forbidden_flags = ForbiddenFlags(settings)
        self.held = HeldClaims(
            claiming,
            worker_id=self._worker_id,
            statement_timeout=settings.statement_timeout,
            notify=settings.notify,
        )
        self.executor = Executor(
            settings=settings, using=self.using, installation=self.installation, tasks=self.directory.task_of
        )
        self.news = self._build_news()
        self.releaser = self._build_releaser()
        self.slots = SlotPool(settings.concurrency, PoolWiring(self))
        self.heartbeat = self._build_heartbeat()
        self.listener = self._build_listener(claiming) if settings.listen else None
        self.fetcher = self._build_fetcher(claiming)
        self.recovery = self._build_recovery()
        self.statistics = StatisticsRecorder(
            database=self._database("statistics"),
            tally=self.tally,
            interval=settings.heartbeat_interval,
            on_trouble=self.news.trouble,
        )
        self.cron = self._build_cron() if self.cron_items else None
        self.unserved = UnservedTasks(
            database=self._database("unserved-tasks"),
            timeout=settings.worker_timeout,
            on_found=lambda names: self.news.tell(signals.tasks_unserved, identifiers=tuple(names)),
            first_look=FIRST_LOOK,
        )

    def dead_parts(self) -> list[str]:
        """The parts whose thread ended though nobody asked them to."""
        parts = (self.announcer, self.fetcher, self.releaser, self.heartbeat, self.recovery, self.cron)
        return [part.name for part in parts if part is not None and part.has_died]

    def _build_news(self) -> WorkerEvents:
        return WorkerEvents(
            self.announcer,
            worker_id=self._worker_id,
            database=self.using,
            installation=self.installation,
            job_of=self._job_of,
            troubles=self._troubles,
        )

    def _build_releaser(self) -> Releaser:
        database = self._database("releaser")
        ledger = ReleaseStatements(database, now=self.now, notify=self.settings.notify)
        return Releaser(
            ledger=ledger,
            on_released=self._note_released,
            on_settled=lambda outcomes: self.held.forget([outcome.claim for outcome in outcomes]),
            on_lost=self.news.lost,
            on_retry=self._expect,
            on_queues_free=lambda queue_ids: self.wake_fetcher(),
            on_returned=self.wake_fetcher,
            on_close=database.close,
            on_trouble=self.news.trouble,
        )

    def _build_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            database=self._build_heartbeat_database(),
            worker_id=self._worker_id,
            metadata=self._metadata,
            channel=lambda: self.channel() if self.settings.listen and self.settings.notify else None,
            on_lost=self._lose_lease,
            interval=self.settings.heartbeat_interval,
            timeout=self.settings.worker_timeout,
            clock=lease_clock,
            on_trouble=self.news.trouble,
        )

    def _build_heartbeat_database(self) -> Database:
        deadline = deadline_of_beats(self.settings.statement_timeout, self.settings.worker_timeout)
        return self._database("heartbeat", deadline=deadline)

    def _build_fetcher(self, database: Database) -> Fetcher:
        self.fast_claim = FastClaim(database)
        self.claimer = Claimer(
            database,
            directory=self.directory,
            held=self.held,
            forbidden_flags=self.forbidden_flags,
            now=self.now,
            on_answer=self.fast_claim.learn_from,
        )
        fast_path = FastPath(
            self.fast_claim,
            pool=self.slots,
            directory=self.directory,
            held=self.held,
            forbidden_flags=self.forbidden_flags,
            now=self.now,
            on_claimed=self.news.claimed,
        )
        return Fetcher(
            self.slots,
            claimer=self.claimer,
            events=FetchWiring(self),
            fast_path=fast_path,
            poll_interval=self._look_every(),
            local_queue_size=self.settings.local_queue_size,
            listener=self.listener,
        )

    def _build_listener(self, database: Database) -> Listener:
        settings = self.settings
        return Listener(
            database=database,
            events=ListenWiring(self),
            proof_within=BEATS_OF_SILENCE * settings.heartbeat_interval if settings.notify else None,
        )

    def _build_recovery(self) -> Recovery:
        return Recovery(
            database=self._database("recovery"),
            timeout=self.settings.worker_timeout,
            heartbeat_interval=self.settings.heartbeat_interval,
            in_contact_since=lambda: self.heartbeat.in_contact_since,
            on_recovered=self.news.recovered,
            on_stale=self.news.stale_locks,
            on_indexes_missed=self.news.indexes_missed,
            worker_id=self._worker_id,
            spared_job_ids=self._atomic_job_ids,
            before_sweep=self._look_at_ledger,
            statistics_retention=self.settings.statistics_retention,
            now=self.now,
            notify=self.settings.notify,
            on_trouble=self.news.trouble,
        )

    def _build_cron(self) -> Cron:
        # Here, as most workers have no crontab, and need not read the parser of one: 15 ms.
        from django_graphile_worker.worker.maintenance.cron import Cron

        return Cron(
            items=self.cron_items,
            database=self._database("cron"),
            schema=self.settings.schema,
            announce=self.news.tell,
            use_local_time=self.settings.use_local_time,
            notify=self.settings.notify,
            on_trouble=self.news.trouble,
        )

    def _troubles(self) -> list[BaseException | None]:
        parts = (self.fetcher, self.releaser, self.heartbeat, self.recovery, self.statistics, self.cron)
        return [part.trouble for part in parts if part is not None]

    def may_claim(self) -> bool:
        return bool(self.tasks) and not self._is_stopping and self.heartbeat.holds_lease

    def may_begin(self, claim: Claim) -> bool:
        """Tell whether the lease holds. After a suspension it may be over, before the heartbeat has noticed it."""
        return self.heartbeat.holds_lease and claim.token.startswith(self.worker_id)

    def _atomic_job_ids(self) -> list[int]:
        running = (job.claim for job in self.executor.running())
        return [claim.id for claim in running if (task := self.directory.task_of(claim.task_id)) and task.atomic]

    def return_jobs(self, units: Sequence[WorkUnit]) -> None:
        """Return jobs that have not begun, and the queues that were claimed with them."""
        queues = [unit.queue for unit in units if unit.queue is not None]
        self.releaser.put_back(list(interrupted(units)), queues)

    def _note_released(self, outcomes: Sequence[Outcome]) -> None:
        self.tally.add(outcomes, self.directory.identifier_of)
        self.news.released(outcomes)

    def _look_at_ledger(self, database: Database) -> None:
        """Stop, as graphile-worker does, when the schema has become one that this version does not know."""
        error = self._breaking_migration(database)
        if error is not None and not self._is_refused:
            self._is_refused = True
            self.news.tell(signals.schema_refused, error=error)
            self.on_refused(error)

    def _breaking_migration(self, database: Database) -> BreakingMigrationError | None:
        try:
            with database.cursor() as cursor:
                return breaking_migration(cursor, schema=self.settings.schema)
        except (errors.InsufficientPrivilege, errors.UndefinedTable):
            # Nothing that this worker needs, but for this.
            return None

    def _look_every(self) -> float:
        interval = self.settings.poll_interval
        return min(interval, ANNOUNCED_AHEAD) if self.settings.listen else interval

    def wake_fetcher(self) -> None:
        self.fetcher.wake()

    def _expect(self, seconds: float) -> None:
        if seconds < self.settings.poll_interval:
            self.fetcher.expect(seconds)

    def _worker_id(self) -> str:
        return self.worker_id

    def _job_of(self, claim: Claim) -> Job:
        run = JobRun(claim, time.monotonic())
        run.task = self.directory.task_of(claim.task_id)
        return run.job

    def channel(self) -> str:
        return f"worker:{self.worker_id}"

    def _lose_lease(self) -> None:
        lost, self.worker_id = self.worker_id, new_worker_id()
        # Another worker may have the jobs that have not begun by now: they must not run here.
        with self.slots.removal_lock:
            self.return_jobs(self.slots.remove_waiting())
        # The same holds for jobs that a claim under way still brings.
        self.fetcher.return_all_jobs()
        self.news.tell(signals.worker_lost_lease, worker_id=lost, new_worker_id=self.worker_id)

    def _metadata(self) -> Mapping[str, Any]:
        return {
            **about_this_process(self._version),
            "database": self.using,
            "installation": self.installation,
            "schema": self.settings.schema,
            "concurrency": self.settings.concurrency,
            "tasks": sorted(self.tasks),
            "is_listening": self.listener is not None and self.listener.is_healthy,
            "is_stopping": self._is_stopping,
            "running": [
                {"job_id": job.claim.id, "task": job.task_identifier, "started_at": job.started_at}
                for job in self.executor.running()
            ],
        }

    def _database(self, part: str, *, deadline: float | None = None) -> Database:
        return database_of(self.using, self.settings, part=part, deadline=deadline)


class PoolWiring:
    """What the pool calls: the executor runs a job, the releaser takes its outcome."""

    def __init__(self, parts: Parts) -> None:
        # The parts' own methods: one more call in between would cost every job.
        self.run = parts.executor.run
        self.may_begin = parts.may_begin
        self.on_outcome = parts.releaser.put
        self.on_queue_done = parts.releaser.put
        self.on_wants_jobs = parts.wake_fetcher
        self.on_thread_end = parts.executor.thread_finished


class FetchWiring:
    """What the fetcher calls."""

    def __init__(self, parts: Parts) -> None:
        self.may_claim = parts.may_claim
        self.return_jobs = parts.return_jobs
        self.on_claimed = parts.news.claimed
        self.on_trouble = parts.news.trouble
        self.on_close = parts.claimer.close


class ListenWiring:
    """What the listener calls."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.channel = parts.channel
        self.request_proof = parts.heartbeat.wake
        self.on_listening = parts.news.listening
        self.on_lost = parts.news.deaf

    def on_migration(self) -> None:
        self._parts.recovery.wake()
