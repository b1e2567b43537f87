"""The overview's table of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import charts, moments, series
from django_graphile_worker.admin.chips import Chip
from django_graphile_worker.admin.pages import Page
from django_graphile_worker.sql.inspection.overview import MOST_COUNTED, TaskBacklog
from django_graphile_worker.sql.statistics import Row

MOST_TASKS = 50


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task: what waits for it, and what became of its jobs."""

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


def task_lines(
    page: Page,
    request: HttpRequest,
    backlogs: Sequence[TaskBacklog],
    counted: Sequence[Row],
    measured: Sequence[Row],
    span: series.Span,
    now: datetime,
) -> list[TaskLine]:
    """The tasks that have run or have something to do, the busiest first."""
    counts, histograms = series.by_task(counted), series.by_task(measured)
    known = {backlog.task_identifier: backlog for backlog in backlogs}
    names = {*counts, *(name for name, each in known.items() if each.ready or each.retrying or each.failed)}
    runs = {name: sum(map(series.runs, counts.get(name, ()))) for name in names}

    def busiest(name: str) -> tuple[int, int, str]:
        return (-runs[name], -known[name].ready if name in known else 0, name)

    starts = span.starts(now)
    return [
        _line(page, request, name, known.get(name), counts.get(name, []), histograms.get(name, []), starts, span)
        for name in sorted(names, key=busiest)[:MOST_TASKS]
    ]


def _line(
    page: Page,
    request: HttpRequest,
    name: str,
    backlog: TaskBacklog | None,
    counts: Sequence[Row],
    histograms: Sequence[Row],
    starts: Sequence[int],
    span: series.Span,
) -> TaskLine:
    runs = {row.started_at: series.runs(row) for row in counts}
    failures = sum(row.failed + row.permanently_failed for row in counts)
    durations = series.total(histograms).durations
    total = sum(runs.values())
    return TaskLine(
        identifier=name,
        ready=moments.capped(backlog.ready, MOST_COUNTED) if backlog else "0",
        oldest=moments.duration(backlog.oldest_seconds if backlog else None),
        retrying=moments.capped(backlog.retrying, MOST_COUNTED) if backlog and backlog.retrying else "",
        failed=moments.capped(backlog.failed, MOST_COUNTED) if backlog and backlog.failed else "",
        runs=f"{total:,}",
        failures=f"{failures:,} ({_share(failures, total)})" if failures else "",
        p50=moments.duration(series.percentile(durations, 0.5)),
        p95=moments.duration(series.percentile(durations, 0.95)),
        spark=charts.sparkline([float(runs.get(start, 0)) for start in starts], _("%(runs)s runs") % {"runs": total}),
        chart_url=page.url(request, "overview", span=span.name, task=name),
        jobs_url=page.url(request, "job", q=str(Chip("task", name))),
    )


def _share(part: int, whole: int) -> str:
    return "<1%" if part / whole < 0.01 else f"{part / whole:.0%}"
