"""The page of events, the newest first: what happened to workers, schedules and the database, and what users changed.

``EventText`` writes the sentences of ``django_graphile_worker.event_texts`` as HTML with links, for the overview, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from django_graphile_worker import models
from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors, require_post
from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.event_texts import GROUPS, KINDS, Name, Sentence, Style, describe
from django_graphile_worker.models import Event, Job
from django_graphile_worker.sql import events
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.events import EventCriteria, LoggedEvent

# The pages that names link to, by the kind of the name.
MODELS = {
    "worker": models.Event,
    "queue": models.Job,
    "task": models.Job,
    "flag": models.Job,
    "job": models.Job,
    "item": models.Schedule,
    "limit": models.LimitKey,
}


class EventText:
    """The sentences of events for one request."""

    def __init__(self, page: PageAdmin, request: HttpRequest) -> None:
        self._page = page
        self._request = request
        self._style = Style(duration=formatting.duration, moment=_exact_time)
        # By kind of name: whether the user may see the page that it links to.
        self._may_view = {kind: self._is_visible(model) for kind, model in MODELS.items()}

    def of(self, event: LoggedEvent) -> SafeString:
        """Return the whole text of an event."""
        return self.joined(describe(event, self._style))

    def joined(self, sentences: Iterable[Sentence]) -> SafeString:
        return format_html_join(" ", "{}", ((self.html(sentence),) for sentence in sentences))

    def html(self, sentence: Sentence) -> SafeString:
        values = {name: self._value(value) for name, value in sentence.values.items()}
        # The text is a translation of this package, and is escaped; each value is escaped above.
        return mark_safe(escape(sentence.text) % values)

    def _value(self, value: Any) -> SafeString:
        if not isinstance(value, Name):
            return format_html("<bdi>{}</bdi>", value)
        url = self._url(value) if self._may_view.get(value.kind) else ""
        if not url:
            return format_html("<bdi>{}</bdi>", value.text)
        return format_html('<a href="{}"><bdi>{}</bdi></a>', url, value.text)

    def _url(self, name: Name) -> str:
        if name.kind == "worker":
            return self._page.url(self._request, "event", worker=name.id or name.text)
        if name.kind == "job":
            return self._page.url(self._request, "job", "change", name.id)
        if name.kind in ("queue", "task", "flag"):
            return self._page.url(self._request, "job", q=str(SearchTerm(name.kind, name.text)))
        if name.kind == "item":
            return self._page.url(self._request, "schedule", q=name.text)
        return self._page.url(self._request, "limitkey")

    def _is_visible(self, model: Any) -> bool:
        page = self._page.admin_site._registry.get(model)
        return page is not None and bool(page.has_view_permission(self._request))


def _exact_time(moment: datetime) -> str:
    return formatting.exact_time(moment if settings.USE_TZ else naive(moment))


PAGE_SIZE = 50
PROBLEMS, AUDIT = "problems", "audit"
SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
MAX_LENGTH = 200


class EventAdmin(PageAdmin):
    """The events of workers, schedules, pauses and the database, and the admin's log of users' changes."""

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
            number = events.dismiss(cursor, kind, until=until, by=request.user.get_username(), schema=schema)
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
        may_view = request.user.has_perm("admin.view_logentry")
        return may_view and self.visible_ids(request, databases.selected_alias(request)) is None

    def _audit_context(self, request: HttpRequest, asked: Mapping[str, str]) -> dict[str, Any]:
        before = request.GET.get("before", "")
        last = int(before) if before.isdecimal() and len(before) < 10 else None
        found = _log_entries(limit=PAGE_SIZE + 1, before=last)
        shown = found[:PAGE_SIZE]
        next_url = self.url(request, "event", **asked, before=shown[-1].pk) if len(found) > PAGE_SIZE else ""
        return {"entries": [self._entry_row(request, entry) for entry in shown], "next_url": next_url, "is_audit": True}

    def _entry_row(self, request: HttpRequest, entry: LogEntry) -> dict[str, Any]:
        kind = entry.content_type.model if entry.content_type else ""
        is_of_job = kind == Job._meta.model_name and (entry.object_id or "").isdecimal()
        return {
            "time": formatting.relative_time(entry.action_time),
            "user": entry.user.get_username(),
            "object": entry.object_repr,
            "message": audit.message_of(entry),
            "url": self.url(request, "job", "change", entry.object_id) if is_of_job else "",
        }

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
    """Return the filters of the URL; unknown values count as none."""
    given = {
        name: request.GET.get(name, "").replace("\x00", "")[:MAX_LENGTH] for name in ("show", "span", "worker", "q")
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
        severity=events.WARNING if show == PROBLEMS else events.INFORMATION,
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
    """Return the event after which a page begins, as the URL of the page before has it."""
    moment, _separator, number = text.partition("~")
    at = _time(moment)
    return (at, int(number)) if at is not None and number.isdecimal() and len(number) < 19 else None


def _log_entries(*, limit: int, before: int | None) -> list[LogEntry]:
    """Return entries, the newest first, before the entry with this id."""
    entries = LogEntry.objects.filter(content_type__app_label=Job._meta.app_label)
    if before is not None:
        entries = entries.filter(pk__lt=before)
    return list(entries.select_related("user", "content_type").order_by("-pk")[:limit])
