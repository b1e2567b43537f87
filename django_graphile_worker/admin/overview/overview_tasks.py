"""The table of tasks on the overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts import drawing
from django_graphile_worker.admin.charts.chart_data import Span, percentile
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.inspection.criteria import State
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
class TaskRow:
    """A row of the table: the waiting jobs of a task, and the results of its runs."""

    identifier: str
    ready: str
    oldest: str
    retrying: str
    failed: str
    runs: str
    failures: str
    p50: str
    p95: str
    sparkline: SafeString
    chart_url: str
    jobs_url: str
    # The lists of the jobs that the row counts, by their states.
    state_urls: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The tasks that the table shows, and their figures."""

    names: Sequence[str]
    # The age of the oldest job of each task, without counts: for tasks that no worker has and tasks of the table.
    backlog_ages: Sequence[TaskBacklog]
    backlogs: Mapping[str, TaskBacklog]
    runs: Mapping[str, TaskRuns]
    durations: Mapping[str, Sequence[int]]


def read_figures(cursor: Any, served: frozenset[str] | None, span: Span, now: datetime, *, schema: str) -> TaskFigures:
    """Read the figures of the tasks that ran most, then of the tasks that have waited longest; of others, only ages."""
    since = span.coarse_since(now)
    busiest = statistics.busiest_tasks(cursor, schema=schema, period=span.coarse_period, since=since, limit=MOST_TASKS)
    ages = _read_backlog_ages(cursor, served, has_room=len(busiest) < MOST_TASKS, schema=schema)
    waiting = sorted(filter(_has_backlog, ages), key=lambda each: (-(each.oldest_seconds or 0.0), each.task_identifier))
    names = list(dict.fromkeys([*busiest, *(each.task_identifier for each in waiting)]))[:MOST_TASKS]
    backlogs = task_backlogs(cursor, names, schema=schema)
    return TaskFigures(
        names,
        ages,
        {each.task_identifier: each for each in backlogs},
        statistics.read_runs(cursor, names, schema=schema, period=span.period, starts=span.starts(now)),
        statistics.read_durations(cursor, names, schema=schema, period=span.coarse_period, since=since),
    )


def _read_backlog_ages(cursor: Any, served: frozenset[str] | None, *, has_room: bool, schema: str) -> list[TaskBacklog]:
    """Read the ages of all tasks while the table has room for more, else only of tasks that no worker runs."""
    if has_room:
        return backlog_ages(cursor, schema=schema)
    return [] if served is None else backlog_ages(cursor, schema=schema, but=served)


def task_rows(page: PageAdmin, request: HttpRequest, figures: TaskFigures, span: Span, now: datetime) -> list[TaskRow]:
    """Return a row for each task that has run or has waiting jobs, the busiest first."""

    def busiest(name: str) -> tuple[int, int, str]:
        runs = figures.runs.get(name, NO_RUNS).runs
        return (-sum(runs.values()), -figures.backlogs[name].ready if name in figures.backlogs else 0, name)

    starts = span.starts(now)
    shown = [name for name in figures.names if name in figures.runs or _has_backlog(figures.backlogs.get(name))]
    return [_row(page, request, name, figures, starts, span) for name in sorted(shown, key=busiest)]


def _has_backlog(backlog: TaskBacklog | None) -> bool:
    return backlog is not None and bool(backlog.ready or backlog.retrying or backlog.failed)


def _row(
    page: PageAdmin, request: HttpRequest, name: str, figures: TaskFigures, starts: Sequence[int], span: Span
) -> TaskRow:
    backlog, (runs, failures) = figures.backlogs.get(name), figures.runs.get(name, NO_RUNS)
    durations = figures.durations.get(name, ())
    total = sum(runs.values())
    label = _("%(runs)s runs") % {"runs": total}
    return TaskRow(
        identifier=name,
        ready=formatting.capped_number(backlog.ready, MOST_COUNTED) if backlog else "0",
        oldest=formatting.duration(backlog.oldest_seconds if backlog else None),
        retrying=formatting.capped_number(backlog.retrying, MOST_COUNTED) if backlog and backlog.retrying else "",
        failed=formatting.capped_number(backlog.failed, MOST_COUNTED) if backlog and backlog.failed else "",
        runs=f"{total:,}",
        failures=f"{failures:,} ({_percentage(failures, total)})" if failures else "",
        p50=formatting.duration(percentile(durations, 0.5)),
        p95=formatting.duration(percentile(durations, 0.95)),
        sparkline=drawing.sparkline([float(runs.get(start, 0)) for start in starts], label),
        chart_url=page.url(request, "overview", span=span.name, task=name),
        jobs_url=page.url(request, "job", q=str(SearchTerm("task", name))),
        state_urls={
            state.value: page.url(request, "job", q=str(SearchTerm("task", name)), state=state.value)
            for state in (State.READY, State.RETRYING, State.FAILED)
        },
    )


def _percentage(part: int, whole: int) -> str:
    return "<1%" if part / whole < 0.01 else f"{part / whole:.0%}"
