"""The pages that add and change a schedule: Django's, with the next times, the payload and a check while typing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import flatten_fieldsets
from django.db import IntegrityError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.job_contents import to_json
from django_graphile_worker.admin.jobs.task_facts import short_description, task_facts
from django_graphile_worker.admin.pages import TEMPLATES, explain_database_errors, require_post
from django_graphile_worker.admin.schedule_phrases import TranslatedPhrases
from django_graphile_worker.admin.schedules.history import (
    DEFINITION,
    Fact,
    ScheduleHistoryAdmin,
    facts_of,
    field_msgids,
    names_of_models,
)
from django_graphile_worker.admin.schedules.permissions import schedulable_tasks, task_permission
from django_graphile_worker.admin.schedules.rows import NEXT_TIMES, NextTime, error_in, shown_times
from django_graphile_worker.admin.schedules.schedule_form import ScheduleForm
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.redaction import redact
from django_graphile_worker.schedules.times import Definition, first_time, next_times
from django_graphile_worker.schedules.validation import SEVERAL_FIELDS
from django_graphile_worker.schedules.words import in_words


@dataclass(frozen=True, slots=True)
class Preview:
    """A definition in words, and its next times, or what is wrong with it.

    ``condition`` tells what has to happen before the times count.
    """

    words: str
    times: tuple[NextTime, ...]
    condition: str = ""
    error: str = ""


def preview_of(definition: Definition, schedule: Schedule | None, *, is_enabled: bool) -> Preview:
    """Return what a definition means from now on. ``schedule`` has the pause."""
    now = formatting.aware(timezone.now())
    is_paused_forever = schedule is not None and schedule.is_paused_forever
    condition = _("It is paused. Once it is resumed, it runs at:") if is_paused_forever else ""
    if not is_enabled:
        condition = _("It is disabled. Once it is enabled, it runs at:")
    try:
        words, zone = in_words(definition, TranslatedPhrases()), definition.zone
    except (OverflowError, ValueError) as error:
        return Preview("", (), error=error_in(definition, error))
    until = None if schedule is None or is_paused_forever else schedule.paused_until
    times: tuple[datetime, ...] = ()
    try:
        first = first_time(definition, counts_from=now, paused_until=until and formatting.aware(until))
        times = () if first is None else (first, *next_times(definition, first, NEXT_TIMES - 1))
    except (OverflowError, ValueError):
        # A start at the end of Python's calendar.
        pass
    return Preview(words, shown_times(times, zone, now), condition)


def preview_of_schedule(schedule: Schedule) -> Preview:
    return preview_of(Definition.of(schedule), schedule, is_enabled=schedule.is_enabled)


def preview_of_form(form: ScheduleForm) -> Preview | None:
    """Return what the form says about the times; before it was sent, what the schedule says."""
    if not form.is_bound:
        return None if form.stored is None else preview_of_schedule(form.stored)
    definition = form.definition()
    is_enabled = bool(getattr(form, "cleaned_data", {}).get("is_enabled"))
    return None if definition is None else preview_of(definition, form.stored, is_enabled=is_enabled)


# The scripts of Django's own form, which inlines, popups and the scripts of a project need.
DJANGO_MEDIA: Callable[[Any], forms.Media] = ModelAdmin.media.fget  # type: ignore[attr-defined]


def _without_payload(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a fieldset without the field of the payload."""
    lines = [line if isinstance(line, (list, tuple)) else (line,) for line in options["fields"]]
    kept = [tuple(name for name in line if name != "payload") for line in lines]
    return {**options, "fields": [line for line in kept if line]}


def _other_facts(adminform: Any) -> list[Fact]:
    """Return what a form that only shows its values has beside the definition: the fields of a project."""
    fields = [field for fieldset in adminform for line in fieldset for field in line]
    return [
        Fact(str(capfirst(field.field["label"])), field.contents())
        for field in fields
        if field.field["name"] not in {*DEFINITION, "kind"}
    ]


class ScheduleFormAdmin(ScheduleHistoryAdmin):
    """The form, empty or with the values of a schedule. Without the permission to change it, only its values."""

    form = ScheduleForm
    change_form_template = f"{TEMPLATES}/schedule_form.html"
    fieldsets: ClassVar[Any] = (
        (gettext_lazy("What runs"), {"fields": ("name", "task", "description", "is_enabled")}),
        (
            gettext_lazy("When it runs"),
            {
                "fields": ("kind", "cron", "interval", "run_at", "time_zone", "starts_at", "ends_at"),
                "classes": ("gw-schedule-when",),
            },
        ),
        (
            gettext_lazy("Missed times and overlap"),
            {"fields": ("missed", "missed_within", "overlap"), "classes": ("gw-schedule-policies",)},
        ),
        (gettext_lazy("Options of its jobs"), {"fields": ("queue_name", "priority", "max_attempts", "job_key")}),
    )

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        found: HttpResponse = self.changeform_view(request, None, form_url, extra_context)
        return found

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        found: HttpResponse = self.changeform_view(request, object_id, form_url, extra_context)
        return found

    @explain_database_errors
    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        # The permission to see recurring tasks opens the list only.
        self.require(object_id is None or self.sees_schedules(request))
        alias, view = databases.selected_alias(request), super().changeform_view

        def answer() -> HttpResponse:
            with databases.writing(alias) if request.method == "POST" else databases.reading(alias):
                found: HttpResponse = view(request, object_id, form_url, extra_context)
                return found

        try:
            return answer()
        except IntegrityError:
            # Another transaction has committed the same name since the form was checked: check it again.
            return answer()

    @explain_database_errors
    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Delete a schedule on Django's page, with the methods that a project may override."""
        self.require(self.sees_schedules(request))
        with changed_by(request.user.get_username(), using=databases.selected_alias(request)):
            return ModelAdmin.delete_view(self, request, object_id, extra_context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Schedule | None:
        """Return a schedule that the user may see. What is to be saved is locked, so that it stays as it is checked."""
        if not (object_id.isascii() and object_id.isdigit() and len(object_id) <= 18):
            return None
        rows: QuerySet[Schedule] = self.get_queryset(request)
        if request.method == "POST":
            # What restricts the queryset may be a query that PostgreSQL cannot lock.
            locked = Schedule.objects.using(rows.db).select_for_update().filter(pk=object_id)
            if not locked.exists():
                return None
        return rows.filter(pk=object_id).first()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out the revision, which the page has in any case."""
        return [name for name in super().get_fields(request, obj) if name != "revision"]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        found: Any = super().get_form(request, obj, change=change, **options)
        # Without fields, Django asks for the fields that there are.
        if (names_of_page := found._meta.fields) is not None and options.get("fields", ()) is not None:
            # What is not on the page stays as it is.
            for name in ScheduleForm.declared_fields.keys() - {*names_of_page, "revision"}:
                found.base_fields.pop(name, None)
        found.keeps_payload = "task" not in (names_of_page or ()) or "payload" in self.get_readonly_fields(request, obj)
        names = schedulable_tasks(request.user)
        hides_payload = obj is not None and not self.has_view_payload_permission(request)
        if hides_payload:
            # Another task could show the payload to the user.
            names = [obj.task]
        found.tasks = {name: short_description(name) for name in names}
        found.hides_payload, found.database = hides_payload, databases.selected_alias(request)
        return found

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        with changed_by(request.user.get_username(), using=databases.selected_alias(request)):
            obj.save(using=databases.selected_alias(request))

    # The log, in sentences that each reader sees in the reader's own language.

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        if add:
            return audit.Message(gettext_noop("Added in the admin."))
        names = tuple(field_msgids(form.changed_names()))
        related = tuple(names_of_models(formset.model for formset in formsets or () if formset.has_changed()))
        fields = [*map(audit.Message, names), *related]
        return audit.Message(gettext_noop("Changed: %(fields)s."), {"fields": fields}, fields=names + related)

    def log_addition(self, request: HttpRequest, obj: Schedule, message: Any) -> Any:
        return audit.log(request, Schedule, str(obj.pk), obj.name, message, audit.ADDITION)

    def log_change(self, request: HttpRequest, obj: Schedule, message: Any) -> Any:
        if message.fields:
            return audit.log(request, Schedule, str(obj.pk), obj.name, message, audit.CHANGE)
        return None

    # The responses.

    def response_add(self, request: HttpRequest, obj: Schedule, post_url_continue: str | None = None) -> HttpResponse:
        if IS_POPUP_VAR in request.POST:
            return super().response_add(request, obj, post_url_continue)
        return self._saved(request, obj, goes_on="_saveasnew" in request.POST and self.save_as_continue)

    def response_change(self, request: HttpRequest, obj: Schedule) -> HttpResponse:
        return super().response_change(request, obj) if IS_POPUP_VAR in request.POST else self._saved(request, obj)

    def _saved(self, request: HttpRequest, obj: Schedule, *, goes_on: bool = False) -> HttpResponse:
        url = self.url(request, "schedule", "change", obj.pk)
        link = format_html('<a href="{}"><bdi>{}</bdi></a>', url, obj.name) if url else obj.name
        messages.success(request, format_html(_("Saved {}: {}."), link, preview_of_schedule(obj).words))
        goes_on = goes_on or "_continue" in request.POST
        return HttpResponseRedirect((goes_on and url) or self.url_or_index(request, "schedule"))

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: Any) -> HttpResponse:
        messages.warning(request, _("This schedule does not exist. It may have been deleted."))
        return HttpResponseRedirect(self.url_or_index(request, "schedule"))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], add: bool = False, change: bool = False,
        form_url: str = "", obj: Schedule | None = None,
    ) -> HttpResponse:  # fmt: skip
        adminform: Any = context["adminform"]
        form: ScheduleForm = adminform.form
        # The payload is below the task, wherever a project names it.
        adminform.fieldsets = [(name, _without_payload(options)) for name, options in adminform.fieldsets]
        shown = flatten_fieldsets(adminform.fieldsets)
        sees_payload = self.has_view_payload_permission(request)
        may_edit = self.has_change_permission(request, obj) if change else self.has_add_permission(request)
        if obj is not None:
            context |= self._links(request, obj)
        if may_edit:
            context |= {
                "form": form,
                "has_tasks": bool(form.tasks),
                "task_facts": task_facts(form.chosen_task) if form.payload_form is not None else None,
                "preview": preview_of_form(form),
                "conflict": self._conflict(request, form),
                "check_url": self.url(request, "schedule", "check"),
                "sees_payload": not form.hides_payload,
                "kept_payload": to_json(redact(form.former.get("payload", {})), indent=2) if sees_payload else "",
                "errors_elsewhere": [
                    text
                    for name, texts in form.errors.items()
                    if name not in {*shown, SEVERAL_FIELDS}
                    for text in texts
                ],
            }
        elif obj is not None:
            context |= {
                "facts": [
                    *facts_of(obj, {*shown, "paused_until", *(["payload"] if sees_payload else ())} - {"name"}),
                    *_other_facts(adminform),
                ],
                "preview": preview_of_schedule(obj),
                "is_schedulable": task_permission(obj.task) is not None,
            }
        context |= {
            **self.page_context(request),
            **self.pauses_context(request),
            "title": _("Add schedule") if obj is None else form.initial.get("name", obj.name),
            "subtitle": None,
            "schedule": obj,
            "list_url": self.url(request, "schedule"),
            "back_url": self.url_or_index(request, "schedule"),
            "is_popup": context["is_popup"],
            # The lists have none of the scripts of Django's forms.
            "media": DJANGO_MEDIA(self) + context["media"],
        }
        return super().render_change_form(request, context, add=add, change=change, form_url=form_url, obj=obj)

    def _links(self, request: HttpRequest, schedule: Schedule) -> dict[str, Any]:
        pause = ""
        if schedule.is_paused:
            time = formatting.exact_time(schedule.paused_until)
            pause = _("Paused.") if schedule.is_paused_forever else _("Paused until %(time)s.") % {"time": time}
        return {
            "changed": formatting.relative_time(schedule.changed_at),
            "pause": pause,
            "history_url": self.url(request, "schedule", "history", schedule.pk),
        }

    def _conflict(self, request: HttpRequest, form: ScheduleForm) -> dict[str, Any] | None:
        """Return what was saved since the user has opened the form; None if nothing was."""
        if form.stored is None or not form.is_stale:
            return None
        return {
            "by": form.stored.changed_by,
            "at": formatting.relative_time(form.stored.changed_at),
            "fields": self.changes_since(request, form.stored, form.cleaned_data.get("revision")),
        }

    @explain_database_errors
    @require_post
    def check_view(self, request: HttpRequest) -> HttpResponse:
        """Answer the script that checks the form while the user types. Nothing is saved or locked."""
        object_id, schedule = request.POST.get("schedule", ""), None
        with databases.reading(databases.selected_alias(request)):
            if object_id:
                self.require(self.sees_schedules(request) and self.has_change_permission(request))
                found = self.get_queryset(request)
                is_id = object_id.isascii() and object_id.isdigit() and len(object_id) <= 18
                schedule = found.filter(pk=int(object_id)).first() if is_id else None
                self.require(schedule is not None and self.has_change_permission(request, schedule))
            else:
                self.require(self.has_add_permission(request))
            form: ScheduleForm = self.get_form(request, schedule, change=schedule is not None)(
                request.POST, instance=schedule
            )
            errors = form.all_errors()
        preview = render_to_string(f"{TEMPLATES}/_schedule_preview.html", {"preview": preview_of_form(form)}, request)
        return JsonResponse({"errors": errors, "preview": preview})
