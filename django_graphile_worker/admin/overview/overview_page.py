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
from django_graphile_worker.admin.charts import chart_data
from django_graphile_worker.admin.late_schedules import late_items
from django_graphile_worker.admin.overview.event_alarms import event_problems
from django_graphile_worker.admin.overview.health import (
    HealthProblem,
    health_problems,
    is_alive,
    known_tasks,
    late_schedules,
)
from django_graphile_worker.admin.overview.overview_charts import draw_charts
from django_graphile_worker.admin.overview.overview_tasks import TaskFigures, read_figures, task_rows
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.recurring import read_crontab
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.crontabs import KnownCrontab, known_crontabs
from django_graphile_worker.sql.inspection import events, lock_holders, overview, queue_depths
from django_graphile_worker.sql.inspection.counts import Count, count_states, earliest
from django_graphile_worker.sql.inspection.criteria import Criteria, State
from django_graphile_worker.sql.statistics import ALL_TASKS, Row

# If the oldest ready job has waited for longer than this, its tile is highlighted.
LATE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, its label, and the address of the page with its details."""

    label: str
    value: str
    url: str
    css_class: str = ""


@dataclass(frozen=True, slots=True)
class OverviewFigures:
    """The values that the page reads from the database."""

    counts: dict[State, Count]
    oldest_ready: datetime | None
    holders: Sequence[lock_holders.Holder]
    health: overview.Health
    queues: Sequence[queue_depths.QueueDepth]
    statistics: Sequence[Row]
    tasks: TaskFigures
    alarms: Sequence[events.Alarm]
    schedules: Mapping[str, KnownCrontab]


class OverviewAdmin(PageAdmin):
    """The overview, which sends a fixed number of cheap queries."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if self.visible_ids(request, databases.selected_alias(request)) is not None:
            return self._restricted(request)
        span = chart_data.SPANS.get(request.GET.get("span", ""), chart_data.SPANS["hour"])
        task = request.GET.get("task", "").replace("\x00", "") or None
        now = timezone.now()
        figures = _read(databases.selected_alias(request), span, task, now)
        context = {
            "tiles": self._tiles(request, figures, now),
            "problems": self._problems(request, figures, now),
            "dismiss_url": self.url(request, "event", "dismiss"),
            "charts": draw_charts(chart_data.rows_by_period(figures.statistics, span, now), span),
            "spans": self._spans(request, span, task),
            "span": span.name,
            "task": task,
            "all_tasks_url": self.url(request, "overview", span=span.name),
            "tasks": task_rows(self, request, figures.tasks, span, now),
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
            "tiles": [self._workers_tile(request, holders)],
            "jobs_url": self.url(request, "job"),
        }
        return self.render(request, "overview.html", context)

    def _tiles(self, request: HttpRequest, figures: OverviewFigures, now: datetime) -> list[Tile]:
        states = {
            State.READY: _("Ready"),
            **({State.LIMITED: _("Limited")} if figures.counts[State.LIMITED].number else {}),
            State.SCHEDULED: _("Scheduled"),
            State.RUNNING: _("Running"),
            State.RETRYING: _("Retrying"),
            State.FAILED: _("Failed"),
        }
        tiles = [self._state_tile(request, state, label, figures.counts) for state, label in states.items()]
        oldest_tile = _oldest_ready_tile(_seconds_since(figures.oldest_ready, now))
        return [tiles[0], oldest_tile, *tiles[1:], self._workers_tile(request, figures.holders)]

    def _state_tile(self, request: HttpRequest, state: State, label: str, counts: dict[State, Count]) -> Tile:
        css_class = f"gw-tile-{state.value}" if counts[state].number else "gw-tile-zero"
        return Tile(label, formatting.count(counts[state]), self.url(request, "job", state=state.value), css_class)

    def _workers_tile(self, request: HttpRequest, holders: Sequence[lock_holders.Holder]) -> Tile:
        alive = sum(is_alive(holder) for holder in holders)
        return Tile(_("Workers alive"), str(alive), self.url(request, "worker"), "" if alive else "gw-tile-failed")

    def _problems(self, request: HttpRequest, figures: OverviewFigures, now: datetime) -> list[HealthProblem]:
        is_any_ready = figures.counts[State.READY].number > 0
        backlogs = figures.tasks.backlog_ages
        found = health_problems(figures.holders, backlogs, figures.health, time.time(), is_any_ready=is_any_ready)
        late = late_items(read_crontab()[0], figures.schedules, now)
        found += [*late_schedules(late), *event_problems(self, request, figures.alarms)]
        return sorted(found, key=lambda problem: problem.level != "error")

    def _spans(self, request: HttpRequest, current: chart_data.Span, task: str | None) -> list[tuple[str, str, bool]]:
        names = {"hour": _("Hour"), "day": _("Day"), "week": _("Week")}
        return [
            (label, self.url(request, "overview", span=name, task=task), name == current.name)
            for name, label in names.items()
        ]

    def _queue_row(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> dict[str, Any]:
        return {
            "name": queue.queue_name,
            "number": formatting.capped_number(queue.number, queue_depths.MOST_COUNTED),
            "oldest": formatting.duration(queue.oldest_seconds),
            "worker_id": queue.locked_by,
            "is_lost": queue.holder_state == "lost",
            "locked_at": formatting.relative_time(queue.locked_at) if queue.locked_at else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name)), state=State.READY.value),
        }


def _read(alias: str, span: chart_data.Span, task: str | None, now: datetime) -> OverviewFigures:
    with databases.reading(alias) as (cursor, schema):
        counts = count_states(cursor, Criteria(), schema=schema)
        oldest_ready = earliest(cursor, State.READY, schema=schema)
        holders = lock_holders.holders(cursor, schema=schema)
        health = overview.health(cursor, schema=schema)
        queues = queue_depths.busiest_queues(cursor, schema=schema, timeout=conf.current().worker_timeout)
        rows = statistics.read(cursor, schema=schema, period=span.period, since=span.since(now), task=task or ALL_TASKS)
        tasks = read_figures(cursor, known_tasks(holders), span, now, schema=schema)
        alarms = events.alarms(cursor, schema=schema)
        schedules = known_crontabs(cursor, schema=schema)
    return OverviewFigures(counts, oldest_ready, holders, health, queues, rows, tasks, alarms, schedules)


def _oldest_ready_tile(seconds: float | None) -> Tile:
    is_late = seconds is not None and seconds > LATE_SECONDS
    return Tile(_("Oldest ready job"), formatting.duration(seconds, 1), "", "gw-tile-late" if is_late else "")


def _seconds_since(value: datetime | None, now: datetime) -> float | None:
    if value is None:
        return None
    began, ended = [timezone.make_aware(each) if timezone.is_naive(each) else each for each in (value, now)]
    return max(0.0, (ended - began).total_seconds())


def _table_size(health: overview.Health) -> dict[str, str]:
    return {
        "table_size": formatting.byte_size(health.table_bytes),
        # PostgreSQL has no estimate for a table that was never vacuumed.
        "estimate": formatting.number(health.estimated_jobs) if health.estimated_jobs else formatting.EMPTY_VALUE,
        "dead_rows": formatting.number(health.dead_rows),
    }
