"""A job as lists of the admin show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker.admin import error_summary, formatting
from django_graphile_worker.admin.jobs import failure_times
from django_graphile_worker.admin.jobs.job_list.payload_preview import payload_preview
from django_graphile_worker.admin.jobs.states import flag_names, state_name
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.admin.shown_progress import ShownProgress, shown_progress
from django_graphile_worker.job_flags import without_run_flags
from django_graphile_worker.registry import DEFAULT_LABEL, split_identifier
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import State


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the list shows it."""

    id: int
    url: str
    task: str
    task_url: str
    # Of a Django task, unless it is the label "default".
    label: str
    label_url: str
    state: State
    state_name: str
    queue: str | None
    queue_url: str
    priority: int
    attempts: str
    time: SafeString | str
    key: str | None
    flags: list[str]
    error: error_summary.ErrorSummary
    progress: ShownProgress | None
    created: SafeString | str
    worker: str | None
    worker_url: str
    # The beginning of the payload; None if it is too large to be read for a list.
    payload: str | None = ""


def make_row(
    page: PageAdmin,
    request: HttpRequest,
    row: search.JobRow,
    payload: str | None,
    changes: Sequence[LogEntry],
    *,
    sees_payloads: bool,
) -> JobRow:
    """Return a job with its links. `payload` is the beginning of its payload, None if that is too large to be read.

    `changes` are the entries in the log about a failed job.
    """
    task, label = split_identifier(row.task_identifier or "")
    return JobRow(
        id=row.id,
        url=page.url(request, "job", "change", quote(str(row.id))),
        task=task or _("unknown task"),
        task_url=page.url(request, "job", q=str(SearchTerm("task", row.task_identifier or "?"))),
        label="" if label == DEFAULT_LABEL else label,
        label_url=page.url(request, "job", q=str(SearchTerm("label", label))),
        state=row.state,
        state_name=state_name(row.state),
        queue=row.queue_name,
        queue_url=page.url(request, "job", q=str(SearchTerm("queue", row.queue_name or "?"))),
        priority=row.priority,
        attempts=f"{row.attempts_made}/{row.max_attempts}",
        time=_time(row, changes),
        key=row.key,
        flags=without_run_flags(flag_names(row.flags_text)),
        error=error_summary.summarize(row.error, sees_payloads=sees_payloads),
        progress=shown_progress(row.progress, sees_payloads=sees_payloads, started_at=row.locked_at),
        created=formatting.relative_time(row.created_at),
        worker=row.locked_by,
        worker_url=_worker_url(page.url(request, "worker"), row.locked_by or ""),
        payload=None if payload is None else payload_preview(payload),
    )


def _time(row: search.JobRow, changes: Sequence[LogEntry]) -> SafeString | str:
    """Return the time of the last column: of a failed job the time of its failure, not that of a later change."""
    if row.state is State.FAILED and changes:
        shown: SafeString | str = failure_times.failure_time(row, changes, timezone.now()).shown()
        return shown
    return formatting.relative_time(row.moment)


def _worker_url(page_url: str, worker_id: str) -> str:
    """Return the address of a worker on the page of workers; "" if the user may not see the page."""
    return f"{page_url}#gw-worker-{quote(worker_id)}" if page_url else ""
