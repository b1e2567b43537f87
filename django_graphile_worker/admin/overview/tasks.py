"""The table of tasks on the overview: tasks that fail come first, fifty on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker import conf
from django_graphile_worker.admin import charts, formatting
from django_graphile_worker.admin.charts import Span, percentile
from django_graphile_worker.admin.overview.activity import expired_jobs
from django_graphile_worker.admin.overview.readings import BoundedReader
from django_graphile_worker.admin.overview.tiles import about, age_of
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search_terms import SearchTerm, join_terms
from django_graphile_worker.models import PastAttempt
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.inspection.job_list import Count, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, RunningTask, Slots, running_tasks, slots_of
from django_graphile_worker.sql.inspection.overview import MAX_COUNTED, TaskBacklog, backlog_ages, task_backlogs
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.sql.statistics import Row, Sample, TaskRuns

PAGE_SIZE = 50
# The parameters of the URL.
NUMBER, SEARCH = "page", "tasks"
NO_RUNS = TaskRuns({}, 0)
# What stands in for figures that were never read in time.
NO_TASKS_RUN: Sequence[RunningTask] = ()
NO_TASKS_RAN: Mapping[str, TaskRuns] = {}
NO_DURATIONS: Mapping[str, Sequence[int]] = {}
# The numbers of a task, in the order in which a sample has them, and the name that the sample has for each state.
COLUMNS_OF_TASK = {"ready": "ready", "retrying": "retrying", "failed": "permanently_failed"}


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The names on a page, the number of the page, and how many tasks there are."""

    names: Sequence[str]
    number: int
    pages: int
    # The tasks that match the search, and all tasks.
    matching: int
    total: int
    search: str

    @classmethod
    def of(cls, ranked: Sequence[str], number: int, search: str) -> TaskPage:
        """Return a page of the tasks whose names contain the search; the nearest page if there is no such number."""
        matching = [name for name in ranked if search.lower() in name.lower()]
        pages = max(-(-len(matching) // PAGE_SIZE), 1)
        number = min(max(number, 1), pages)
        names = matching[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        return cls(names, number, pages, len(matching), len(ranked), search)


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The tasks on a page, and their figures."""

    page: TaskPage
    # The age of the oldest job of each task, without counts; None if that took too long.
    backlog_ages: Sequence[TaskBacklog] | None
    # Without tasks whose jobs the database took too long to count.
    backlogs: Mapping[str, TaskBacklog]
    running: Mapping[str, RunningTask]
    # The slots of all live workers.
    slots: Slots
    runs: Mapping[str, TaskRuns]
    durations: Mapping[str, Sequence[int]]

    @property
    def in_all_slots(self) -> RunningTask | None:
        """The task whose jobs have all slots; None if there is no such task."""
        return in_all_slots(self.running.values(), self.slots)


def in_all_slots(running: Iterable[RunningTask], slots: Slots) -> RunningTask | None:
    return next((each for each in running if 0 < slots.total <= each.in_slots), None)


def requested_page(request: HttpRequest) -> tuple[int, str]:
    """Return the number of the page and the search that the request has."""
    number = request.GET.get(NUMBER, "")
    search = request.GET.get(SEARCH, "").replace("\x00", "").strip()
    return int(number) if number.isdecimal() and len(number) < 6 else 1, search


def read_tasks(
    reader: BoundedReader,
    totals: Sequence[Row],
    holders: Sequence[Holder],
    span: Span,
    now: datetime,
    asked: tuple[int, str],
) -> TaskFigures:
    """Read which tasks have jobs or runs, and the figures of the tasks on one page of the table."""
    ages = reader.read("ages", _backlog_ages, None)
    timeout = conf.current().worker_timeout

    def read_running(cursor: Any, schema: str) -> Sequence[RunningTask]:
        return running_tasks(cursor, holders, timeout, schema=schema)

    running, slots = reader.read("running", read_running, NO_TASKS_RUN), slots_of(holders, timeout)
    page = TaskPage.of(_ranked(totals, ages or (), running, slots), *asked)
    shown, uncounted = [each for each in ages or () if each.task_identifier in page.names], list[TaskBacklog]()
    counted = reader.read("backlogs", lambda cursor, schema: task_backlogs(cursor, shown, schema=schema), uncounted)
    starts, since = span.starts(now), span.coarse_since(now)

    def read_runs(cursor: Any, schema: str) -> Mapping[str, TaskRuns]:
        period, number = span.period, len(totals)
        return statistics.read_runs(
            cursor, page.names, schema=schema, period=period, starts=starts, number_of_tasks=number
        )

    def read_durations(cursor: Any, schema: str) -> Mapping[str, Sequence[int]]:
        period = span.coarse_period
        return statistics.read_durations(cursor, page.names, schema=schema, period=period, since=since)

    runs = reader.read("runs", read_runs, NO_TASKS_RAN)
    durations = reader.read("durations", read_durations, NO_DURATIONS)
    return TaskFigures(
        page,
        ages,
        {each.task_identifier: each for each in counted},
        {each.task_identifier: each for each in running},
        slots,
        runs,
        durations,
    )


def _backlog_ages(cursor: Any, schema: str) -> Sequence[TaskBacklog] | None:
    return backlog_ages(cursor, schema=schema)


def _ranked(
    totals: Sequence[Row], ages: Sequence[TaskBacklog], running: Sequence[RunningTask], slots: Slots
) -> list[str]:
    """Return the tasks that ran or have jobs: first a task that has all slots, then the tasks that fail.

    Then they are sorted by runs, then by the oldest job.
    """
    full = in_all_slots(running, slots)
    runs = {row.name: row for row in totals}
    backlogs = {each.task_identifier: each for each in ages if each.ready or each.retrying or each.failed}

    def rank(name: str) -> tuple[Any, ...]:
        row, backlog = runs.get(name), backlogs.get(name)
        failures, expired, ended = (row.failures, row.expired, row.runs) if row else (0, 0, 0)
        has_failed, retries = (bool(backlog.failed), bool(backlog.retrying)) if backlog else (False, False)
        oldest = (backlog.oldest_seconds or 0.0) if backlog else 0.0
        fails = bool(failures or has_failed or retries or expired)
        has_all_slots = full is not None and full.task_identifier == name
        return (not has_all_slots, not fails, -failures, -expired, not has_failed, not retries, -ended, -oldest, name)

    return sorted({*runs, *backlogs, *(each.task_identifier for each in running)}, key=rank)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row of the table: the waiting jobs of a task, and the results of its runs. A zero is an empty text."""

    identifier: str
    url: str
    running: str
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
    sparkline: SafeString | str
    # The lists of the jobs that the row counts, by their states.
    state_urls: Mapping[str, str]
    # How long ago the numbers were counted or estimated that are not exact.
    note: str


def task_context(
    page: PageAdmin,
    request: HttpRequest,
    figures: TaskFigures,
    sample: Sample | None,
    span: Span,
    now: datetime,
    query: dict[str, str],
) -> dict[str, Any]:
    """Return the context of the table; the URLs of its pages keep the parameters of the query."""
    shown = figures.page

    def page_url(number: int) -> str:
        is_there = 1 <= number <= shown.pages and number != shown.number
        return page.url(request, "overview", **query, tasks=shown.search, page=number) if is_there else ""

    return {
        "tasks": [_row(page, request, name, figures, sample, span, now) for name in shown.names],
        "task_search": shown.search,
        "has_task_search": bool(shown.search) or shown.total > PAGE_SIZE,
        "task_extent": _extent(shown),
        "all_tasks_url": page.url(request, "overview", **query) if shown.search else "",
        "previous_tasks_url": page_url(shown.number - 1),
        "next_tasks_url": page_url(shown.number + 1),
    }


def _extent(shown: TaskPage) -> str:
    """Say which tasks the table shows, unless it shows all of them."""
    if shown.pages == 1 and not shown.search:
        return ""
    first = (shown.number - 1) * PAGE_SIZE + 1 if shown.names else 0
    numbers = {
        "first": formatting.number(first),
        "last": formatting.number(first + len(shown.names) - 1 if shown.names else 0),
        "matching": formatting.number(shown.matching),
        "total": formatting.number(shown.total),
        "shown": formatting.number(len(shown.names)),
    }
    if shown.search:
        text = _("%(shown)s of %(matching)s matching tasks, of %(total)s in all. Tasks with failures come first.")
    elif shown.number == 1:
        text = _("%(shown)s of %(total)s tasks. Tasks with failures come first.")
    else:
        text = _("Tasks %(first)s to %(last)s of %(total)s. Tasks with failures come first.")
    return text % numbers


def _row(
    page: PageAdmin,
    request: HttpRequest,
    name: str,
    figures: TaskFigures,
    sample: Sample | None,
    span: Span,
    now: datetime,
) -> TaskRow:
    backlog, (runs, failures, expired) = figures.backlogs.get(name), figures.runs.get(name, NO_RUNS)
    durations = figures.durations.get(name, ())
    total = sum(runs.values())
    age = next((each for each in figures.backlog_ages or () if each.task_identifier == name), None)
    (ready, retrying, failed), note = _numbers(name, backlog, age, sample)
    values = [float(runs.get(start, 0)) for start in span.starts(now)]
    label = ngettext("%(number)s run", "%(number)s runs", total) % {"number": formatting.number(total)}
    share = formatting.percentage(failures / total) if total else ""
    term = str(SearchTerm("task", name))
    return TaskRow(
        identifier=name,
        url=page.url(request, "overview", span=span.name, task=name),
        running=_running(name, figures),
        ready=ready,
        oldest=formatting.duration(age.oldest_seconds) if age and age.ready else "",
        retrying=retrying,
        failed=failed,
        runs=formatting.number(total) if total else "",
        failures=f"{formatting.number(failures)} ({share})" if failures else "",
        expired=expired_jobs(expired) if expired else "",
        expired_url=_expired_url(page, request, name),
        p50=formatting.duration(percentile(durations, 0.5)) if durations else "",
        p95=formatting.duration(percentile(durations, 0.95)) if durations else "",
        sparkline=charts.sparkline(values, label) if total else "",
        state_urls={
            state.value: page.url(request, "job", q=term, state=state.value)
            for state in (State.RUNNING, State.READY, State.RETRYING, State.FAILED)
        },
        note=note,
    )


def _running(name: str, figures: TaskFigures) -> str:
    """Return how many jobs of a task run, and of how many slots if it has all of them."""
    found, full = figures.running.get(name), figures.in_all_slots
    if found is None:
        return ""
    if found != full:
        return formatting.number(found.number)
    numbers = {"number": formatting.number(found.in_slots), "total": formatting.number(figures.slots.total)}
    return _("%(number)s of %(total)s slots") % numbers


def _numbers(
    name: str, backlog: TaskBacklog | None, age: TaskBacklog | None, sample: Sample | None
) -> tuple[list[str], str]:
    """Return how many jobs are ready, retrying and failed: exact up to a limit, beyond it from the latest sample.

    The second value says how old the sample is, if a number is from it.
    """
    found, note = backlog or age, ""
    if found is None:
        return ["", "", ""], note
    sampled = (sample.tasks.get(name) if sample else None) or [0, 0, 0]
    texts = []
    for (column, column_of_sample), of_sample in zip(COLUMNS_OF_TASK.items(), sampled, strict=False):
        number = getattr(found, column)
        # The ages say only whether there are jobs.
        count = Count(min(number, MAX_COUNTED), number > MAX_COUNTED) if backlog else Count(1, is_more=True)
        if not number:
            texts.append("")
        elif sample is not None and count.is_more and of_sample > count.number:
            is_estimate = column_of_sample in sample.estimated
            texts.append(about(of_sample, is_estimate=is_estimate))
            note = age_of(sample, timezone.now(), is_estimate=is_estimate)
        else:
            texts.append(formatting.count(count))
    return texts, note


def _expired_url(page: PageAdmin, request: HttpRequest, name: str) -> str:
    """Return the list of the jobs of a task that were not started in time; "" without a history."""
    history = page.admin_site._registry.get(PastAttempt)
    if history is None or conf.current().history is None or not history.has_view_permission(request):
        return ""
    terms = [SearchTerm("task", name), SearchTerm("outcome", HistoryOutcome.EXPIRED.name.lower())]
    return page.url(request, "pastattempt", q=join_terms(terms))
