"""The overview: problems, tiles, tasks, queues and charts. With ``?task=``, the page of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, formatting, pause_notice
from django_graphile_worker.admin.charts import SPANS, Chart, ChartPeriods, Span
from django_graphile_worker.admin.errors import NamedErrors, error_row
from django_graphile_worker.admin.jobs.task_facts import task_facts
from django_graphile_worker.admin.overview import figures
from django_graphile_worker.admin.overview.activity import Subject, draw_charts, selected_subject, subject_groups
from django_graphile_worker.admin.overview.figures import FiguresOfTask, OverviewFigures
from django_graphile_worker.admin.overview.problems import all_problems
from django_graphile_worker.admin.overview.readings import BoundedReader
from django_graphile_worker.admin.overview.tasks import requested_page, task_context
from django_graphile_worker.admin.overview.tiles import job_tiles, schedule_tiles, worker_tiles
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search_terms import SearchTerm, waiting_in_queue
from django_graphile_worker.models import PastAttempt
from django_graphile_worker.sql.inspection import lock_holders, queue_depths
from django_graphile_worker.sql.statistics import TASK

# Further problems are folded away.
MAX_PROBLEMS = 3
# Further charts are folded away.
MAX_CHARTS = 2


class OverviewAdmin(PageAdmin):
    """The overview, which sends a fixed number of cheap queries, and the page of each task."""

    def get_charts(self, request: HttpRequest, periods: ChartPeriods, task: str | None) -> Sequence[Chart]:
        """Return charts of the project for the overview, or for the page of a task."""
        return ()

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        if self.visible_ids(request, alias) is not None:
            return self._restricted(request)
        span = SPANS.get(request.GET.get("span", ""), SPANS["hour"])
        subject = selected_subject(request)
        paused = pause_notice.read_pauses(alias)
        pauses = self.pauses_context(request, paused)
        if subject.kind == TASK:
            found = figures.shared(
                request, alias, (span.name, subject), lambda last: figures.read_task(alias, span, subject, paused, last)
            )
            context = self._task_context(request, found, span, subject)
            return self.render(request, "task.html", pauses | context | (extra_context or {}))
        asked_tasks = requested_page(request)
        asked = (span.name, subject, asked_tasks)
        read = figures.shared(
            request, alias, asked, lambda last: figures.read_overview(alias, span, subject, asked_tasks, paused, last)
        )
        context = self._overview_context(request, read, span, subject) | (extra_context or {})
        return self.render(request, self.change_list_template or "overview.html", pauses | context)

    def _restricted(self, request: HttpRequest) -> HttpResponse:
        """Show no figures to users that may not see every job, because the figures cover all jobs."""
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            holders = lock_holders.holders(cursor, schema=schema)
        workers = lock_holders.slots_of(holders, conf.current().worker_timeout)
        context = {
            "is_restricted": True,
            "tiles": worker_tiles(self, request, workers)[:1],
            "jobs_url": self.url(request, "job"),
        }
        return self.render(request, "overview.html", context)

    def _overview_context(
        self, request: HttpRequest, read: OverviewFigures, span: Span, subject: Subject
    ) -> dict[str, Any]:
        now, query = timezone.now(), {"span": span.name, **subject.query}
        timeout = conf.current().worker_timeout
        found = all_problems(self, request, read)
        names = {TASK: read.tasks.page.names, **read.names}
        return {
            **_late_context(read.reader),
            "problems": found[:MAX_PROBLEMS],
            "more_problems": found[MAX_PROBLEMS:],
            "dismiss_url": self.url(request, "event", "dismiss"),
            "tiles": [
                *job_tiles(self, request, read.counts, read.sample, read.oldest, now),
                *worker_tiles(
                    self,
                    request,
                    lock_holders.slots_of(read.holders, timeout),
                    versions=lock_holders.versions_of(read.holders, timeout),
                ),
                *schedule_tiles(self, request, failing=read.failing_schedules, missed=read.schedules_that_missed),
            ],
            **task_context(self, request, read.tasks, read.sample, span, read.now, query),
            "queues": [self._queue_row(request, queue) for queue in read.queues],
            "queues_url": self.url(request, "jobqueue"),
            **self._chart_context(request, read, span, subject),
            "subject_groups": subject_groups(names, subject),
            "all_jobs_url": self.url(request, "overview", span=span.name),
        }

    def _chart_context(
        self, request: HttpRequest, read: OverviewFigures | FiguresOfTask, span: Span, subject: Subject
    ) -> dict[str, Any]:
        charts = draw_charts(read.charts, span, read.now)
        # A chart of a queue or a worker stands beside no chart of something else.
        task = subject.name if subject.kind == TASK else None
        has_own = subject.kind in ("", TASK)
        own = self.get_charts(request, ChartPeriods(span, read.now), task) if has_own else ()
        spans = {"hour": _("Hour"), "day": _("Day"), "week": _("Week")}
        return {
            "charts": [*(charts if subject.kind == TASK else charts[:MAX_CHARTS]), *own],
            "more_charts": [] if subject.kind == TASK else charts[MAX_CHARTS:],
            "charts_title": subject.title,
            "subject": subject,
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
            "is_empty": not queue.number,
            # A queue whose jobs are all due later has no job that waits.
            "oldest": formatting.duration(queue.oldest_seconds if (queue.oldest_seconds or 0.0) > 0.0 else None),
            "is_paused": queue.is_paused,
            "worker_id": None if queue.is_paused else queue.locked_by,
            "is_lost": queue.holder_state == "lost",
            "locked_at": formatting.relative_time(queue.locked_at) if queue.locked_at else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name))),
            "waiting_url": self.url(request, "job", q=waiting_in_queue(queue.queue_name)),
        }

    def _task_context(self, request: HttpRequest, read: FiguresOfTask, span: Span, subject: Subject) -> dict[str, Any]:
        name, term = subject.name, str(SearchTerm("task", subject.name))
        slots = lock_holders.slots_of(read.holders, conf.current().worker_timeout, task=name)
        errors_url = self.url(request, "errorgroup", q=name)
        history = self.admin_site._registry.get(PastAttempt)
        has_history = history is not None and conf.current().history is not None
        return {
            **_late_context(read.reader),
            "title": name,
            "tiles": [
                *job_tiles(self, request, read.counts, None, read.oldest, timezone.now(), query=term),
                *worker_tiles(self, request, slots, _("Workers that run it")),
            ],
            **self._chart_context(request, read, span, subject),
            # Who may not open the page of errors does not see them here.
            "errors": self._errors(request, read) if errors_url else [],
            "task_facts": task_facts(name),
            "jobs_url": self.url(request, "job", q=term),
            "errors_url": errors_url,
            "history_url": self.url(request, "pastattempt", q=term) if has_history else "",
            "overview_url": self.url(request, "overview", span=span.name),
            "pause_url": self.url(request, "pausedwork", kind="task", name=name)
            if self.has_pause_permission(request)
            else "",
        }

    def _errors(self, request: HttpRequest, read: FiguresOfTask) -> list[dict[str, Any]]:
        return [error_row(self, request, NamedErrors(each.name, [each], is_part=True)) for each in read.errors]


def _late_context(reader: BoundedReader) -> dict[str, Any]:
    since = reader.late_since
    return {"is_late": reader.is_late, "late_since": formatting.relative_time(since) if since else ""}
