"""The overview page: tiles, charts, tables and health problems."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.charts.chart_data import SPANS, Span
from django_graphile_worker.admin.overview import chart_subject
from django_graphile_worker.admin.overview.chart_subject import Subject
from django_graphile_worker.admin.overview.event_alarms import event_problems
from django_graphile_worker.admin.overview.health import (
    UNSERVED,
    HealthProblem,
    failing_schedules,
    have_dead_rows_stayed,
    health_problems,
    late_schedules,
    many_dead_rows,
)
from django_graphile_worker.admin.overview.overview_charts import ChartFigures, draw_charts
from django_graphile_worker.admin.overview.overview_tasks import TaskFigures, read_figures, task_rows
from django_graphile_worker.admin.overview.overview_tiles import COLUMNS, tiles, workers_tile
from django_graphile_worker.admin.overview.schedule_figures import (
    ScheduleFigures,
    late_names,
    read_schedule_figures,
    schedule_tiles,
)
from django_graphile_worker.admin.overview.task_pages import requested_page, task_page_context
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search.search_query import SearchTerm, waiting_in_queue
from django_graphile_worker.sql import control, events, statistics
from django_graphile_worker.sql.inspection import lock_holders, overview, queue_depths
from django_graphile_worker.sql.inspection.job_search.counts import Count, OldestReady, count_states, oldest_ready
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.overview import oldest_unpaused
from django_graphile_worker.sql.schedules.from_code import KnownCrontab, known_crontabs
from django_graphile_worker.sql.statistics import TASK, Sample

# An older sample says little about the jobs of now.
NEWEST_SAMPLE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class OverviewFigures:
    """The values that the page reads from the database."""

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
    schedules: ScheduleFigures


class OverviewAdmin(PageAdmin):
    """The overview, which sends a fixed number of cheap queries."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        if self.visible_ids(request, alias) is not None:
            return self._restricted(request)
        span = SPANS.get(request.GET.get("span", ""), SPANS["hour"])
        subject = chart_subject.selected_subject(request)
        now = timezone.now()
        figures = _read(alias, span, subject, now, requested_page(request))
        context = {
            "tiles": [
                *tiles(self, request, figures.counts, figures.sample, figures.oldest, figures.holders, now),
                *schedule_tiles(self, request, figures.schedules),
            ],
            "problems": self._problems(request, figures, now),
            "dismiss_url": self.url(request, "event", "dismiss"),
            **self._chart_context(request, figures, span, subject, now),
            "tasks": task_rows(self, request, figures.tasks, figures.sample, span, now),
            **task_page_context(self, request, figures.tasks.page, {"span": span.name, **subject.query}),
            "queues": [self._queue_row(request, queue) for queue in figures.queues],
            "queues_url": self.url(request, "jobqueue"),
            **_table_size(figures.health),
        }
        return self.render(request, "overview.html", context)

    def _restricted(self, request: HttpRequest) -> HttpResponse:
        """Show no figures to users that may not see every job, because the figures cover all jobs."""
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            holders = lock_holders.holders(cursor, schema=schema)
        context = {
            "is_restricted": True,
            "tiles": [workers_tile(self, request, holders)],
            "jobs_url": self.url(request, "job"),
        }
        return self.render(request, "overview.html", context)

    def _problems(self, request: HttpRequest, figures: OverviewFigures, now: datetime) -> list[HealthProblem]:
        is_any_ready = figures.counts[State.READY].number > 0
        backlogs = figures.tasks.backlog_ages
        found = health_problems(figures.holders, backlogs, figures.health, time.time(), is_any_ready=is_any_ready)
        if have_dead_rows_stayed(databases.selected_alias(request), figures.health):
            found.append(many_dead_rows(figures.health))
        late = late_names(figures.known_items, figures.schedules.late, now)
        reported = {problem.event_kind for problem in found}
        # Whether tasks are unserved now is known: the event may be over, and if not, it would be said twice.
        alarms = [alarm for alarm in figures.alarms if alarm.event.kind not in {*reported, UNSERVED}]
        found += [
            *late_schedules(late),
            *failing_schedules(figures.schedules.failing),
            *event_problems(self, request, alarms),
        ]
        return sorted(found, key=lambda problem: problem.level != "error")

    def _chart_context(
        self, request: HttpRequest, figures: OverviewFigures, span: Span, subject: Subject, now: datetime
    ) -> dict[str, Any]:
        names = {TASK: figures.tasks.page.names, **figures.names}
        spans = {"hour": _("Hour"), "day": _("Day"), "week": _("Week")}
        return {
            "charts": draw_charts(figures.charts, span, now),
            "charts_title": subject.title,
            "subject": subject,
            "subject_groups": chart_subject.subject_groups(names, subject),
            "all_jobs_url": self.url(request, "overview", span=span.name),
            "span": span.name,
            "spans": [
                (label, self.url(request, "overview", span=name, **subject.query), name == span.name)
                for name, label in spans.items()
            ],
            "database": request.GET.get(databases.PARAMETER, ""),
        }

    def _queue_row(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> dict[str, Any]:
        return {
            "name": queue.queue_name,
            "number": formatting.capped_number(queue.number, queue_depths.MAX_COUNTED),
            # A queue whose jobs are all due later has no job that waits.
            "oldest": formatting.duration(queue.oldest_seconds if (queue.oldest_seconds or 0.0) > 0.0 else None),
            "is_paused": queue.is_paused,
            "worker_id": None if queue.is_paused else queue.locked_by,
            "is_lost": queue.holder_state == "lost",
            "locked_at": formatting.relative_time(queue.locked_at) if queue.locked_at else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name))),
            "waiting_url": self.url(request, "job", q=waiting_in_queue(queue.queue_name)),
        }


def _read(alias: str, span: Span, subject: Subject, now: datetime, task_page: tuple[int, str]) -> OverviewFigures:
    number, search = task_page
    with databases.reading(alias) as (cursor, schema):
        samples = (
            None
            if subject.kind
            else statistics.read_samples(cursor, schema=schema, period=span.period, since=span.since(now))
        )
        latest = statistics.latest_sample(cursor, schema=schema, newer_than=NEWEST_SAMPLE_SECONDS)
        counts = count_states(cursor, Criteria(), schema=schema)
        return OverviewFigures(
            counts,
            latest or _estimate(cursor, counts, schema),
            _oldest(cursor, schema),
            lock_holders.holders(cursor, schema=schema),
            overview.health(cursor, schema=schema),
            queue_depths.busiest_queues(cursor, schema=schema, timeout=conf.current().worker_timeout),
            ChartFigures(chart_subject.read_counts(cursor, subject, span, now, schema=schema), samples),
            statistics.busiest_names(cursor, schema=schema, period=span.coarse_period, since=span.coarse_since(now)),
            read_figures(cursor, span, now, schema=schema, number=number, search=search),
            events.alarms(cursor, schema=schema),
            known_crontabs(cursor, schema=schema),
            read_schedule_figures(cursor, schema=schema),
        )


def _estimate(cursor: Any, counts: Mapping[State, Count], schema: str) -> Sample | None:
    """Return an estimate if a number was not counted to its end, for a site that no worker has sampled."""
    if any(counts[state].is_more for state in COLUMNS):
        return statistics.estimate_backlog(cursor, schema=schema)
    return None


def _oldest(cursor: Any, schema: str) -> OldestReady | None:
    """Return the job that has been ready for the longest time; jobs of paused work wait because they should."""
    if paused := control.active_pauses(cursor, schema=schema):
        return oldest_unpaused(cursor, paused, schema=schema)
    return oldest_ready(cursor, schema=schema)


def _table_size(health: overview.Health) -> dict[str, str]:
    return {
        "table_size": formatting.byte_size(health.table_bytes),
        # PostgreSQL has no estimate for a table that was never vacuumed.
        "estimate": formatting.number(health.estimated_jobs) if health.estimated_jobs else formatting.EMPTY_VALUE,
        "dead_rows": formatting.number(health.dead_rows),
    }
