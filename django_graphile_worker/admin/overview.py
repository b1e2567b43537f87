"""The first page: is it healthy?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from django_graphile_worker.admin import chart_data, charts, databases, formatting
from django_graphile_worker.admin import health as alarms
from django_graphile_worker.admin.overview_tasks import read_figures, task_lines
from django_graphile_worker.admin.pages import Page, page
from django_graphile_worker.admin.search import SearchTerm
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.inspection import lock_holders, overview, queue_depths
from django_graphile_worker.sql.inspection.counts import Count, count_states, earliest
from django_graphile_worker.sql.inspection.criteria import Criteria, State
from django_graphile_worker.sql.statistics import ALL_TASKS, Row


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, its name, and where to look closer."""

    label: str
    value: str
    url: str
    css_class: str = ""


class OverviewAdmin(Page):
    """Tiles, charts, tables and alarms, from a fixed number of cheap questions."""

    page_title = gettext_lazy("Overview")

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if self.within(request, databases.alias_of(request)) is not None:
            return self._restricted(request)
        span = chart_data.SPANS.get(request.GET.get("span", ""), chart_data.SPANS["hour"])
        task = request.GET.get("task", "").replace("\x00", "") or None
        now = timezone.now()
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            counts = count_states(cursor, Criteria(), schema=schema)
            oldest = earliest(cursor, State.READY, schema=schema)
            everybody = lock_holders.holders(cursor, schema=schema)
            health = overview.health(cursor, schema=schema)
            queues = queue_depths.busiest_queues(cursor, schema=schema)
            rows = statistics.read(
                cursor, schema=schema, period=span.period, since=span.since(now), task=task or ALL_TASKS
            )
            figures = read_figures(cursor, alarms.known_tasks(everybody), span, now, schema=schema)
        context = {
            "tiles": self._tiles(request, counts, _age(oldest, now), everybody),
            "alarms": alarms.alarms(
                everybody, figures.glance, health, time.time(), is_any_ready=counts[State.READY].number > 0
            ),
            "charts": draw(chart_data.by_time(rows, span, now), span),
            "spans": self._spans(request, span, task),
            "span": span.name,
            "task": task,
            "all_tasks_url": self.url(request, "overview", span=span.name),
            "tasks": task_lines(self, request, figures, span, now),
            "queues": [self._queue_line(request, queue) for queue in queues],
            "queues_url": self.url(request, "jobqueue"),
            "health": health,
            "table_size": formatting.size(health.table_bytes),
            # Nobody has counted a table that was never vacuumed.
            "estimate": f"{health.estimated_jobs:,}" if health.estimated_jobs else formatting.NOTHING,
            "dead_rows": f"{health.dead_rows:,}",
        }
        return self.render(request, "overview.html", context)

    def _restricted(self, request: HttpRequest) -> HttpResponse:
        """For whom some jobs are hidden: the figures are those of all jobs, so there are none of them."""
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            everybody = lock_holders.holders(cursor, schema=schema)
        context = {
            "is_restricted": True,
            "tiles": [self._workers_tile(request, everybody)],
            "jobs_url": self.url(request, "job"),
        }
        return self.render(request, "overview.html", context)

    def _workers_tile(self, request: HttpRequest, everybody: Sequence[lock_holders.Holder]) -> Tile:
        alive = sum(alarms.is_alive(holder) for holder in everybody)
        return Tile(_("Workers alive"), str(alive), self.url(request, "worker"), "" if alive else "gw-tile-failed")

    def _tiles(
        self,
        request: HttpRequest,
        counts: dict[State, Count],
        oldest: float | None,
        everybody: Sequence[lock_holders.Holder],
    ) -> list[Tile]:
        states = {
            State.READY: _("Ready"),
            State.SCHEDULED: _("Scheduled"),
            State.RUNNING: _("Running"),
            State.RETRYING: _("Retrying"),
            State.FAILED: _("Permanently failed"),
        }
        tiles = [
            Tile(
                label,
                formatting.count(counts.get(state)),
                self.url(request, "job", state=state.value),
                f"gw-tile-{state.value}" if counts[state].number else "gw-tile-zero",
            )
            for state, label in states.items()
        ]
        is_late = oldest is not None and oldest > 60
        late = Tile(_("Oldest ready job"), formatting.duration(oldest, 1), "", "gw-tile-late" if is_late else "")
        return [tiles[0], late, *tiles[1:], self._workers_tile(request, everybody)]

    def _spans(self, request: HttpRequest, current: chart_data.Span, task: str | None) -> list[tuple[str, str, bool]]:
        names = {"hour": _("Hour"), "day": _("Day"), "week": _("Week")}
        return [
            (label, self.url(request, "overview", span=name, task=task), name == current.name)
            for name, label in names.items()
        ]

    def _queue_line(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> dict[str, Any]:
        return {
            "name": queue.queue_name,
            "number": formatting.capped(queue.number, queue_depths.MOST_COUNTED),
            "oldest": formatting.duration(queue.oldest_seconds),
            "holder": queue.locked_by,
            "since": formatting.moment(queue.locked_at) if queue.locked_at else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name)), state=State.READY.value),
        }


def _age(oldest: datetime | None, now: datetime) -> float | None:
    """How many seconds the oldest ready job has waited."""
    if oldest is None:
        return None
    began, ended = [timezone.make_aware(each) if timezone.is_naive(each) else each for each in (oldest, now)]
    return max(0.0, (ended - began).total_seconds())


def draw(points: Sequence[Row], span: chart_data.Span) -> list[charts.Chart]:
    """Throughput, failures, wait and run time."""
    labels = [_label(point.started_at, span) for point in points]
    total = chart_data.total(points)
    failures = total.failed + total.permanently_failed
    throughput = charts.bars(
        _("Throughput"),
        _("%(number)s jobs succeeded") % {"number": f"{total.succeeded:,}"},
        labels,
        [charts.Series(_("succeeded"), "gw-succeeded", [float(point.succeeded) for point in points])],
        _whole,
    )
    failed = charts.bars(
        _("Failures"),
        _("%(number)s attempts failed") % {"number": f"{failures:,}"},
        labels,
        [
            charts.Series(_("to be retried"), "gw-retrying", [float(point.failed) for point in points]),
            charts.Series(_("for good"), "gw-failed", [float(point.permanently_failed) for point in points]),
        ],
        _whole,
    )
    waited = _percentiles(pgettext("chart", "Wait time"), labels, [point.waits for point in points], total.waits)
    ran = _percentiles(pgettext("chart", "Run time"), labels, [point.durations for point in points], total.durations)
    return [throughput, failed, waited, ran]


def _percentiles(
    title: str, labels: Sequence[str], histograms: Sequence[Sequence[int]], total: Sequence[int]
) -> charts.Chart:
    p50, p95 = (formatting.duration(chart_data.percentile(total, share)) for share in (0.5, 0.95))
    lines = [
        charts.Series("p50", "gw-p50", [chart_data.percentile(each, 0.5) for each in histograms]),
        charts.Series("p95", "gw-p95", [chart_data.percentile(each, 0.95) for each in histograms]),
    ]
    return charts.lines(title, f"p50 {p50}, p95 {p95}", labels, lines, formatting.duration)


def _whole(value: float) -> str:
    """There is no half of a job."""
    return f"{value:,.0f}" if value == int(value) else ""


def _label(started_at: int, span: chart_data.Span) -> str:
    local = timezone.localtime(datetime.fromtimestamp(started_at, UTC))
    return f"{local:%a %H:%M}" if span.name == "week" else f"{local:%H:%M}"
