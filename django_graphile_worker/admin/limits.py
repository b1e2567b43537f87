"""The limits page: the numbers of each limit, which an operator changes, and the keys whose jobs wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.audit import Message
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.api.limits import LimitStatus, limit_statuses, override_limit, reset_limit
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits import LARGEST_CONCURRENCY, LARGEST_COUNT, LimitNumbers, Rate
from django_graphile_worker.models import LimitKey
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.inspection import limited_keys
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.inspection.limited_keys import LimitedKey


def numbers_parts(numbers: LimitNumbers) -> list[Message]:
    """Return the parts of a list, such as "3 at once", "100/m" and "burst 20", for the log."""
    parts = []
    if numbers.concurrency is not None:
        parts.append(Message(gettext_noop("%(number)s at once"), {"number": numbers.concurrency}))
    if numbers.rate is not None:
        parts.append(Message("%(rate)s", {"rate": str(numbers.rate)}))
    if numbers.burst is not None:
        parts.append(Message(gettext_noop("burst %(number)s"), {"number": numbers.burst}))
    return parts or [Message(gettext_noop("no limit"))]


def numbers_text(numbers: LimitNumbers) -> str:
    return ", ".join(map(str, numbers_parts(numbers)))


class LimitForm(forms.Form):
    """The three numbers of a limit, as they count now. An empty field is no limit of that kind."""

    concurrency = forms.IntegerField(
        label=gettext_lazy("At once"),
        required=False,
        min_value=1,
        max_value=LARGEST_CONCURRENCY,
        help_text=gettext_lazy("How many jobs of a key may run at the same time. Empty: any number."),
    )
    rate = forms.CharField(
        label=gettext_lazy("Rate"),
        required=False,
        max_length=40,
        help_text=gettext_lazy("How many may start in a time, such as 100/m or 300/15m. Empty: any number."),
    )
    burst = forms.IntegerField(
        label=gettext_lazy("Burst"),
        required=False,
        min_value=1,
        max_value=LARGEST_COUNT,
        help_text=gettext_lazy("How many of the starts of a rate may follow each other at once. Empty: all of them."),
    )

    def __init__(self, data: Any, *, limit: LimitStatus) -> None:
        numbers = limit.numbers
        initial = {"concurrency": numbers.concurrency, "rate": numbers.rate, "burst": numbers.burst}
        super().__init__(data, initial=initial)
        # Set by clean().
        self.numbers = numbers

    def clean_rate(self) -> Rate | None:
        try:
            text = self.cleaned_data["rate"]
            return Rate.parse(text) if text else None
        except (InvalidJobError, InvalidTypeError) as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        values = {name: self.cleaned_data.get(name) for name in ("concurrency", "rate", "burst")}
        if not self.errors:
            try:
                self.numbers = LimitNumbers(**values, where="limit")
            except (InvalidJobError, InvalidTypeError) as error:
                self.add_error("burst", str(error))
        return values


PAGE_SIZE = 50


class LimitKeyAdmin(PageAdmin):
    """The limits and the keys at their limit. The numbers are changed here, for all workers, with a permission."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        numbers = self.admin_site.admin_view(self.numbers_view)
        return [path("numbers/", numbers, name="graphile_worker_limitkey_numbers"), *super().get_urls()]

    def has_override_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "override_limit")

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        if self.visible_ids(request, alias) is not None:
            context = {"is_restricted": True, "jobs_url": self.url(request, "job")}
            return self.render(request, "limits.html", context)
        text = request.GET.get("q", "").replace("\x00", "")[:600]
        after = request.GET.get("after", "")
        with databases.reading(alias) as (cursor, schema):
            limits = limit_statuses(cursor, place_of(alias))
            names = [each.name for each in limits]
            keys = (
                limited_keys.named_keys(cursor, text, names, schema=schema, limit=PAGE_SIZE)
                if text
                else limited_keys.waiting_keys(cursor, schema=schema, limit=PAGE_SIZE + 1, after=_number(after))
            )
        is_cut = len(keys) > PAGE_SIZE
        context = {
            "limits": [self._limit_row(request, each) for each in limits],
            "keys": [self._key_row(request, key, limits) for key in keys[:PAGE_SIZE]],
            "query": text,
            "may_override": self.has_override_permission(request),
            "next_url": self.url(request, "limitkey", after=keys[PAGE_SIZE - 1].id) if is_cut else "",
            "first_url": self.url(request, "limitkey") if after else "",
        }
        return self.render(request, "limits.html", context)

    @explain_database_errors
    def numbers_view(self, request: HttpRequest) -> HttpResponse:
        """Show and store the numbers of a limit, or delete the stored numbers."""
        self.require(self.has_view_permission(request) and self.has_override_permission(request))
        alias = databases.selected_alias(request)
        name = request.POST.get("limit") or request.GET.get("limit", "")
        with databases.reading(alias) as (cursor, _schema):
            limit = next((each for each in limit_statuses(cursor, place_of(alias)) if each.name == name), None)
        if limit is None:
            raise Http404
        form = LimitForm(
            request.POST if request.method == "POST" and "reset" not in request.POST else None, limit=limit
        )
        if request.method == "POST" and ("reset" in request.POST or form.is_valid()):
            self._store(request, limit, None if "reset" in request.POST else form)
            return HttpResponseRedirect(self.url(request, "limitkey"))
        context = {
            "title": _("Numbers of %(limit)s") % {"limit": name},
            "form": form,
            "limit": limit,
            "defined": "" if limit.defined is None else numbers_text(limit.defined),
            "list_url": self.url(request, "limitkey"),
        }
        return self.render(request, "limit_numbers.html", context)

    def _store(self, request: HttpRequest, limit: LimitStatus, form: LimitForm | None) -> None:
        alias = databases.selected_alias(request)
        with databases.writing(alias):
            if form is None:
                reset_limit(limit.name, changed_by=request.user.get_username(), using=alias)
                message = Message(gettext_noop("Numbers of the code."))
            else:
                override_limit(limit.name, form.numbers, changed_by=request.user.get_username(), using=alias)
                numbers = {"numbers": numbers_parts(form.numbers), "before": numbers_parts(limit.numbers)}
                message = Message(gettext_noop("Numbers: %(numbers)s, before: %(before)s."), numbers)
            audit.log(request, LimitKey, limit.name, limit.name, message)
        messages.success(request, _("The numbers of %(limit)s count for all workers now.") % {"limit": limit.name})

    def _limit_row(self, request: HttpRequest, limit: LimitStatus) -> dict[str, Any]:
        return {
            "name": limit.name,
            "concurrency": limit.numbers.concurrency,
            "rate": limit.numbers.rate and str(limit.numbers.rate),
            "burst": limit.numbers.burst,
            "is_fair": limit.is_fair,
            "tasks": limit.tasks,
            "changed_by": limit.changed_by,
            "changed_at": formatting.relative_time(limit.changed_at) if limit.changed_at else "",
            "defined": "" if limit.defined is None else numbers_text(limit.defined),
            "url": self.url(request, "limitkey", "numbers", limit=limit.name),
        }

    def _key_row(self, request: HttpRequest, key: LimitedKey, limits: list[LimitStatus]) -> dict[str, Any]:
        sees_payloads = self.has_app_permission(request, "view_payload")
        numbers = next((limit.numbers for limit in limits if limit.name == key.limit_name), None)
        running = formatting.capped_number(key.running, limited_keys.MAX_COUNTED)
        most = None if numbers is None else numbers.concurrency
        return {
            "text": key.key_text if sees_payloads else redact_text(key.key_text),
            "limit": key.limit_name,
            "numbers": "" if numbers is None else numbers_text(numbers),
            "reason": _reason(key),
            "running": running if most is None else f"{running} / {formatting.number(most)}",
            "running_jobs": [
                {
                    "id": job.id,
                    "task": job.task,
                    "url": self.url(request, "job", "change", job.id),
                    "since": formatting.relative_time(datetime.fromtimestamp(job.since, UTC)),
                }
                for job in key.running_jobs
            ],
            # The text of a key contains values of the payload, so only users that see payloads can search for it.
            "waiting_url": self._key_url(request, key) if sees_payloads and key.waiting else "",
            "waiting": formatting.capped_number(key.waiting, limited_keys.MAX_COUNTED),
            "tasks": [(task, self._waiting_url(request, task)) for task in key.tasks],
            "since": formatting.relative_time(key.blocked_at) if key.blocked_at else "",
            "oldest": formatting.relative_time(key.oldest_run_at) if key.oldest_run_at else "",
        }

    def _key_url(self, request: HttpRequest, key: LimitedKey) -> str:
        return self.url(request, "job", q=str(SearchTerm("limit", key.key_text)), state=State.LIMITED.value)

    def _waiting_url(self, request: HttpRequest, task: str) -> str:
        return self.url(request, "job", q=str(SearchTerm("task", task)), state=State.LIMITED.value)


def _reason(key: LimitedKey) -> str:
    """Return what the jobs of the key wait for."""
    if key.closed_until is not None:
        return format_html(_("a task closed it; it opens {time}"), time=formatting.relative_time(key.closed_until))
    if not key.waiting:
        return _("no job waits")
    if key.opens_at is not None:
        if formatting.aware(key.opens_at) <= timezone.now():
            # A worker opens the key.
            return _("a worker: its rate allows a start")
        return format_html(_("its rate; the next start is {time}"), time=formatting.relative_time(key.opens_at))
    return _("a place")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
