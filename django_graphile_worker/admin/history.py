"""The pages of the history: attempts that have ended, newest first, all attempts of one job, and files of attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker import conf, models
from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.export import file_response
from django_graphile_worker.admin.jobs.job_contents import PayloadTree, parse_error
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search_terms import MAX_LENGTH, MAX_TERMS, SearchTerm, parse_terms, time_range
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN, redact_text
from django_graphile_worker.sql.inspection import past_attempts
from django_graphile_worker.sql.inspection.past_attempts import HistoryCriteria, HistoryRow
from django_graphile_worker.sql.results import HistoryOutcome

NO_CRITERIA = HistoryCriteria()


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A parsed search: its terms, their criteria, and the errors in the rest of the text."""

    terms: tuple[SearchTerm, ...] = ()
    criteria: HistoryCriteria = NO_CRITERIA
    errors: tuple[str, ...] = ()


def parse_history_search(text: str, *, sees_payloads: bool) -> HistoryQuery:
    """Parse the text of the search box. Report what cannot be parsed as errors, and use the rest."""
    terms = list(parse_terms(text, [*PARSERS], has_ids=False))
    query = HistoryQuery(criteria=replace(NO_CRITERIA, searches_payloads=sees_payloads))
    if len(text) > MAX_LENGTH or len(terms) > MAX_TERMS:
        limits = {"characters": MAX_LENGTH, "conditions": MAX_TERMS}
        message = _("A search has at most %(characters)s characters and %(conditions)s conditions.")
        query = replace(query, errors=(message % limits,))
    for term in terms[:MAX_TERMS]:
        try:
            criteria = _add_term(query.criteria, term, sees_payloads=sees_payloads)
        except ValueError as error:
            query = replace(query, errors=(*query.errors, f"{term}: {error}"))
        else:
            query = replace(query, terms=(*query.terms, term), criteria=criteria)
    return query


def _add_term(criteria: HistoryCriteria, term: SearchTerm, *, sees_payloads: bool) -> HistoryCriteria:
    if not term.value:
        raise ValueError(_("A value is missing."))
    if term.is_negative:
        raise ValueError(_("The history has no search for what does not match."))
    if not term.name:
        return replace(criteria, anywhere=(*criteria.anywhere, term.value))
    # A user could find out a hidden text by trying texts until one matches.
    if term.name == "error" and not sees_payloads:
        raise ValueError(_("You may not see the texts of errors."))
    if term.name == "payload" and not sees_payloads:
        raise ValueError(_("You may not see payloads."))
    parse = PARSERS.get(term.name)
    if parse is None:
        known = ", ".join(f"{each}:" for each in PARSERS)
        raise ValueError(_("The conditions are %(names)s.") % {"names": known})
    return parse(criteria, term.value)


def of_day(criteria: HistoryCriteria, text: str) -> HistoryCriteria:
    """Return the criteria for the attempts of one day; an invalid day is ignored, as the field offers none."""
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None or not 1 < day.year < 9999:
        return criteria
    first, last = (timezone.make_aware(datetime.combine(day, moment)) for moment in (time.min, time.max))
    return replace(criteria, ended_at=(first, last))


def _texts(field: str) -> Callable[[HistoryCriteria, str], HistoryCriteria]:
    def parse(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
        changes: dict[str, Any] = {field: (*getattr(criteria, field), value)}
        return replace(criteria, **changes)

    return parse


def _ids(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
    return replace(criteria, ids=(*criteria.ids, *(parse_job_id(text) for text in value.split(","))))


def parse_job_id(text: str) -> int:
    """Return the id of a job; raise ValueError for other texts."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63):
        raise ValueError(_("This is no id of a job."))
    return int(text)


def _outcome(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
    names = {each.name.lower(): each for each in HistoryOutcome}
    if value not in names:
        raise ValueError(_("The outcomes are %(names)s.") % {"names": ", ".join(names)})
    return replace(criteria, outcomes=(*criteria.outcomes, int(names[value])))


def _ended(criteria: HistoryCriteria, value: str) -> HistoryCriteria:
    return replace(criteria, ended_at=time_range(value, -1))


PARSERS: dict[str, Callable[[HistoryCriteria, str], HistoryCriteria]] = {
    "id": _ids,
    "key": _texts("keys"),
    "task": _texts("tasks"),
    "queue": _texts("queues"),
    "worker": _texts("workers"),
    "outcome": _outcome,
    "error": _texts("errors"),
    "payload": _texts("payload"),
    "ended": _ended,
}


PAGE_SIZE = 50


# The colour of each outcome, which is that of the state of a job that ended so, and its name.
OUTCOMES: dict[int, tuple[str, Any]] = {
    HistoryOutcome.SUCCEEDED: ("succeeded", gettext_lazy("Succeeded")),
    HistoryOutcome.FAILED: ("retrying", gettext_lazy("Retried")),
    HistoryOutcome.PERMANENTLY_FAILED: ("failed", gettext_lazy("Failed")),
    HistoryOutcome.INTERRUPTED: ("removed", gettext_lazy("Interrupted")),
    HistoryOutcome.LOST: ("lost", gettext_lazy("Worker lost")),
    HistoryOutcome.REMOVED_BY_OPERATOR: ("removed", gettext_lazy("Removed")),
    HistoryOutcome.FAILED_BY_OPERATOR: ("failed", gettext_lazy("Failed by an operator")),
    HistoryOutcome.CANCELLED: ("removed", gettext_lazy("Cancelled")),
    HistoryOutcome.EXPIRED: ("removed", gettext_lazy("Expired")),
}


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
            "mistakes": query.errors,
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
        return "" if query.errors else self.url(request, "pastattempt", "export", **parameters)

    @explain_database_errors
    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Send the attempts that match as a file."""
        alias, text, day = databases.selected_alias(request), request.GET.get("q", ""), request.GET.get("day", "")
        self.require(self.has_view_permission(request) and self.visible_ids(request, alias) is None)
        sees_payloads = self._sees_payloads(request)
        query = parse_history_search(text, sees_payloads=sees_payloads)
        if query.errors:
            messages.error(request, " ".join([_("Nothing was exported."), *query.errors]))
            return HttpResponseRedirect(self.url(request, "pastattempt", q=text, day=day))
        return file_response(
            request,
            read_attempts(alias, of_day(query.criteria, day), sees_payloads=sees_payloads),
            COLUMNS,
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
        outcome, outcome_name = OUTCOMES[row.outcome]
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
            "outcome": outcome,
            "outcome_name": outcome_name,
            "ended": formatting.relative_time(row.ended_at),
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
        return self.url(request, "pastattempt", q=str(SearchTerm(name, value)))


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


# How many attempts are read at a time for a file.
STEP = 500
COLUMNS = (
    "job_id",
    "attempt",
    "task",
    "outcome",
    "queue",
    "key",
    "worker",
    "added_at",
    "run_at",
    "started_at",
    "ended_at",
    "seconds",
    "error",
)


def read_attempts(alias: str, criteria: HistoryCriteria, *, sees_payloads: bool) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the attempts that meet the criteria, some at a time. The rows of the history do not change."""
    token: str | None = None
    while True:
        with databases.reading(alias) as (cursor, schema):
            page = past_attempts.find_attempts(cursor, criteria, schema=schema, limit=STEP, after=token)
        yield [_file_row(row, sees_payloads=sees_payloads) for row in page.rows]
        token = page.next_token
        if token is None:
            return


def _file_row(row: HistoryRow, *, sees_payloads: bool) -> dict[str, Any]:
    return {
        "job_id": row.job_id,
        "attempt": row.attempt,
        "task": row.task_identifier,
        "outcome": HistoryOutcome(row.outcome).name.lower(),
        "queue": row.queue_name,
        "key": row.job_key,
        "worker": row.worker_id,
        "added_at": row.added_at,
        "run_at": row.run_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "seconds": row.seconds,
        "error": row.error if sees_payloads or row.error is None else redact_text(row.error),
    }
