"""The first page: is it healthy?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from django_graphile_worker.admin import alarms, charts, databases, moments, series
from django_graphile_worker.admin.chips import Chip
from django_graphile_worker.admin.pages import Page, page
from django_graphile_worker.sql import holders, overview, queue_depths, search, statistics
from django_graphile_worker.sql.criteria import Criteria, State
from django_graphile_worker.sql.statistics import Row

MOST_TASKS = 50


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, its name, and where to look closer."""

    label: str
    value: str
    url: str
    css_class: str = ""


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task's line in the table."""

    identifier: str
    ready: str
    oldest: str
    retrying: str
    failed: str
    runs: str
    failures: str
    p50: str
    p95: str
    spark: SafeString
    chart_url: str
    jobs_url: str


class OverviewAdmin(Page):
    """Tiles, charts, tables and alarms, from a fixed number of cheap questions."""

    page_title = gettext_lazy("Overview")

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        span = series.SPANS.get(request.GET.get("span", ""), series.SPANS["hour"])
        task = request.GET.get("task", "").replace("\x00", "") or None
        now = timezone.now()
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            counts = search.count_states(cursor, Criteria(), schema=schema)
            backlogs = overview.task_backlogs(cursor, schema=schema)
            everybody = holders.holders(cursor, schema=schema)
            health = overview.health(cursor, schema=schema)
            queues = queue_depths.busiest_queues(cursor, schema=schema)
            rows = statistics.read(cursor, schema=schema, period=span.period, since=span.since(now))
        shown = [row for row in rows if task is None or row.task_identifier == task]
        context = {
            "tiles": self._tiles(request, counts, backlogs, everybody),
            "alarms": alarms.alarms(everybody, backlogs, health, time.time()),
            "charts": draw(series.by_time(shown, span, now), span),
            "spans": self._spans(request, span, task),
            "span": span.name,
            "task": task,
            "all_tasks_url": self.url(request, "overview", span=span.name),
            "tasks": self._task_lines(request, backlogs, rows, span, now),
            "queues": [self._queue_line(request, queue) for queue in queues],
            "queues_url": self.url(request, "jobqueue"),
            "health": health,
            "table_size": moments.size(health.table_bytes),
            # Nobody has counted a table that was never vacuumed.
            "estimate": f"{health.estimated_jobs:,}" if health.estimated_jobs else moments.NOTHING,
            "dead_rows": f"{health.dead_rows:,}",
        }
        return self.render(request, "overview.html", context)

    def _tiles(
        self,
        request: HttpRequest,
        counts: dict[State, search.Count],
        backlogs: Sequence[overview.TaskBacklog],
        everybody: Sequence[holders.Holder],
    ) -> list[Tile]:
        oldest = max((each.oldest_seconds for each in backlogs if each.oldest_seconds is not None), default=None)
        alive = sum(alarms.is_alive(holder) for holder in everybody)
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
                moments.count(counts.get(state)),
                self.url(request, "job", state=state.value),
                f"gw-tile-{state.value}" if counts[state].number else "gw-tile-zero",
            )
            for state, label in states.items()
        ]
        is_late = oldest is not None and oldest > 60
        late = Tile(_("Oldest ready job"), moments.duration(oldest, 1), "", "gw-tile-late" if is_late else "")
        workers = Tile(_("Workers alive"), str(alive), self.url(request, "worker"), "" if alive else "gw-tile-failed")
        return [tiles[0], late, *tiles[1:], workers]

    def _spans(self, request: HttpRequest, current: series.Span, task: str | None) -> list[tuple[str, str, bool]]:
        names = {"hour": _("Hour"), "day": _("Day"), "week": _("Week")}
        return [
            (label, self.url(request, "overview", span=name, task=task), name == current.name)
            for name, label in names.items()
        ]

    def _task_lines(
        self,
        request: HttpRequest,
        backlogs: Sequence[overview.TaskBacklog],
        rows: Sequence[Row],
        span: series.Span,
        now: datetime,
    ) -> list[TaskLine]:
        grouped = series.by_task(rows)
        known = {backlog.task_identifier: backlog for backlog in backlogs}
        names = {*grouped, *(name for name, each in known.items() if each.ready or each.retrying or each.failed)}
        totals = {name: series.total(grouped.get(name, [])) for name in names}

        def busiest(name: str) -> tuple[int, int, str]:
            backlog = known.get(name)
            return (-series.runs(totals[name]), -(backlog.ready if backlog else 0), name)

        return [
            self._task_line(
                request, name, known.get(name), totals[name], series.by_time(grouped.get(name, []), span, now), span
            )
            for name in sorted(names, key=busiest)[:MOST_TASKS]
        ]

    def _task_line(
        self,
        request: HttpRequest,
        name: str,
        backlog: overview.TaskBacklog | None,
        total: Row,
        points: Sequence[Row],
        span: series.Span,
    ) -> TaskLine:
        most = overview.MOST_COUNTED
        failures = total.failed + total.permanently_failed
        runs = series.runs(total)
        return TaskLine(
            identifier=name,
            ready=moments.capped(backlog.ready, most) if backlog else "0",
            oldest=moments.duration(backlog.oldest_seconds if backlog else None),
            retrying=moments.capped(backlog.retrying, most) if backlog and backlog.retrying else "",
            failed=moments.capped(backlog.failed, most) if backlog and backlog.failed else "",
            runs=f"{runs:,}",
            failures=f"{failures:,} ({_share(failures, runs)})" if failures else "",
            p50=moments.duration(series.percentile(total.durations, 0.5)),
            p95=moments.duration(series.percentile(total.durations, 0.95)),
            spark=charts.sparkline(
                [float(series.runs(point)) for point in points], _("%(runs)s runs") % {"runs": runs}
            ),
            chart_url=self.url(request, "overview", span=span.name, task=name),
            jobs_url=self.url(request, "job", q=str(Chip("task", name))),
        )

    def _queue_line(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> dict[str, Any]:
        return {
            "name": queue.queue_name,
            "number": moments.capped(queue.number, queue_depths.MOST_COUNTED),
            "oldest": moments.duration(queue.oldest_seconds),
            "holder": queue.locked_by,
            "since": moments.moment(queue.locked_at) if queue.locked_at else "",
            "jobs_url": self.url(request, "job", q=str(Chip("queue", queue.queue_name)), state=State.READY.value),
        }


def draw(points: Sequence[Row], span: series.Span) -> list[charts.Chart]:
    """Throughput, failures, wait and run time."""
    labels = [_label(point.started_at, span) for point in points]
    total = series.total(points)
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
    p50, p95 = (moments.duration(series.percentile(total, share)) for share in (0.5, 0.95))
    lines = [
        charts.Series("p50", "gw-p50", [series.percentile(each, 0.5) for each in histograms]),
        charts.Series("p95", "gw-p95", [series.percentile(each, 0.95) for each in histograms]),
    ]
    return charts.lines(title, f"p50 {p50}, p95 {p95}", labels, lines, moments.duration)


def _share(part: int, whole: int) -> str:
    return "<1%" if part / whole < 0.01 else f"{part / whole:.0%}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _label(started_at: int, span: series.Span) -> str:
    local = timezone.localtime(datetime.fromtimestamp(started_at, UTC))
    return f"{local:%a %H:%M}" if span.name == "week" else f"{local:%H:%M}"
