"""What all pages share: their frame, their permissions, and their way to say that something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker import models
from django_graphile_worker.admin import databases
from django_graphile_worker.admin.scope import restriction
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.sql.inspection.criteria import Subquery

TEMPLATES = "admin/graphile_worker"
View = Callable[..., HttpResponse]


def page(view: View) -> View:
    """A view that shows what is wrong with the database instead of failing."""

    @wraps(view)
    def guarded(self: Page, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        request.current_app = self.admin_site.name
        try:
            return view(self, request, *args, **kwargs)
        except databases.PageTimeoutError:
            explanation = _(
                "The database did not answer in time, so the question was withdrawn: jobs come first. "
                "Ask for less (a task, a queue, a state), or raise GRAPHILE_WORKER[“ADMIN_STATEMENT_TIMEOUT”]."
            )
            return self.trouble(request, _("That took too long"), explanation, status=503)
        except GraphileWorkerError as error:
            return self.trouble(request, _("The queue cannot be shown"), str(error), status=503)

    return guarded


def posted(view: View) -> View:
    """A view that changes something, and so is never reached by following a link."""

    @wraps(view)
    def guarded(self: Page, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return view(self, request, *args, **kwargs)

    return guarded


class Page(ModelAdmin):  # type: ignore[type-arg]
    """A page of the queue: reads through sql/, changes through the schema's functions, has no forms of Django's."""

    page_title: Any = ""
    template = ""
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def may(self, request: HttpRequest, codename: str) -> bool:
        """Tell whether the user has a permission of this app."""
        return bool(request.user.has_perm(f"{models.Job._meta.app_label}.{codename}"))

    def within(self, request: HttpRequest, alias: str) -> Subquery | None:
        """The jobs that the user may see, which the site's page of jobs decides; None is all of them."""
        jobs = self.admin_site._registry.get(models.Job)
        return None if jobs is None else restriction(jobs.get_queryset(request), alias)

    def require(self, allowed: bool) -> None:
        if not allowed:
            raise PermissionDenied

    def render(
        self, request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
    ) -> HttpResponse:
        context = self.frame(request) | context
        return TemplateResponse(request, f"{TEMPLATES}/{template}", context, status=status)

    def frame(self, request: HttpRequest) -> dict[str, Any]:
        """What every page needs: its place in the admin, the other pages, the databases."""
        alias = databases.alias_of(request)
        known = databases.aliases()
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": self.page_title,
            "navigation": self.navigation(request),
            "alias": alias,
            "database_query": self.query(request),
            "databases": [(name, f"?{databases.PARAMETER}={name}", name == alias) for name in known]
            if len(known) > 1
            else [],
            "now": timezone.now(),
        }

    def trouble(self, request: HttpRequest, title: str, explanation: str, *, status: int) -> HttpResponse:
        return self.render(request, "trouble.html", {"title": title, "explanation": explanation}, status=status)

    def navigation(self, request: HttpRequest) -> list[tuple[str, str, bool]]:
        """The pages that this user may see: name, address, and whether it is this one."""
        registry = self.admin_site._registry
        names = {
            models.Overview: _("Overview"),
            models.Job: _("Jobs"),
            models.JobQueue: _("Queues"),
            models.RecurringTask: _("Recurring"),
            models.Worker: _("Workers"),
            models.ErrorGroup: _("Errors"),
        }
        return [
            (name, self.url(request, model._meta.model_name or ""), model is self.model)
            for model, name in names.items()
            if model in registry and registry[model].has_view_permission(request)
        ]

    def url(self, request: HttpRequest, model: str, page_name: str = "changelist", *args: Any, **query: Any) -> str:
        """The address of a page, on the same site and about the same database."""
        name = f"admin:graphile_worker_{model}_{page_name}"
        try:
            address = reverse(name, args=args, current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""
        given = {key: value for key, value in query.items() if value not in (None, "")}
        asked = request.POST.get(databases.PARAMETER) or request.GET.get(databases.PARAMETER)
        if asked:
            given[databases.PARAMETER] = asked
        return f"{address}?{urlencode(given, doseq=True)}" if given else address

    def query(self, request: HttpRequest) -> str:
        """What keeps a link on the database of this page."""
        asked = request.GET.get(databases.PARAMETER) or request.POST.get(databases.PARAMETER)
        return f"?{urlencode({databases.PARAMETER: asked})}" if asked else ""

    # Nothing is written through Django's own forms.
    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied

    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied

    def history_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        raise PermissionDenied
