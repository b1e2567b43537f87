"""Builds the parts of a worker and connects them: each part gets the objects that it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker import signals
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.registry import Registry, Task
from django_graphile_worker.routing import Place
from django_graphile_worker.worker import late_parts, part_callbacks
from django_graphile_worker.worker.control.control_reader import ControlReader
from django_graphile_worker.worker.control.pauses import Pauses
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.execution.coroutine_executor import CoroutineExecutor
from django_graphile_worker.worker.execution.job_control import JobControl
from django_graphile_worker.worker.fetching.claimer import Claimer
from django_graphile_worker.worker.fetching.fast_claim import FastClaim
from django_graphile_worker.worker.fetching.fast_path import FastPath
from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
from django_graphile_worker.worker.fetching.held_claims import HeldClaims
from django_graphile_worker.worker.fetching.listener import Listener
from django_graphile_worker.worker.fetching.preconnect import database_of
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.job_clock import job_clock
from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat, deadline_of_beats
from django_graphile_worker.worker.maintenance.lease_clock import lease_clock
from django_graphile_worker.worker.maintenance.recovery import Recovery
from django_graphile_worker.worker.maintenance.retention import STATEMENT_DEADLINE, Retention
from django_graphile_worker.worker.maintenance.schema_version import SchemaVersion
from django_graphile_worker.worker.maintenance.unserved_tasks import FIRST_LOOK, UnservedTasks
from django_graphile_worker.worker.parts import Parts
from django_graphile_worker.worker.pool.slot_pool import SlotPool
from django_graphile_worker.worker.recovery_callbacks import RecoveryCallbacks
from django_graphile_worker.worker.release.releaser import Releaser
from django_graphile_worker.worker.release.statements import ReleaseStatements
from django_graphile_worker.worker.reporting.events import WorkerEvents
from django_graphile_worker.worker.reporting.signal_sender import SignalSender
from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer
from django_graphile_worker.worker.reporting.statistics_recorder import StatisticsRecorder

if TYPE_CHECKING:
    from datetime import timedelta

    from django_graphile_worker.crontab import CronItem
    from django_graphile_worker.worker.fetching.new_tasks import NewTasks
    from django_graphile_worker.worker.maintenance.cron import Cron
    from django_graphile_worker.worker.task_selection import FindTask

# A listener that has received no notification for this many heartbeat intervals connects again: notifications do not
# arrive on its connection.
BEATS_OF_SILENCE = 2.5
# Seconds. A job that falls due later than this is added without a notification, so a worker that listens must poll at
# least this often.
ANNOUNCED_AHEAD = 10.0


def build_parts(
    place: Place,
    *,
    tasks: Mapping[str, Task[Any, Any]],
    find_task: FindTask | None = None,
    registry: Registry,
    cron_items: Sequence[CronItem] | None = (),
    every: Mapping[str, timedelta] | None = None,
    version: str = "",
    sender: type[Any],
    on_refused: Callable[[BreakingMigrationError], None] = lambda error: None,
) -> Parts:
    """Build the parts of one worker, in an order in which each part is built after the parts that it uses.

    ``cron_items`` is None for a worker that fires neither a crontab nor schedules, ``every`` has the intervals of tasks
    in the code. ``sender`` is the sender of the worker's signals. ``on_refused`` is called once, when the worker cannot
    continue with the schema: then the caller must stop the worker.
    """
    parts = Parts(place, tasks=tasks, registry=registry, cron_items=cron_items, every=every, version=version)
    _build_reporting(parts, sender)
    _build_execution(parts, _new_tasks(find_task))
    parts.task_reports = None if find_task is None else late_parts.task_reports_of(parts)
    parts.heartbeat = _build_heartbeat(parts)
    parts.pauses = Pauses(
        part_callbacks.PauseCallbacks(parts, lambda: late_parts.pause_endings_of(parts)),
        identifier_of=parts.directory.identifier_of,
    )
    parts.control_reader = ControlReader(late_parts.control_callbacks(parts, registry))
    parts.listener = _build_listener(parts) if parts.settings.listen else None
    parts.fetcher = _build_fetcher(parts)
    parts.directory.on_limited = lambda: late_parts.use_limits(parts)
    parts.schema_version = _build_schema_version(parts, on_refused)
    parts.recovery = _build_recovery(parts)
    parts.retention = _build_retention(parts)
    parts.statistics = _build_statistics(parts)
    parts.cron = _build_cron(parts) if parts.cron_items else None
    if parts.every:
        late_parts.scheduler_of(parts, registry)
    parts.unserved_tasks = UnservedTasks(
        database=_database(parts, "unserved-tasks"),
        timeout=parts.settings.worker_timeout,
        on_found=parts.events.tasks_unserved,
        first_look=FIRST_LOOK,
    )
    return parts


def _build_reporting(parts: Parts, sender: type[Any]) -> None:
    parts.signal_sender = SignalSender(sender, before_sending=lambda: parts.events.check_outage())
    parts.statistics_buffer = StatisticsBuffer()
    parts.events = WorkerEvents(
        parts.signal_sender,
        worker_id=lambda: parts.worker_id,
        database=parts.place.using,
        installation=parts.place.installation,
        job_of=parts.job_of,
        troubles=parts.troubles,
    )


def _new_tasks(find_task: FindTask | None) -> NewTasks | None:
    if find_task is None:
        return None
    # Late import: only projects with Django tasks need it.
    from django_graphile_worker.worker.fetching.new_tasks import NewTasks

    return NewTasks(find_task)


def _build_execution(parts: Parts, new_tasks: NewTasks | None) -> None:
    """Build the parts that a job passes through: what a claim needs, the executor, the releaser and the slot pool."""
    settings, place = parts.settings, parts.place
    parts.now = job_clock(use_local_time=settings.use_local_time)
    parts.claim_database = _database(parts, "fetcher")
    parts.directory = TaskDirectory(parts.claim_database, parts.tasks, new_tasks=new_tasks)
    parts.forbidden_flags = ForbiddenFlags(settings)
    parts.held = HeldClaims(
        parts.claim_database,
        worker_id=lambda: parts.worker_id,
        statement_timeout=settings.statement_timeout,
        notify=settings.notify,
        keeping=parts.result_keeping,
        on_cancelled=lambda jobs: parts.events.cancelled_jobs_recovered(jobs),
    )
    parts.executor = CoroutineExecutor(
        settings=settings,
        using=place.using,
        installation=place.installation,
        tasks=parts.directory.task_of,
        build_progress=lambda: late_parts.progress_of(parts),
        control=JobControl(
            server_time=parts.server_time,
            # Django tasks are found while the worker runs.
            has_expiring_tasks=new_tasks is not None or any(task.expires is not None for task in parts.tasks.values()),
            on_queue_pause=parts.return_rest_of_queue,
        ),
        build_deadlines=lambda: late_parts.stops_of(parts).deadlines,
    )
    parts.directory.on_tasks = parts.executor.note_tasks
    parts.releaser = _build_releaser(parts)
    parts.slots = SlotPool(settings.concurrency, part_callbacks.PoolCallbacks(parts))
    parts.executor.event_loop.threads = parts.slots.coroutines


def _build_releaser(parts: Parts) -> Releaser:
    parts.release_database = _database(parts, "releaser")
    statements = ReleaseStatements(
        parts.release_database, now=parts.now, settings=parts.settings, keeping=parts.result_keeping
    )
    parts.sender = statements.sender
    return Releaser(
        statements=statements, events=part_callbacks.ReleaserCallbacks(parts), on_trouble=parts.events.database_trouble
    )


def _build_heartbeat(parts: Parts) -> Heartbeat:
    settings = parts.settings
    deadline = deadline_of_beats(settings.statement_timeout, settings.worker_timeout)
    return Heartbeat(
        database=_database(parts, "heartbeat", deadline=deadline),
        events=part_callbacks.HeartbeatCallbacks(parts),
        interval=settings.heartbeat_interval,
        timeout=settings.worker_timeout,
        clock=lease_clock,
        hears_requests=lambda: parts.listener is not None and parts.listener.is_healthy,
        on_trouble=parts.events.database_trouble,
    )


def _build_listener(parts: Parts) -> Listener:
    settings = parts.settings
    return Listener(
        database=parts.claim_database,
        events=part_callbacks.ListenerCallbacks(parts),
        proof_within=BEATS_OF_SILENCE * settings.heartbeat_interval if settings.notify else None,
    )


def _build_fetcher(parts: Parts) -> Fetcher:
    settings = parts.settings
    poll_interval = min(settings.poll_interval, ANNOUNCED_AHEAD) if settings.listen else settings.poll_interval
    parts.fast_claim = FastClaim(parts.claim_database)
    parts.claimer = Claimer(
        parts.claim_database,
        directory=parts.directory,
        held=parts.held,
        forbidden_flags=parts.forbidden_flags,
        now=parts.now,
        on_answer=parts.fast_claim.learn_from,
    )
    parts.fast_path = _build_fast_path(parts)
    return Fetcher(
        parts.slots,
        claimer=parts.claimer,
        events=part_callbacks.FetcherCallbacks(parts),
        fast_path=parts.fast_path,
        poll_interval=poll_interval,
        local_queue_size=settings.local_queue_size,
        listener=parts.listener,
    )


def _build_fast_path(parts: Parts) -> FastPath:
    return FastPath(
        parts.fast_claim,
        pool=parts.slots,
        directory=parts.directory,
        held=parts.held,
        forbidden_flags=parts.forbidden_flags,
        now=parts.now,
        on_claiming=parts.events.claim_started,
        on_nothing_claimed=parts.events.nothing_claimed,
        on_claimed=parts.events.jobs_claimed,
        is_scan_quick=lambda: parts.claimer.scan.is_quick,
    )


def _build_schema_version(parts: Parts, on_refused: Callable[[BreakingMigrationError], None]) -> SchemaVersion:
    def refuse(error: BreakingMigrationError) -> None:
        parts.events.send(signals.schema_refused, error=error)
        on_refused(error)

    settings = parts.settings
    # A check waits for the next recovery, which follows within a quarter of the timeout.
    return SchemaVersion(schema=settings.schema, interval=settings.worker_timeout * 0.75, on_refused=refuse)


def _build_recovery(parts: Parts) -> Recovery:
    settings = parts.settings
    return Recovery(
        database=_database(parts, "recovery"),
        events=RecoveryCallbacks(parts),
        timeout=settings.worker_timeout,
        heartbeat_interval=settings.heartbeat_interval,
        statistics_retention=settings.statistics_retention,
        events_retention=settings.events_retention,
        notify=settings.notify,
        on_trouble=parts.events.database_trouble,
    )


def _build_retention(parts: Parts) -> Retention:
    return Retention(
        database=_database(parts, "retention", deadline=STATEMENT_DEADLINE),
        history=parts.settings.history,
        is_used=parts.keeps_anything,
        now=parts.now,
        limit_numbers=lambda: None if parts.limited is None else parts.limited.tasks.numbers,
        on_refused=parts.events.database_trouble,
    )


def _build_statistics(parts: Parts) -> StatisticsRecorder:
    return StatisticsRecorder(
        database=_database(parts, "statistics"),
        buffer=parts.statistics_buffer,
        interval=parts.settings.heartbeat_interval,
        worker_id=lambda: parts.worker_id,
        on_trouble=parts.events.database_trouble,
    )


def _build_cron(parts: Parts) -> Cron:
    # Late import: most workers have no crontab, and save the 15 ms that its parser takes to load.
    from django_graphile_worker.worker.maintenance.cron import Cron

    settings = parts.settings
    return Cron(
        items=parts.cron_items,
        database=_database(parts, "cron"),
        schema=settings.schema,
        send=parts.events.send,
        use_local_time=settings.use_local_time,
        notify=settings.notify,
        on_trouble=parts.events.database_trouble,
    )


def _database(parts: Parts, part: str, *, deadline: float | None = None) -> Database:
    return database_of(parts.place.using, parts.settings, part=part, deadline=deadline)
