"""The pages of the history: attempts that have ended, newest first, and all attempts of one job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext as _

from django_graphile_worker import conf, models
from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.export import exported_attempts
from django_graphile_worker.admin.export.file_response import file_response
from django_graphile_worker.admin.history.history_search import HistoryQuery, of_day, parse_history_search
from django_graphile_worker.admin.jobs.detail.payload_tree import PayloadTree
from django_graphile_worker.admin.jobs.detail.tracebacks import parse_error
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search.search_criteria import job_id as parse_job_id
from django_graphile_worker.admin.search.search_query import SearchTerm, join_terms
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN, redact_text
from django_graphile_worker.sql.inspection import past_attempts
from django_graphile_worker.sql.inspection.past_attempts import HistoryRow
from django_graphile_worker.sql.results import HistoryOutcome

PAGE_SIZE = 50


class PastAttemptAdmin(PageAdmin):
    """The history. It has the attempts of deleted jobs, so it is shown only to users who may see every job."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        export = self.admin_site.admin_view(self.export_view)
        return [path("export/", export, name="graphile_worker_pastattempt_export"), *super().get_urls()]

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        text, day = request.GET.get("q", ""), request.GET.get("day", "")
        query = parse_history_search(text, sees_payloads=self._sees_payloads(request))
        context = {
            "query": text,
            "day": day,
            "mistakes": query.mistakes,
            "is_off": conf.current().history is None,
            "is_restricted": self.visible_ids(request, alias) is not None,
            "rows": [],
        }
        if not context["is_restricted"]:
            context |= self._page(request, alias, query, text, day)
        return self.render(request, "history.html", context)

    def _page(self, request: HttpRequest, alias: str, query: HistoryQuery, text: str, day: str) -> dict[str, Any]:
        criteria = of_day(query.criteria, day)
        with databases.reading(alias) as (cursor, schema):
            after = request.GET.get("after")
            page = past_attempts.find_attempts(cursor, criteria, schema=schema, limit=PAGE_SIZE, after=after)
        next_url = self.url(request, "pastattempt", q=text, day=day, after=page.next_token) if page.next_token else ""
        return {
            "rows": [self._row(request, row) for row in page.rows],
            "next_url": next_url,
            "first_url": self.url(request, "pastattempt", q=text, day=day) if after else "",
            "csv_url": self._export_url(request, query, q=text, day=day, format="csv"),
            "json_url": self._export_url(request, query, q=text, day=day, format="json"),
            "is_cut_off": page.is_cut_off,
            "is_day_cut_off": page.is_day_cut_off,
            "most_examined": formatting.number(past_attempts.MAX_EXAMINED),
        }

    def _export_url(self, request: HttpRequest, query: HistoryQuery, **parameters: str) -> str:
        return "" if query.mistakes else self.url(request, "pastattempt", "export", **parameters)

    @explain_database_errors
    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Send the attempts that match as a file."""
        alias, text, day = databases.selected_alias(request), request.GET.get("q", ""), request.GET.get("day", "")
        self.require(self.has_view_permission(request) and self.visible_ids(request, alias) is None)
        sees_payloads = self._sees_payloads(request)
        query = parse_history_search(text, sees_payloads=sees_payloads)
        if query.mistakes:
            messages.error(request, " ".join([_("Nothing was exported."), *query.mistakes]))
            return HttpResponseRedirect(self.url(request, "pastattempt", q=text, day=day))
        return file_response(
            request,
            exported_attempts.read_attempts(alias, of_day(query.criteria, day), sees_payloads=sees_payloads),
            exported_attempts.COLUMNS,
            name="attempts",
            model=models.PastAttempt,
            description=" ".join(filter(None, (day, text))) or _("all attempts"),
        )

    @explain_database_errors
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show all attempts of a job, with their errors."""
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        try:
            job_id = parse_job_id(object_id)
        except ValueError:
            raise Http404 from None
        self.require(self.visible_ids(request, alias) is None)
        with databases.reading(alias) as (cursor, schema):
            attempts = past_attempts.attempts_of_job(cursor, job_id, schema=schema)
        context = {
            "title": _("History of job %(id)s") % {"id": job_id},
            "rows": [self._row(request, row) | self._details(request, row) for row in attempts],
            "job_url": self.url(request, "job", "change", job_id),
            "list_url": self.url(request, "pastattempt"),
            "most": past_attempts.MAX_ATTEMPTS_SHOWN if len(attempts) >= past_attempts.MAX_ATTEMPTS_SHOWN else 0,
        }
        return self.render(request, "job_history.html", context, status=200 if attempts else 404)

    def _sees_payloads(self, request: HttpRequest) -> bool:
        return self.has_app_permission(request, "view_payload")

    def _row(self, request: HttpRequest, row: HistoryRow) -> dict[str, Any]:
        return {
            "job_id": row.job_id,
            "url": self.url(request, "pastattempt", "change", row.job_id),
            "task": row.task_identifier,
            "task_url": self._search(request, "task", row.task_identifier),
            "queue": row.queue_name,
            "queue_url": self._search(request, "queue", row.queue_name or "?"),
            "key": row.job_key,
            "worker": row.worker_id,
            "attempt": row.attempt,
            "outcome": outcome_class(row.outcome),
            "outcome_name": outcome_name(row.outcome),
            "ended": formatting.relative_time(row.ended_at),
            "ended_exactly": formatting.exact_time(row.ended_at),
            "duration": formatting.duration(row.seconds),
            "error": error_summary.summarize(row.error, sees_payloads=self._sees_payloads(request)),
        }

    def _details(self, request: HttpRequest, row: HistoryRow) -> dict[str, Any]:
        sees_payloads = self._sees_payloads(request)
        error = row.error or ""
        return {
            "parsed_error": parse_error(error if sees_payloads else redact_text(error)) if error else None,
            "payload": _payload(row.payload_text, sees_payloads=sees_payloads),
            "facts": list(_facts(row)),
        }

    def _search(self, request: HttpRequest, name: str, value: str) -> str:
        return self.url(request, "pastattempt", q=join_terms([SearchTerm(name, value)]))


def _facts(row: HistoryRow) -> Iterator[tuple[str, str]]:
    yield _("Added"), formatting.exact_time(row.added_at)
    yield _("Due"), formatting.exact_time(row.run_at)
    if row.started_at is not None:
        yield _("Started"), formatting.exact_time(row.started_at)
    yield _("Ended"), formatting.exact_time(row.ended_at)
    if row.worker_id is not None:
        yield _("Worker"), row.worker_id


def _payload(text: str | None, *, sees_payloads: bool) -> Any:
    if text is None:
        return ""
    if not sees_payloads:
        return HIDDEN
    value = decode_leniently(text)
    return value if isinstance(value, RawPayload) else PayloadTree().render(value)


def outcome_class(outcome: int) -> str:
    """Return the colour of an outcome: that of the state of a job that ended so."""
    return {
        HistoryOutcome.SUCCEEDED: "succeeded",
        HistoryOutcome.FAILED: "retrying",
        HistoryOutcome.PERMANENTLY_FAILED: "failed",
        HistoryOutcome.FAILED_BY_OPERATOR: "failed",
        HistoryOutcome.LOST: "lost",
    }.get(HistoryOutcome(outcome), "removed")


def outcome_name(outcome: int) -> str:
    return {
        HistoryOutcome.SUCCEEDED: _("Succeeded"),
        HistoryOutcome.FAILED: _("Retried"),
        HistoryOutcome.PERMANENTLY_FAILED: _("Failed"),
        HistoryOutcome.INTERRUPTED: _("Interrupted"),
        HistoryOutcome.LOST: _("Worker lost"),
        HistoryOutcome.REMOVED_BY_OPERATOR: _("Removed"),
        HistoryOutcome.FAILED_BY_OPERATOR: _("Failed by an operator"),
        HistoryOutcome.CANCELLED: _("Cancelled"),
        HistoryOutcome.EXPIRED: _("Expired"),
    }[HistoryOutcome(outcome)]
