"""The base class of all pages: common context, permissions, URLs, and a page that explains database errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.apps import apps
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from django_graphile_worker import models
from django_graphile_worker.admin import databases, pause_notice, refreshed_regions
from django_graphile_worker.admin.page_order import PAGES, page_name
from django_graphile_worker.admin.visible_jobs import ids_subquery
from django_graphile_worker.exceptions import GraphileWorkerError, ReadOnlyModelError
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.inspection.job_list import Subquery

TEMPLATES = "admin/graphile_worker"
# A view returns a page or, if it sends a file, a streaming response.
View = Callable[..., Any]
# What a link to the same page of another database keeps. A place in a list is a place among other jobs there.
KEPT_PARAMETERS = frozenset({"q", "state", "span", "of", "task", "queue", "worker", "tasks"})


def explain_database_errors(view: View) -> View:
    """Show a page that explains the error when the database fails or takes too long."""

    @wraps(view)
    def wrapper(self: PageAdmin, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        request.current_app = self.admin_site.name
        try:
            return view(self, request, *args, **kwargs)
        except databases.PageTimeoutError as error:
            explanation = _(
                "The database did not answer in time, and the query was cancelled so that it does not slow down jobs. "
                "Narrow the search by task, queue or state, or raise GRAPHILE_WORKER[“%(setting)s”]."
            ) % {"setting": error.setting}
            return self.render_unavailable(request, _("The query took too long"), explanation)
        except ReadOnlyModelError:
            # An error of the project's own code.
            raise
        except GraphileWorkerError as error:
            return self.render_unavailable(request, _("This page cannot be shown"), str(error))

    return wrapper


def require_post(view: View) -> View:
    """Refuse every method but POST: a view that changes something must not be reached by a link."""

    @wraps(view)
    def wrapper(self: PageAdmin, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return view(self, request, *args, **kwargs)

    return wrapper


class PageAdmin(ModelAdmin):  # type: ignore[type-arg]
    """The base of every page, which reads through sql/ and changes jobs through the functions of the schema.

    The views of ModelAdmin that write rows are disabled.
    """

    actions: Any = None

    @property
    def media(self) -> forms.Media:
        """The scripts and styles of a subclass (``class Media``): the pages need none of those of ModelAdmin."""
        return forms.Media()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_app_permission(self, request: HttpRequest, codename: str) -> bool:
        """Return whether the user has a permission of this app."""
        return bool(request.user.has_perm(f"{models.Job._meta.app_label}.{codename}"))

    def visible_ids(self, request: HttpRequest, alias: str) -> Subquery | None:
        """Return the ids of the jobs that `get_queryset` of the site's JobAdmin returns for the user; None for all."""
        jobs = self.admin_site._registry.get(models.Job)
        return None if jobs is None else ids_subquery(jobs.get_queryset(request), alias)

    def visible_among(self, request: HttpRequest, ids: Iterable[int | None]) -> frozenset[int]:
        """Return the ids of the jobs that the user may see, of those that a page about something else names."""
        found = [each for each in ids if each is not None]
        alias = databases.selected_alias(request)
        within = self.visible_ids(request, alias)
        if within is None or not found:
            return frozenset(found)
        jobs = self.admin_site._registry[models.Job].get_queryset(request).using(alias)
        return frozenset(jobs.filter(pk__in=found).values_list("pk", flat=True))

    def require(self, is_allowed: bool) -> None:
        if not is_allowed:
            raise PermissionDenied

    def render(
        self, request: HttpRequest, template: Any, context: dict[str, Any], *, status: int = 200
    ) -> HttpResponse:
        """Return a page: with one of our templates, by its file name, or with what a project gives as template."""
        # The explanation of a database error must not wait for the database again.
        pauses = {} if status >= 500 or "pauses" in context else self.pauses_context(request)
        context = self.page_context(request) | pauses | {"media": self.media} | context
        is_ours = isinstance(template, str) and "/" not in template
        path = f"{TEMPLATES}/{template}" if is_ours else template
        response = TemplateResponse(request, path, context, status=status)
        if refreshed_regions.is_refresh(request):
            refreshed_regions.send_changes_only(request, response)
        return response

    def render_unavailable(self, request: HttpRequest, title: str, explanation: str) -> HttpResponse:
        return self.render(request, "unavailable.html", {"title": title, "explanation": explanation}, status=503)

    def page_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of page.html, which all pages extend."""
        alias = databases.selected_alias(request)
        known = databases.aliases()
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": page_name(self.model),
            "navigation": self.navigation(request),
            "alias": alias,
            "databases": [(name, self._same_page(request, name), name == alias) for name in known]
            if len(known) > 1
            else [],
        }

    def _same_page(self, request: HttpRequest, alias: str) -> str:
        """Return the URL of this page for another database, with what the user has searched and selected."""
        kept = {key: value for key, value in request.GET.items() if key in KEPT_PARAMETERS and value}
        return f"?{urlencode({**kept, databases.PARAMETER: alias})}"

    def has_pause_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "pause_work")

    def pauses_context(self, request: HttpRequest, paused: Sequence[Pause] | None = None) -> dict[str, Any]:
        """Return the context of the notice about pauses, which every page shows."""
        if paused is None:
            paused = pause_notice.read_pauses(databases.selected_alias(request))
        page = self.admin_site._registry.get(models.PausedWork)
        may_view = page is not None and page.has_view_permission(request)
        return {
            "pauses": [pause_notice.shown(pause) for pause in paused[: pause_notice.MAX_NAMED]],
            "more_pauses": max(len(paused) - pause_notice.MAX_NAMED, 0),
            "pauses_url": self.url(request, "pausedwork") if may_view else "",
            "resume_url": self.url(request, "pausedwork", "resume"),
        }

    def navigation(self, request: HttpRequest) -> list[tuple[str, str, bool]]:
        """Return the pages that this user may see: name, URL, and whether the page is the current one."""
        registry = self.admin_site._registry
        return [
            (page_name(model), self.url(request, model._meta.model_name or ""), model is self.model)
            for model in PAGES
            if model in registry and registry[model].has_view_permission(request)
        ]

    def may_open(self, request: HttpRequest, model: str, page_name: str) -> bool:
        """Return whether a link to a page leads the user to a page that the user may see."""
        page = self.admin_site._registry.get(apps.get_model(self.opts.app_label, model))
        if page is None or page_name not in ("changelist", "change", "add"):
            # The caller checks the permissions of the other URLs, which change something or are parts of a page.
            return True
        return page.has_add_permission(request) if page_name == "add" else page.has_view_permission(request)

    def url_or_index(self, request: HttpRequest, model: str) -> str:
        """Return the URL of a page, or of the index of the site when the user may not see the page."""
        return self.url(request, model) or reverse("admin:index", current_app=self.admin_site.name)

    def url(self, request: HttpRequest, model: str, page_name: str = "changelist", *args: Any, **query: Any) -> str:
        """Return the URL of a page on the same site and for the same database.

        Return "" when the site lacks the page, or when the user may not see it: a link must not lead to an error.
        """
        if not self.may_open(request, model, page_name):
            return ""
        name = f"admin:graphile_worker_{model}_{page_name}"
        try:
            url = reverse(name, args=args, current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""
        given = {key: value for key, value in query.items() if value not in (None, "")}
        selected = request.POST.get(databases.PARAMETER) or request.GET.get(databases.PARAMETER)
        if selected:
            given[databases.PARAMETER] = selected
        return f"{url}?{urlencode(given, doseq=True)}" if given else url

    # The pages do not use the views of ModelAdmin that write rows.
    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied

    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied

    def history_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied
