"""What the overview and the page of a task read from the database, and the cache that open pages share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, TypeVar

from django.core.cache import cache
from django.db import connections
from django.http import HttpRequest
from django.utils import timezone

from django_graphile_worker import __version__, conf
from django_graphile_worker.admin import databases, refreshed_regions
from django_graphile_worker.admin.charts import Span
from django_graphile_worker.admin.overview.activity import ChartFigures, Subject
from django_graphile_worker.admin.overview.tasks import TaskFigures, read_tasks
from django_graphile_worker.admin.overview.tiles import COLUMNS
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.sql import events, statistics
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.inspection import error_groups, lock_holders, overview, queue_depths
from django_graphile_worker.sql.inspection.error_groups import ErrorGroup
from django_graphile_worker.sql.inspection.job_list import (
    Count,
    Criteria,
    OldestReady,
    State,
    count_states,
    oldest_ready,
)
from django_graphile_worker.sql.schedules import listing
from django_graphile_worker.sql.schedules.from_code import KnownCrontab, known_crontabs
from django_graphile_worker.sql.schedules.listing import LateSchedule
from django_graphile_worker.sql.statistics import ALL, Sample

# Pages that refresh themselves show figures of up to this age, which the first of them has read.
CACHE_SECONDS = 2
# An older sample says little about the jobs of now.
NEWEST_SAMPLE_SECONDS = 180.0

Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True)
class OverviewFigures:
    """The figures of all jobs, when they were read, and what the clock of this server said then."""

    now: datetime
    app_clock: float
    counts: Mapping[State, Count]
    sample: Sample | None
    oldest: OldestReady | None
    holders: Sequence[lock_holders.Holder]
    health: overview.Health
    queues: Sequence[queue_depths.QueueDepth]
    charts: ChartFigures
    names: Mapping[str, Sequence[str]]
    tasks: TaskFigures
    alarms: Sequence[events.Alarm]
    known_items: Mapping[str, KnownCrontab]
    failing_schedules: int
    schedules_that_missed: int
    late_schedules: Sequence[LateSchedule]


@dataclass(frozen=True, slots=True)
class FiguresOfTask:
    """The figures of the jobs of one task, and when they were read."""

    now: datetime
    counts: Mapping[State, Count]
    oldest: OldestReady | None
    holders: Sequence[lock_holders.Holder]
    charts: ChartFigures
    errors: Sequence[ErrorGroup]


def shared(request: HttpRequest, alias: str, asked: tuple[object, ...], read: Callable[[], Figures]) -> Figures:
    """Return the figures that were asked for, read by this request or, for a refresh, by another of the last seconds.

    A page that is opened, also after an action, reads them itself. The figures are those of all jobs, and have neither
    language nor time zone: who may see them, and how they look, is decided with each request.
    """
    database = connections[alias].settings_dict
    place = [database.get(name) for name in ("HOST", "PORT", "NAME", "USER")]
    about = (__version__, alias, place, conf.current().schema, *asked)
    key = f"graphile_worker:{blake2b(repr(about).encode(), digest_size=16).hexdigest()}"
    # The page must open while the cache fails.
    if refreshed_regions.is_refresh(request):
        with suppress(Exception):
            found: Figures | None = cache.get(key)
            if found is not None:
                return found
    figures = read()
    with suppress(Exception):
        cache.set(key, figures, CACHE_SECONDS)
    return figures


def read_overview(
    alias: str, span: Span, subject: Subject, asked_tasks: tuple[int, str], paused: Sequence[Pause]
) -> OverviewFigures:
    now = timezone.now()
    with databases.reading(alias) as (cursor, schema):
        health, app_clock = overview.health(cursor, schema=schema), time.time()
        samples = (
            None
            if subject.kind
            else statistics.read_samples(cursor, schema=schema, period=span.period, since=span.since(now))
        )
        sample = statistics.latest_sample(cursor, schema=schema, newer_than=NEWEST_SAMPLE_SECONDS)
        counts = count_states(cursor, Criteria(), schema=schema)
        failing, missed, late = _schedules(cursor, schema)
        return OverviewFigures(
            now,
            app_clock,
            counts,
            sample or _estimate(cursor, counts, schema),
            _oldest(cursor, paused, schema),
            lock_holders.holders(cursor, schema=schema),
            health,
            queue_depths.busiest_queues(cursor, schema=schema, timeout=conf.current().worker_timeout),
            ChartFigures(_counts(cursor, subject, span, now, schema), samples),
            statistics.busiest_names(cursor, schema=schema, period=span.coarse_period, since=span.coarse_since(now)),
            read_tasks(cursor, span, now, asked_tasks, schema=schema),
            events.alarms(cursor, schema=schema),
            known_crontabs(cursor, schema=schema),
            failing,
            missed,
            late,
        )


def read_task(alias: str, span: Span, subject: Subject, paused: Sequence[Pause]) -> FiguresOfTask:
    now, tasks = timezone.now(), (subject.name,)
    with databases.reading(alias) as (cursor, schema):
        return FiguresOfTask(
            now,
            count_states(cursor, Criteria(tasks=tasks), schema=schema),
            _oldest(cursor, paused, schema, tasks),
            lock_holders.holders(cursor, schema=schema),
            ChartFigures(_counts(cursor, subject, span, now, schema), None),
            error_groups.error_groups(cursor, schema=schema, tasks=tasks),
        )


def _counts(cursor: Any, subject: Subject, span: Span, now: datetime, schema: str) -> statistics.NamedRows:
    kind, period, since = subject.kind or ALL, span.period, span.since(now)
    return statistics.read(cursor, kind, subject.name, schema=schema, period=period, since=since)


def _estimate(cursor: Any, counts: Mapping[State, Count], schema: str) -> Sample | None:
    """Return an estimate if a number was not counted to its end, for a site that no worker has sampled."""
    if any(counts[state].is_more for state in COLUMNS):
        return statistics.estimate_backlog(cursor, schema=schema)
    return None


def _oldest(cursor: Any, paused: Sequence[Pause], schema: str, tasks: tuple[str, ...] = ()) -> OldestReady | None:
    """Return the job that has been ready for the longest time; jobs of paused work wait because they should."""
    if paused:
        return overview.oldest_unpaused(cursor, paused, schema=schema, tasks=tasks)
    return oldest_ready(cursor, schema=schema, tasks=tasks)


def _schedules(cursor: Any, schema: str) -> tuple[int, int, Sequence[LateSchedule]]:
    """Return how many schedules fail, how many missed times in the last day, and those that are late."""
    names = [item.name for item in read_crontab()[0]]
    if not names and not listing.is_any(cursor, schema=schema):
        return 0, 0, ()
    counts = listing.counts(cursor, schema=schema, crontab_identifiers=names)
    return counts.failing, counts.missed, listing.late(cursor, schema=schema) if counts.late else ()
