"""The table of tasks on the overview: tasks that fail come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import ngettext

from django_graphile_worker import conf
from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts import drawing
from django_graphile_worker.admin.charts.chart import whole_number
from django_graphile_worker.admin.charts.chart_data import Span, percentile
from django_graphile_worker.admin.overview.overview_charts import expired_jobs
from django_graphile_worker.admin.overview.overview_tiles import about
from django_graphile_worker.admin.overview.task_pages import TaskPage
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm, join_terms
from django_graphile_worker.models import PastAttempt
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.sql.inspection.overview import MAX_COUNTED, TaskBacklog, backlog_ages, task_backlogs
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.sql.statistics import Row, Sample, TaskRuns

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
    # How many jobs were not started in time, and where they are listed.
    expired: str
    expired_url: str
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

    page: TaskPage
    # The age of the oldest job of each task, without counts.
    backlog_ages: Sequence[TaskBacklog]
    backlogs: Mapping[str, TaskBacklog]
    runs: Mapping[str, TaskRuns]
    durations: Mapping[str, Sequence[int]]


def read_figures(
    cursor: Any, span: Span, now: datetime, *, schema: str, number: int = 1, search: str = ""
) -> TaskFigures:
    """Read which tasks have jobs or runs, and the figures of the tasks on one page of the table."""
    since = span.coarse_since(now)
    totals = statistics.read_totals(cursor, schema=schema, period=span.coarse_period, since=since)
    ages = backlog_ages(cursor, schema=schema)
    page = TaskPage.of(ranked_tasks(totals, ages), number=number, search=search)
    shown = [each for each in ages if each.task_identifier in page.names]
    return TaskFigures(
        page,
        ages,
        {each.task_identifier: each for each in task_backlogs(cursor, shown, schema=schema)},
        statistics.read_runs(
            cursor,
            page.names,
            schema=schema,
            period=span.period,
            starts=span.starts(now),
            number_of_tasks=len(totals),
        ),
        statistics.read_durations(cursor, page.names, schema=schema, period=span.coarse_period, since=since),
    )


def ranked_tasks(totals: Sequence[Row], ages: Sequence[TaskBacklog]) -> list[str]:
    """Return the tasks that ran or have jobs: first the tasks that fail, then by runs, then by the oldest job."""
    runs = {row.name: row for row in totals}
    backlogs = {each.task_identifier: each for each in ages if has_backlog(each)}

    def rank(name: str) -> tuple[Any, ...]:
        row, backlog = runs.get(name), backlogs.get(name)
        failures = row.failures if row else 0
        expired = row.expired if row else 0
        has_failed, retries = (bool(backlog.failed), bool(backlog.retrying)) if backlog else (False, False)
        ended = row.runs if row else 0
        oldest = (backlog.oldest_seconds or 0.0) if backlog else 0.0
        fails = bool(failures or has_failed or retries or expired)
        return (not fails, -failures, -expired, not has_failed, not retries, -ended, -oldest, name)

    return sorted({*runs, *backlogs}, key=rank)


def has_backlog(backlog: TaskBacklog | None) -> bool:
    return backlog is not None and bool(backlog.ready or backlog.retrying or backlog.failed)


def task_rows(
    page: PageAdmin, request: HttpRequest, figures: TaskFigures, sample: Sample | None, span: Span, now: datetime
) -> list[TaskRow]:
    """Return a row for each task of the page, in the order of the page."""
    starts = span.starts(now)
    return [_row(page, request, name, figures, sample, starts, span) for name in figures.page.names]


def _row(
    page: PageAdmin,
    request: HttpRequest,
    name: str,
    figures: TaskFigures,
    sample: Sample | None,
    starts: Sequence[int],
    span: Span,
) -> TaskRow:
    backlog, (runs, failures, expired) = figures.backlogs.get(name), figures.runs.get(name, NO_RUNS)
    durations = figures.durations.get(name, ())
    total = sum(runs.values())
    term = str(SearchTerm("task", name))
    ready, retrying, failed = _numbers(name, backlog, sample)
    return TaskRow(
        identifier=name,
        ready=ready or "0",
        oldest=formatting.duration(backlog.oldest_seconds if backlog else None),
        retrying=retrying,
        failed=failed,
        runs=whole_number(total),
        failures=f"{whole_number(failures)} ({_percentage(failures, total)})" if failures else "",
        expired=expired_jobs(expired) if expired else "",
        expired_url=_expired_url(page, request, name),
        p50=formatting.duration(percentile(durations, 0.5)),
        p95=formatting.duration(percentile(durations, 0.95)),
        sparkline=drawing.sparkline(
            [float(runs.get(start, 0)) for start in starts],
            ngettext("%(number)s run", "%(number)s runs", total) % {"number": formatting.number(total)},
        ),
        chart_url=page.url(request, "overview", span=span.name, task=name),
        jobs_url=page.url(request, "job", q=term),
        state_urls={
            state.value: page.url(request, "job", q=term, state=state.value)
            for state in (State.READY, State.RETRYING, State.FAILED)
        },
    )


def _numbers(name: str, backlog: TaskBacklog | None, sample: Sample | None) -> list[str]:
    """Return how many jobs are ready, retrying and failed: exact up to a limit, beyond it from the latest sample."""
    if backlog is None:
        return ["", "", ""]
    known = sample.tasks.get(name) if sample else None
    sampled = known or [0, 0, 0]
    counted = (backlog.ready, backlog.retrying, backlog.failed)
    is_estimate = bool(sample and sample.estimated)
    return [
        _number(each, sampled[place], is_estimate=is_estimate) if each else "" for place, each in enumerate(counted)
    ]


def _number(counted: int, sampled: int, *, is_estimate: bool) -> str:
    if counted > MAX_COUNTED and sampled > MAX_COUNTED:
        return about(sampled, is_estimate=is_estimate)
    return formatting.capped_number(counted, MAX_COUNTED)


def _expired_url(page: PageAdmin, request: HttpRequest, name: str) -> str:
    """Return the list of the jobs of a task that were not started in time; "" without a history."""
    history = page.admin_site._registry.get(PastAttempt)
    if history is None or conf.current().history is None or not history.has_view_permission(request):
        return ""
    terms = [SearchTerm("task", name), SearchTerm("outcome", HistoryOutcome.EXPIRED.name.lower())]
    return page.url(request, "pastattempt", q=join_terms(terms))


def _percentage(part: int, whole: int) -> str:
    return formatting.percentage(part / whole)
