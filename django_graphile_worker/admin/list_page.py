"""What the lists that are plain ``ModelAdmin``s have in common: filters, actions, and the refresh of an open page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin import SimpleListFilter, helpers
from django.contrib.admin.checks import ModelAdminChecks
from django.core import checks
from django.core.exceptions import FieldDoesNotExist
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from django_graphile_worker.admin import databases, formatting, refreshed_regions
from django_graphile_worker.admin.pages import TEMPLATES, PageAdmin

# The parameters of a list that are no filters.
NO_FILTERS = frozenset({databases.PARAMETER, "format"})


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63


class SelectFilter(SimpleListFilter):
    """A filter that is shown as a menu of values."""

    template = f"{TEMPLATES}/_select_filter.html"
    # The parameters that another value of the filter makes useless.
    not_kept: tuple[str, ...] = ("p",)

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        # The rest of the query string, for the form of the filter.
        left_out = (*self.not_kept, self.parameter_name)
        self.others = [(name, text) for name, text in request.GET.items() if name not in left_out]

    def has_output(self) -> bool:
        return True


class ListPageChecks(ModelAdminChecks):
    """The checks of Django, and one for options of a project's subclass that these pages do not have."""

    def check(self, admin_obj: Any, **options: Any) -> list[checks.CheckMessage]:
        ours = ("django_graphile_worker.", "django.")
        of_the_project = [each for each in type(admin_obj).__mro__ if not each.__module__.startswith(ours)]
        names = {name for name in admin_obj.without_effect if any(name in vars(each) for each in of_the_project)}
        return super().check(admin_obj, **options) + [
            checks.Warning(
                f"{type(admin_obj).__name__}.{name} has no effect.",
                hint="The guide of the admin says what a subclass can change.",
                obj=type(admin_obj),
                id="graphile_worker.W014",
            )
            for name in sorted(names)
        ]


class ListPageAdmin(PageAdmin):
    """A list with columns, filters, a search and actions, which a project extends as Django's documentation says."""

    checks_class = ListPageChecks
    # The options of ModelAdmin that change nothing here.
    without_effect: frozenset[str] = frozenset({"date_hierarchy", "list_editable"})

    list_display_links: Any = None
    list_per_page = 50
    show_full_result_count = False
    preserve_filters = False
    show_facets = admin.ShowFacets.NEVER
    # The CSS classes of columns, by name.
    column_classes: ClassVar[Mapping[str, str]] = {}

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Allow the parameters of the filters only: by other lookups, a user could find out what no page shows."""
        if lookup.partition("__")[0] in ("payload", "last_error") and not self.sees_payloads(request):
            return False
        for each in self.get_list_filter(request):
            spec: Any = each[0] if isinstance(each, list | tuple) else each
            if lookup == getattr(spec, "parameter_name", spec) or lookup.startswith(f"{spec}__"):
                return True
        name = lookup.partition("__")[0]
        try:
            self.opts.get_field(name)
        except FieldDoesNotExist:
            # Django answers a name that nothing has.
            return name == "pk" or name not in self.get_queryset(request).query.annotations
        return name == "id"

    def sees_payloads(self, request: HttpRequest) -> bool:
        return self.has_app_permission(request, "view_payload")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(request).using(databases.selected_alias(request))
        return found

    def get_action_choices(self, request: HttpRequest, default_choices: Any = ()) -> list[tuple[str, str]]:
        return [("", formatting.EMPTY_VALUE), *super().get_action_choices(request, [])]

    def show_list(self, request: HttpRequest, context: Mapping[str, Any]) -> HttpResponse:
        """Return the list, or the response of the action that was sent."""
        if request.method == "POST":
            sent: Any = request.POST.copy()
            selected = [each for each in sent.getlist(helpers.ACTION_CHECKBOX_NAME) if _is_id(each)]
            # Without JavaScript, "all that match" selects no row of the page.
            is_across = sent.get("select_across") == "1"
            sent.setlist(helpers.ACTION_CHECKBOX_NAME, selected or (["0"] if is_across else []))
            request.POST = sent
            return super().changelist_view(request)
        shown = {**self.page_context(request), **self.pauses_context(request), **context}
        response: Any = super().changelist_view(request, shown)
        if hasattr(response, "context_data") and refreshed_regions.is_refresh(request):
            refreshed_regions.send_changes_only(request, response)
        found: HttpResponse = response
        return found
