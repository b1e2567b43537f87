"""The parts of a worker that few workers need. Each is built when it is first needed, once."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from django_graphile_worker.worker.fetching.preconnect import database_of
from django_graphile_worker.worker.part_callbacks import ControlCallbacks, StopCallbacks
from django_graphile_worker.worker.parts import Parts
from django_graphile_worker.worker.task_selection import any_task_finder

if TYPE_CHECKING:
    from django_graphile_worker.registry import Registry
    from django_graphile_worker.worker.control.pause_endings import PauseEndings
    from django_graphile_worker.worker.control.stops import Stops
    from django_graphile_worker.worker.reporting.progress_writer import ProgressWriter
    from django_graphile_worker.worker.scheduling.rounds import Rounds
    from django_graphile_worker.worker.scheduling.scheduler import Scheduler
    from django_graphile_worker.worker.task_reports import TaskReports

# Several jobs may need a part at the same moment.
_building = Lock()


def progress_of(parts: Parts) -> ProgressWriter:
    """Return the writer of progress."""
    # Late import: few tasks report their progress.
    from django_graphile_worker.worker.reporting.progress_writer import ProgressWriter

    with _building:
        if parts.progress is None:
            parts.progress = ProgressWriter(
                database=database_of(parts.place.using, parts.settings, part="progress"),
                now=parts.now,
                on_trouble=parts.events.database_trouble,
            )
        return parts.progress


def task_reports_of(parts: Parts) -> TaskReports:
    """Return what reports the ends of Django tasks to their framework."""
    # Late import: only projects with Django tasks need it.
    from django_graphile_worker.worker.task_reports import TaskReports

    return TaskReports(
        task_of=parts.directory.task_of,
        tasks=lambda: parts.directory.tasks,
        call=parts.signal_sender.call,
    )


def stops_of(parts: Parts) -> Stops:
    """Return the stops of runs."""
    # Late import: few runs are stopped.
    from django_graphile_worker.worker.control.stops import Stops

    with _building:
        if parts.stops is None:
            parts.stops = Stops(StopCallbacks(parts), grace=parts.settings.stop_grace)
        return parts.stops


def pause_endings_of(parts: Parts) -> PauseEndings:
    """Return the service that ends pauses."""
    # Late import: few workers see a pause that has an end.
    from django_graphile_worker.worker.control.pause_endings import PauseEndings

    with _building:
        if parts.pause_endings is None:
            parts.pause_endings = PauseEndings(
                database=database_of(parts.place.using, parts.settings, part="pauses"),
                now=parts.now,
                on_ended=parts.events.work_resumed,
                on_settled=parts.heartbeat.read_control_soon,
                on_trouble=parts.events.database_trouble,
            )
        return parts.pause_endings


def control_callbacks(parts: Parts, registry: Registry) -> ControlCallbacks:
    """Return what the reader of requests calls: it builds parts when something is first asked of them."""
    return ControlCallbacks(parts, stops=lambda: stops_of(parts), scheduler=lambda: scheduler_of(parts, registry))


def scheduler_of(parts: Parts, registry: Registry) -> Scheduler:
    """Return the service that fires schedules. ``registry`` has all tasks, also those that this worker does not run."""
    # Late import: many workers never see a schedule.
    from django_graphile_worker.worker.scheduling.scheduler import Scheduler

    with _building:
        if parts.scheduler is None:
            parts.scheduler = Scheduler(
                build_rounds=lambda: _rounds(parts, registry), on_trouble=parts.events.database_trouble
            )
            if parts.is_stopping:
                parts.scheduler.stop()
        return parts.scheduler


def _rounds(parts: Parts, registry: Registry) -> Rounds:
    """Return what fires schedules. Called on the thread of the service: no heartbeat and no job waits for it."""
    # Late import: as above. Loading the parser of cron lines takes 12 ms.
    from django_graphile_worker.worker.scheduling.known_tasks import KnownTasks
    from django_graphile_worker.worker.scheduling.rounds import Rounds

    settings = parts.settings
    return Rounds(
        database=database_of(parts.place.using, settings, part="schedules"),
        schema=settings.schema,
        tasks=KnownTasks(registry, any_task_finder()),
        every=parts.every,
        now=parts.now,
        notify=settings.notify,
        send=parts.events.send,
        on_trouble=parts.events.database_trouble,
    )


def use_limits(parts: Parts) -> None:
    """Have the worker sort, claim and free limited jobs from now on."""
    # Late import: most workers have no task with limits.
    from django_graphile_worker.worker.limited.limited_work import LimitedWork

    with _building:
        if parts.limited is None:
            limited = LimitedWork(
                parts,
                keeper_database=database_of(parts.place.using, parts.settings, part="limits"),
                releaser_database=parts.release_database,
                fast_path=parts.fast_path,
            )
            parts.use_limits(limited)
