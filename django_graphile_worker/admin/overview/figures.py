"""What the overview and the page of a task read from the database, and the cache that open pages share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar, cast

from django.core.cache import cache
from django.db import connections
from django.http import HttpRequest
from django.utils import timezone

from django_graphile_worker import __version__, conf
from django_graphile_worker.admin import databases, formatting, refreshed_regions
from django_graphile_worker.admin.charts import Span
from django_graphile_worker.admin.overview.activity import ChartFigures, Subject
from django_graphile_worker.admin.overview.readings import BoundedReader, Reading
from django_graphile_worker.admin.overview.tasks import TaskFigures, read_tasks
from django_graphile_worker.admin.overview.tiles import COLUMNS, UNCOUNTED
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

# Pages that refresh themselves show figures of at least this age, which the first of them has read, and three times as
# long as that took.
CACHE_SECONDS = 2.0
TIMES_OF_READING = 3
# While one request reads, the others show figures of up to this age.
LONGEST_SHOWN = 30.0
# How old the figures may be that stand in for those that take too long.
OLDEST_READING = 3600
# An older sample says little about the jobs of now, but more than none.
NEWEST_SAMPLE_SECONDS = 180.0
# What selects the server and the database, in the settings of a database and in their OPTIONS.
PLACE = ("HOST", "PORT", "NAME", "USER")
PLACE_IN_OPTIONS = ("service", "host", "hostaddr", "port", "dbname", "user", "options")

Figures = TypeVar("Figures", "OverviewFigures", "FiguresOfTask")


@dataclass(frozen=True, slots=True)
class OverviewFigures:
    """The figures of all jobs, when they were read, and what the clock of this server said then."""

    now: datetime
    reader: BoundedReader
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
    reader: BoundedReader
    counts: Mapping[State, Count]
    oldest: OldestReady | None
    holders: Sequence[lock_holders.Holder]
    charts: ChartFigures
    errors: Sequence[ErrorGroup]


class Shared(NamedTuple):
    """Figures in the cache, when a request began to read them, and until when no other reads them again."""

    figures: Any
    read_at: float
    fresh_until: float


def shared(
    request: HttpRequest, alias: str, asked: tuple[object, ...], read: Callable[[Mapping[str, Reading]], Figures]
) -> Figures:
    """Return the figures that were asked for, read by this request or, for a refresh, by another of the last seconds.

    A page that is opened, also after an action, reads them itself. The figures are those of all jobs, and have neither
    language nor time zone: who may see them, and how they look, is decided with each request.
    """
    database = connections[alias].settings_dict
    options = database.get("OPTIONS") or {}
    place = [[database.get(name) for name in PLACE], [options.get(name) for name in PLACE_IN_OPTIONS]]
    about = (__version__, alias, place, conf.current().schema, *asked)
    key = f"graphile_worker:{blake2b(repr(about).encode(), digest_size=16).hexdigest()}"
    lock, began, found = f"{key}:lock", time.time(), _cached(key)
    is_refresh = refreshed_regions.is_refresh(request)
    if is_refresh and found:
        if began < found.fresh_until:
            return cast(Figures, found.figures)
        if began < found.read_at + LONGEST_SHOWN and not _is_added(lock):
            return cast(Figures, found.figures)
    try:
        figures = read(found.figures.reader.readings if found else {})
        ended = time.time()
        fresh_until = ended + max(CACHE_SECONDS, TIMES_OF_READING * (ended - began))
        with suppress(Exception):
            cache.set(key, Shared(figures, began, fresh_until), OLDEST_READING)
    finally:
        if is_refresh:
            with suppress(Exception):
                cache.delete(lock)
    return figures


# The page must open while the cache fails.
def _cached(key: str) -> Shared | None:
    with suppress(Exception):
        found: Shared | None = cache.get(key)
        return found
    return None


def _is_added(lock: str) -> bool:
    with suppress(Exception):
        return bool(cache.add(lock, True, LONGEST_SHOWN))
    return True


def read_overview(
    alias: str,
    span: Span,
    subject: Subject,
    asked_tasks: tuple[int, str],
    paused: Sequence[Pause],
    last: Mapping[str, Reading],
) -> OverviewFigures:
    now, since, period = timezone.now(), span.coarse_since(timezone.now()), span.coarse_period
    with databases.reading(alias) as (cursor, schema):
        health, app_clock = overview.health(cursor, schema=schema), time.time()
        samples = (
            None
            if subject.kind
            else statistics.read_samples(cursor, schema=schema, period=span.period, since=span.since(now))
        )
        sample = statistics.latest_sample(cursor, schema=schema, newer_than=OLDEST_READING)
        failing, missed, late = _schedules(cursor, schema)
        holders = lock_holders.holders(cursor, schema=schema)
        charts = ChartFigures(_counts(cursor, subject, span, now, schema), samples)
        names = statistics.busiest_names(cursor, schema=schema, period=period, since=since)
        totals = statistics.read_totals(cursor, schema=schema, period=period, since=since)
        alarms = events.alarms(cursor, schema=schema)
        known_items = known_crontabs(cursor, schema=schema)
    with BoundedReader(alias, last) as reader:
        counts = reader.read("counts", _states(Criteria()), UNCOUNTED)
        return OverviewFigures(
            now,
            reader,
            app_clock,
            counts,
            _sample(reader, sample, counts, now),
            _oldest(reader, paused),
            holders,
            health,
            reader.read("queues", _queues, ()),
            charts,
            names,
            read_tasks(reader, totals, holders, span, now, asked_tasks),
            alarms,
            known_items,
            failing,
            missed,
            late,
        )


def read_task(
    alias: str, span: Span, subject: Subject, paused: Sequence[Pause], last: Mapping[str, Reading]
) -> FiguresOfTask:
    now, tasks = timezone.now(), (subject.name,)
    with databases.reading(alias) as (cursor, schema):
        holders = lock_holders.holders(cursor, schema=schema)
        charts = ChartFigures(_counts(cursor, subject, span, now, schema), None)

    def errors(cursor: Any, schema: str) -> Sequence[ErrorGroup]:
        return error_groups.error_groups(cursor, schema=schema, tasks=tasks)

    with BoundedReader(alias, last) as reader:
        counts = reader.read("counts", _states(Criteria(tasks=tasks)), UNCOUNTED)
        oldest = _oldest(reader, paused, tasks)
        return FiguresOfTask(now, reader, counts, oldest, holders, charts, reader.read("errors", errors, ()))


def _states(criteria: Criteria) -> Callable[[Any, str], Mapping[State, Count]]:
    return lambda cursor, schema: count_states(cursor, criteria, schema=schema)


def _queues(cursor: Any, schema: str) -> Sequence[queue_depths.QueueDepth]:
    return queue_depths.busiest_queues(cursor, schema=schema, timeout=conf.current().worker_timeout)


def _counts(cursor: Any, subject: Subject, span: Span, now: datetime, schema: str) -> statistics.NamedRows:
    kind, period, since = subject.kind or ALL, span.period, span.since(now)
    return statistics.read(cursor, kind, subject.name, schema=schema, period=period, since=since)


def _sample(
    reader: BoundedReader, sample: Sample | None, counts: Mapping[State, Count], now: datetime
) -> Sample | None:
    """Return the latest sample; if it is old and a number was not counted to its end, an estimate of now."""
    is_new = sample is not None and (now - formatting.aware(sample.sampled_at)).total_seconds() < NEWEST_SAMPLE_SECONDS
    if is_new or not any(counts[state].is_more for state in COLUMNS):
        return sample
    return reader.read("estimate", lambda cursor, schema: statistics.estimate_backlog(cursor, schema=schema), sample)


def _oldest(reader: BoundedReader, paused: Sequence[Pause], tasks: tuple[str, ...] = ()) -> OldestReady | None:
    """Return the job that has been ready for the longest time; jobs of paused work wait because they should."""

    def read(cursor: Any, schema: str) -> OldestReady | None:
        if paused:
            return overview.oldest_unpaused(cursor, paused, schema=schema, tasks=tasks)
        return oldest_ready(cursor, schema=schema, tasks=tasks)

    return reader.read("oldest", read, None)


def _schedules(cursor: Any, schema: str) -> tuple[int, int, Sequence[LateSchedule]]:
    """Return how many schedules fail, how many missed times in the last day, and those that are late."""
    names = [item.name for item in read_crontab()[0]]
    if not names and not listing.is_any(cursor, schema=schema):
        return 0, 0, ()
    counts = listing.counts(cursor, schema=schema, crontab_identifiers=names)
    return counts.failing, counts.missed, listing.late(cursor, schema=schema) if counts.late else ()
