"""The check of the form while the user types: the same forms, the same parser, the same messages."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from django_graphile_worker.admin.pages import TEMPLATES, explain_database_errors, require_post
from django_graphile_worker.admin.schedules.editing.form_view import ScheduleFormAdmin


class ScheduleCheckAdmin(ScheduleFormAdmin):
    """The address that a script asks. It saves nothing, and answers with nothing that the form does not show."""

    @explain_database_errors
    @require_post
    def check_view(self, request: HttpRequest) -> HttpResponse:
        object_id = request.POST.get("schedule", "")
        if not object_id:
            self.require(self.has_add_permission(request))
            schedule = None
        else:
            self.require(self.has_change_permission(request))
            schedule = self.read_schedule(request, object_id)
            self.require(schedule is not None and self.has_change_permission(request, schedule))
        draft = self.draft(request, schedule, request.POST)
        draft.is_valid()
        context = {"preview": draft.preview()}
        preview = render_to_string(f"{TEMPLATES}/_schedule_preview.html", context, request)
        return JsonResponse({"errors": draft.errors(), "preview": preview})
