"""The admin of schedules: the list with its columns, filters and actions. Start reading here.

It is a ``ModelAdmin`` that a project extends as the documentation of Django says. The items of the crontab are in the
list, too: as schedules without an id.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IS_POPUP_VAR, TO_FIELD_VAR
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.jobs.payload_preview import payload_preview
from django_graphile_worker.admin.pages import TEMPLATES, explain_database_errors
from django_graphile_worker.admin.schedules.change_list import (
    PAYLOAD_COLUMN,
    ScheduleChangeList,
    SourceFilter,
    StateFilter,
    TaskFilter,
)
from django_graphile_worker.admin.schedules.code_items import read_facts
from django_graphile_worker.admin.schedules.form_pages import DJANGO_MEDIA, ScheduleFormAdmin
from django_graphile_worker.admin.visible_jobs import ids_subquery
from django_graphile_worker.models import Schedule


class ScheduleAdmin(ScheduleFormAdmin):
    """The admin of schedules. A subclass whose `get_queryset` returns fewer schedules restricts pages and actions."""

    change_list_template = f"{TEMPLATES}/schedules.html"
    list_display: tuple[Any, ...] = ("schedule", "when", "next_times", "last_runs", "row_actions")
    list_filter: ClassVar[tuple[Any, ...]] = (StateFilter, TaskFilter, SourceFilter)
    search_fields: ClassVar[tuple[str, ...]] = ("name", "task", "description")
    ordering = ("name",)
    actions: Any = ("run_now", "pause", "resume", "enable", "disable", "duplicate", "delete_selected")
    column_classes: ClassVar[dict[str, str]] = {
        "schedule": "gw-card-title gw-name gw-schedule",
        "when": "gw-when",
        "next_times": "gw-next",
        "last_runs": "gw-last-runs",
        "row_actions": "gw-row-actions",
    }

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        check = self.admin_site.admin_view(self.check_view)
        return [path("check/", check, name="graphile_worker_schedule_check"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Return no schedules for a user who may see the items of the crontab only."""
        schedules: QuerySet[Schedule] = super().get_queryset(request)
        return schedules if self.sees_schedules(request) else schedules.none()

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ScheduleChangeList]:
        return ScheduleChangeList

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        with databases.reading(databases.selected_alias(request)) as session:
            # How a run ended tells about its job.
            sees_outcomes = self.visible_ids(request, databases.selected_alias(request)) is None
            facts = read_facts(session, timezone.now(), sees_outcomes=sees_outcomes)
        if IS_POPUP_VAR in request.GET or not self.sees_items(request):
            facts = replace(facts, items=[], errors=[], removed={})
        request.schedule_facts = facts  # type: ignore[attr-defined]
        request.schedule_columns = self._replaced_columns(request)  # type: ignore[attr-defined]
        return super().get_changelist_instance(request)

    def _replaced_columns(self, request: HttpRequest) -> dict[str, str]:
        """Return the columns that are shown in the place of others; "" for those that the user does not get."""
        replaced = {"payload": PAYLOAD_COLUMN if self.has_view_payload_permission(request) else ""}
        is_popup = IS_POPUP_VAR in request.GET
        may_act = bool(self.get_actions(request)) or any(
            self.has_app_permission(request, f"{action}_recurringtask") for action in ("run", "pause")
        )
        if is_popup:
            replaced["schedule"] = "name"
        if is_popup or not may_act:
            replaced["row_actions"] = ""
        return replaced

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request) if self.sees_schedules(request) else {}
        return found

    def known_tasks(self, request: HttpRequest) -> list[str]:
        """Return the tasks of the filter. A user that sees only some schedules gets the tasks of the code only."""
        facts = request.schedule_facts  # type: ignore[attr-defined]
        found = {each.item.task for each in facts.items}
        sees_all = ids_subquery(self.get_queryset(request), databases.selected_alias(request)) is None
        return sorted({*found, *(facts.tasks if sees_all else ())})

    @admin.display(description="")
    def action_checkbox(self, obj: Any) -> SafeString:
        """Return the box that selects a schedule; items of the crontab have none."""
        return super().action_checkbox(obj) if obj.pk is not None else SafeString("&nbsp;")

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if request.method == "POST" and "row" in request.POST:
            return self.act_on_row(request)
        of_popup = {name: request.GET.get(name) for name in (IS_POPUP_VAR, TO_FIELD_VAR)}
        context: dict[str, Any] = {"add_url": self.url(request, "schedule", "add", **of_popup)}
        if IS_POPUP_VAR in request.GET:
            context |= {"is_popup": True, "media": DJANGO_MEDIA(self) + self.media}
        return self.show_list(request, {**context, **(extra_context or {})})

    # The columns.

    @admin.display(description=gettext_lazy("Schedule"), ordering="name")
    def schedule(self, schedule: Any) -> SafeString:
        return _cell("name", schedule)

    @admin.display(description=gettext_lazy("When"))
    def when(self, schedule: Any) -> SafeString:
        return _cell("when", schedule)

    @admin.display(description=gettext_lazy("Next times"), ordering="next_at")
    def next_times(self, schedule: Any) -> SafeString:
        return _cell("next", schedule)

    @admin.display(description=gettext_lazy("Last runs"), ordering="last_tick")
    def last_runs(self, schedule: Any) -> SafeString:
        return _cell("runs", schedule)

    @admin.display(description=gettext_lazy("Payload"))
    def redacted_payload(self, schedule: Any) -> str:
        return payload_preview(json.dumps(schedule.payload, ensure_ascii=False))

    @admin.display(description=gettext_lazy("Actions"))
    def row_actions(self, schedule: Any) -> SafeString:
        return _cell("buttons", schedule)


def _cell(name: str, schedule: Any) -> SafeString:
    return render_to_string(f"{TEMPLATES}/_schedule_{name}.html", {"row": schedule.row})
