"""The overview's table of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import chart_data, charts, formatting
from django_graphile_worker.admin.pages import Page
from django_graphile_worker.admin.search import SearchTerm
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.inspection.overview import (
    MOST_COUNTED,
    TaskBacklog,
    backlog_ages,
    task_backlogs,
)
from django_graphile_worker.sql.statistics import TaskRuns

MOST_TASKS = 50
NO_RUNS = TaskRuns({}, 0)


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


class Figures(NamedTuple):
    """What is known of the tasks that are shown."""

    names: Sequence[str]
    # Whether something waits, for tasks that no worker has and for those that might be shown.
    glance: Sequence[TaskBacklog]
    backlogs: Mapping[str, TaskBacklog]
    runs: Mapping[str, TaskRuns]
    durations: Mapping[str, Sequence[int]]


def read_figures(
    cursor: Any, served: frozenset[str] | None, span: chart_data.Span, now: datetime, *, schema: str
) -> Figures:
    """Of the tasks that ran most, and then of those that have waited longest: of the others little is read."""
    since = span.coarse_since(now)
    busiest = statistics.busiest_tasks(cursor, schema=schema, period=span.coarse_period, since=since, limit=MOST_TASKS)
    glance = _glance(cursor, served, has_room=len(busiest) < MOST_TASKS, schema=schema)
    waiting = [each for each in glance if each.ready or each.retrying or each.failed]
    waiting.sort(key=lambda each: (-(each.oldest_seconds or 0.0), each.task_identifier))
    names = list(dict.fromkeys([*busiest, *(each.task_identifier for each in waiting)]))[:MOST_TASKS]
    backlogs = task_backlogs(cursor, names, schema=schema)
    return Figures(
        names,
        glance,
        {each.task_identifier: each for each in backlogs},
        statistics.read_runs(cursor, names, schema=schema, period=span.period, starts=span.starts(now)),
        statistics.read_durations(cursor, names, schema=schema, period=span.coarse_period, since=since),
    )


def _glance(cursor: Any, served: frozenset[str] | None, *, has_room: bool, schema: str) -> list[TaskBacklog]:
    """Of all tasks where some are missing in the table, else of those alone that no worker runs."""
    if has_room:
        return backlog_ages(cursor, schema=schema)
    return [] if served is None else backlog_ages(cursor, schema=schema, but=served)


def task_lines(
    page: Page, request: HttpRequest, figures: Figures, span: chart_data.Span, now: datetime
) -> list[TaskLine]:
    """The tasks that have run or have something to do, the busiest first."""

    def busiest(name: str) -> tuple[int, int, str]:
        runs = figures.runs.get(name, NO_RUNS).runs
        return (-sum(runs.values()), -figures.backlogs[name].ready if name in figures.backlogs else 0, name)

    starts = span.starts(now)
    shown = [name for name in figures.names if name in figures.runs or _has_backlog(figures.backlogs.get(name))]
    return [_line(page, request, name, figures, starts, span) for name in sorted(shown, key=busiest)]


def _has_backlog(backlog: TaskBacklog | None) -> bool:
    return backlog is not None and bool(backlog.ready or backlog.retrying or backlog.failed)


def _line(
    page: Page, request: HttpRequest, name: str, figures: Figures, starts: Sequence[int], span: chart_data.Span
) -> TaskLine:
    backlog, (runs, failures) = figures.backlogs.get(name), figures.runs.get(name, NO_RUNS)
    durations = figures.durations.get(name, ())
    total = sum(runs.values())
    return TaskLine(
        identifier=name,
        ready=formatting.capped(backlog.ready, MOST_COUNTED) if backlog else "0",
        oldest=formatting.duration(backlog.oldest_seconds if backlog else None),
        retrying=formatting.capped(backlog.retrying, MOST_COUNTED) if backlog and backlog.retrying else "",
        failed=formatting.capped(backlog.failed, MOST_COUNTED) if backlog and backlog.failed else "",
        runs=f"{total:,}",
        failures=f"{failures:,} ({_share(failures, total)})" if failures else "",
        p50=formatting.duration(chart_data.percentile(durations, 0.5)),
        p95=formatting.duration(chart_data.percentile(durations, 0.95)),
        spark=charts.sparkline([float(runs.get(start, 0)) for start in starts], _("%(runs)s runs") % {"runs": total}),
        chart_url=page.url(request, "overview", span=span.name, task=name),
        jobs_url=page.url(request, "job", q=str(SearchTerm("task", name))),
    )


def _share(part: int, whole: int) -> str:
    return "<1%" if part / whole < 0.01 else f"{part / whole:.0%}"
