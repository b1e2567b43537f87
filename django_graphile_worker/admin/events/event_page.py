"""The page of events: what happened, the newest first, and the button that dismisses alarms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext, pgettext

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.events import audit_log
from django_graphile_worker.admin.events.event_text import EventText
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors, require_post
from django_graphile_worker.event_texts import GROUPS, KINDS
from django_graphile_worker.models import Event
from django_graphile_worker.sql import events
from django_graphile_worker.sql import events as sql_events
from django_graphile_worker.sql.events import EventCriteria, LoggedEvent

PAGE_SIZE = 50
PROBLEMS, AUDIT = "problems", "audit"
SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
LONGEST_VALUE = 200


class EventAdmin(PageAdmin):
    """The events of workers, schedules, pauses and the database, and the admin's log of users' changes."""

    page_title = gettext_lazy("Events")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        dismiss = self.admin_site.admin_view(self.dismiss_view)
        return [path("dismiss/", dismiss, name="graphile_worker_event_dismiss"), *super().get_urls()]

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        asked = _asked(request)
        context = {
            "tabs": self._tabs(request, asked),
            "asked": asked,
            "spans": self._spans(request, asked),
            "all_workers_url": self.url(request, "event", **{**asked, "worker": ""}),
            "first_url": self.url(request, "event", **asked) if request.GET.get("before") else "",
        }
        if asked["show"] == AUDIT:
            self.require(self._may_view_log(request))
            return self.render(request, "events.html", context | self._audit_context(request, asked))
        return self.render(request, "events.html", context | self._events_context(request, asked))

    @explain_database_errors
    @require_post
    def dismiss_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_app_permission(request, "dismiss_event"))
        kind, until = request.POST.get("kind", ""), _time(request.POST.get("until", ""))
        if kind not in KINDS or until is None:
            raise Http404
        with databases.writing(databases.selected_alias(request)) as (cursor, schema):
            number = sql_events.dismiss(cursor, kind, until=until, by=request.user.get_username(), schema=schema)
            if number:
                audit.log(request, Event, kind, kind, audit.Message(gettext_noop("Dismissed.")))
        text = ngettext("%(number)s event dismissed.", "%(number)s events dismissed.", number) % {
            "number": formatting.number(number)
        }
        messages.success(request, text)
        return HttpResponseRedirect(self.url(request, "overview") or self.url_or_index(request, "event"))

    def _events_context(self, request: HttpRequest, asked: Mapping[str, str]) -> dict[str, Any]:
        criteria = _criteria(asked, _position(request.GET.get("before", "")))
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            found = events.find_events(cursor, criteria, schema=schema, limit=PAGE_SIZE + 1)
        shown, text = found[:PAGE_SIZE], EventText(self, request)
        before = f"{shown[-1].last_at.isoformat()}~{shown[-1].id}" if len(found) > PAGE_SIZE else ""
        return {
            "rows": [_row(event, text) for event in shown],
            "next_url": self.url(request, "event", **asked, before=before) if before else "",
        }

    def _may_view_log(self, request: HttpRequest) -> bool:
        """Return whether the user may see what was done to every job: the entries name jobs, reasons and searches."""
        return audit_log.may_view(request) and self.visible_ids(request, databases.selected_alias(request)) is None

    def _audit_context(self, request: HttpRequest, asked: Mapping[str, str]) -> dict[str, Any]:
        before = request.GET.get("before", "")
        last = int(before) if before.isdecimal() and len(before) < 10 else None
        found = audit_log.read_entries(limit=PAGE_SIZE + 1, before=last)
        shown = found[:PAGE_SIZE]
        next_url = self.url(request, "event", **asked, before=shown[-1].pk) if len(found) > PAGE_SIZE else ""
        entries = [audit_log.row(entry) | {"url": self._job_url(request, entry)} for entry in shown]
        return {"entries": entries, "next_url": next_url, "is_audit": True}

    def _job_url(self, request: HttpRequest, entry: LogEntry) -> str:
        """Return the address of the job that an entry is about, if it is about one job."""
        job_id = audit_log.job_id_of(entry)
        return "" if job_id is None else self.url(request, "job", "change", job_id)

    def _tabs(self, request: HttpRequest, asked: Mapping[str, str]) -> list[tuple[str, str, bool]]:
        names = {
            "": pgettext("page", "All"),
            PROBLEMS: _("Problems"),
            **{name: label for name, (label, _kinds) in GROUPS.items()},
        }
        if self._may_view_log(request):
            names[AUDIT] = _("Audit log")
        others = {name: value for name, value in asked.items() if name != "show"}
        return [
            (
                str(label),
                self.url(request, "event", show=name, **({} if name == AUDIT else others)),
                name == asked["show"],
            )
            for name, label in names.items()
        ]

    def _spans(self, request: HttpRequest, asked: Mapping[str, str]) -> list[tuple[str, str, bool]]:
        names = {"hour": _("Hour"), "day": _("Day"), "week": _("Week"), "": pgettext("page", "All")}
        return [
            (label, self.url(request, "event", **{**asked, "span": name}), name == asked["span"])
            for name, label in names.items()
        ]


def _asked(request: HttpRequest) -> dict[str, str]:
    """Return the filters of the address; unknown values count as none."""
    given = {
        name: request.GET.get(name, "").replace("\x00", "")[:LONGEST_VALUE] for name in ("show", "span", "worker", "q")
    }
    if given["show"] not in (PROBLEMS, AUDIT, *GROUPS):
        given["show"] = ""
    if given["span"] not in SPANS:
        given["span"] = ""
    return given


def _criteria(asked: Mapping[str, str], before: tuple[datetime, int] | None) -> EventCriteria:
    show, span = asked["show"], SPANS.get(asked["span"])
    return EventCriteria(
        kinds=GROUPS[show][1] if show in GROUPS else None,
        severity=sql_events.WARNING if show == PROBLEMS else sql_events.INFORMATION,
        worker=asked["worker"] or None,
        text=asked["q"],
        since=None if span is None else timezone.now() - span,
        before=before,
    )


def _row(event: LoggedEvent, text: EventText) -> dict[str, Any]:
    severities = {1: ("info", _("info")), 2: ("warning", _("warning")), 3: ("error", _("error"))}
    css_class, name = severities.get(event.severity, severities[1])
    return {
        "time": formatting.relative_time(event.last_at),
        "exact_time": formatting.exact_time(event.last_at),
        "severity": css_class,
        "severity_name": name,
        "text": text.of(event),
        "first_time": formatting.relative_time(event.first_at) if event.number > 1 else "",
        "dismissed_by": event.dismissed_by,
        "worker_id": event.worker_id,
    }


def _time(text: str) -> datetime | None:
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def _position(text: str) -> tuple[datetime, int] | None:
    """Return the event after which a page begins, as the address of the page before has it."""
    moment, _separator, number = text.partition("~")
    at = _time(moment)
    return (at, int(number)) if at is not None and number.isdecimal() and len(number) < 19 else None
