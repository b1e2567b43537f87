"""Writes the sentences about an event as HTML: names are isolated, and link to pages that the user may see."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from django_graphile_worker import models
from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.event_texts import Name, Sentence, Style, describe
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.events import LoggedEvent

# The pages that names link to, by the kind of the name.
PAGES = {
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
        self._may_view = {kind: self._is_visible(model) for kind, model in PAGES.items()}

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
        address = self._address(value) if self._may_view.get(value.kind) else ""
        if not address:
            return format_html("<bdi>{}</bdi>", value.text)
        return format_html('<a href="{}"><bdi>{}</bdi></a>', address, value.text)

    def _address(self, name: Name) -> str:
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
