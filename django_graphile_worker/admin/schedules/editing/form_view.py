"""The pages that add and change a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.adding.task_facts import short_description, task_facts
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.schedules.editing.definition_values import facts_of, field_msgids
from django_graphile_worker.admin.schedules.editing.draft import AS_FIELDS, AS_JSON, Draft
from django_graphile_worker.admin.schedules.editing.preview import preview_of_schedule
from django_graphile_worker.admin.schedules.editing.reading import ScheduleReadingAdmin
from django_graphile_worker.admin.schedules.permissions import schedulable_tasks, task_permission
from django_graphile_worker.models import Schedule, changed_by

# The buttons of the form that do not save.
DESCRIBE, SWITCH, PREVIEW = "describe", "switch", "preview"
CONTINUE = "_continue"


class ScheduleFormAdmin(ScheduleReadingAdmin):
    """The form, empty or with the values of a schedule. Without the permission to change it, only its values."""

    @explain_database_errors
    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        self.require(self.has_add_permission(request))
        return self._edit(request, None)

    @explain_database_errors
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.require(self.has_view_permission(request))
        schedule = self.read_schedule(request, object_id)
        if schedule is None:
            return self.redirect_missing(request)
        if self.has_change_permission(request, schedule):
            return self._edit(request, schedule)
        self.require(request.method in ("GET", "HEAD"))
        return self._render_facts(request, schedule)

    def draft(self, request: HttpRequest, schedule: Schedule | None, data: Any, **options: Any) -> Draft:
        """Return the forms with the tasks that the user may schedule."""
        hides_payload = schedule is not None and not self.has_view_payload_permission(request)
        names = schedulable_tasks(request.user)
        if schedule is not None and hides_payload:
            # Another task could show the payload to the user.
            names = [schedule.task]
        return Draft(
            data,
            tasks={name: short_description(name) for name in names},
            schedule=schedule,
            hides_payload=hides_payload,
            is_taken=lambda name: self._is_taken(request, name, schedule),
            **options,
        )

    def _is_taken(self, request: HttpRequest, name: str, schedule: Schedule | None) -> bool:
        alias = databases.selected_alias(request)
        with databases.reading(alias):
            others = Schedule.objects.using(alias).filter(name=name)
            return (others if schedule is None else others.exclude(pk=schedule.pk)).exists()

    def _edit(self, request: HttpRequest, schedule: Schedule | None) -> HttpResponse:
        if request.method != "POST":
            initial = {"task": request.GET["task"].replace("\x00", "")} if "task" in request.GET else None
            return self._render_form(request, self.draft(request, schedule, None, initial=initial))
        if DESCRIBE in request.POST:
            return self._render_form(request, self._described(request, schedule))
        draft = self.draft(request, schedule, request.POST)
        if SWITCH in request.POST:
            way = AS_JSON if request.POST[SWITCH] == AS_JSON else AS_FIELDS
            problem = draft.switch(way)
            shown = self._described(request, schedule)
            shown.payload_form = draft.payload_form
            return self._render_form(request, shown, notice=problem)
        if not draft.is_valid() or PREVIEW in request.POST:
            return self._render_form(request, draft)
        return self._save(request, draft)

    def _described(self, request: HttpRequest, schedule: Schedule | None) -> Draft:
        """Return the forms with what the user has typed, unchecked, and the payload fields of the chosen task."""
        sent = request.POST
        names = [name for name in Draft(None, tasks={}).form.fields if name in sent]
        initial = {**{name: sent[name] for name in names}, "is_enabled": "is_enabled" in sent}
        return self.draft(request, schedule, None, initial=initial)

    def _save(self, request: HttpRequest, draft: Draft) -> HttpResponse:
        """Save what the forms have, or show them again: with mistakes, or with what was changed in between."""
        alias, by = databases.selected_alias(request), request.user.get_username()
        try:
            with databases.writing(alias), changed_by(by, using=alias):
                if draft.schedule is None:
                    schedule, names = Schedule(**draft.values()), []
                else:
                    current = self._locked(request, draft.schedule, alias)
                    if current is None:
                        return self.redirect_missing(request)
                    if current.revision != draft.form.cleaned_data["revision"]:
                        return self._render_conflict(request, draft.form.cleaned_data["revision"], current)
                    schedule, names = current, _set(current, draft.values())
                schedule.save(using=alias)
                self._log(request, schedule, names, is_new=draft.schedule is None)
        except ValidationError as error:
            for name, texts in error.message_dict.items():
                draft.form.add_error(name if name in draft.form.fields else None, texts)
            return self._render_form(request, draft)
        except IntegrityError:
            # Another transaction has committed the same name since the form was checked.
            draft.form.add_error("name", _("Expected a name of its own, got the name of another schedule."))
            return self._render_form(request, draft)
        return self._redirect_saved(request, schedule)

    def _locked(self, request: HttpRequest, schedule: Schedule, alias: str) -> Schedule | None:
        """Return the schedule as it is now, and lock it; refuse it if its task is another one that the user may not."""
        current: Schedule | None = Schedule.objects.using(alias).select_for_update().filter(pk=schedule.pk).first()
        if not self.get_queryset(request).using(alias).filter(pk=schedule.pk).exists():
            return None
        if current is not None:
            self.require(self.has_change_permission(request, current))
        return current

    def _log(self, request: HttpRequest, schedule: Schedule, names: list[str], *, is_new: bool) -> None:
        if is_new:
            message = audit.Message(gettext_noop("Added in the admin."))
        else:
            fields = [audit.Message(text) for text in field_msgids(names)]
            message = audit.Message(
                gettext_noop("Changed: %(fields)s."), {"fields": fields}, fields=tuple(field_msgids(names))
            )
        flag = audit.ADDITION if is_new else audit.CHANGE
        if is_new or names:
            audit.log(request, Schedule, str(schedule.pk), schedule.name, message, flag)

    def _redirect_saved(self, request: HttpRequest, schedule: Schedule) -> HttpResponse:
        url = self.url(request, "schedule", "change", schedule.pk)
        link = format_html('<a href="{}"><bdi>{}</bdi></a>', url, schedule.name) if url else schedule.name
        preview = preview_of_schedule(schedule)
        words = preview.words if preview is not None else ""
        messages.success(request, format_html(_("Saved {}: {}."), link, words))
        goes_on = CONTINUE in request.POST and url
        return HttpResponseRedirect(url if goes_on else self.url_or_index(request, "schedule"))

    def _render_conflict(self, request: HttpRequest, revision: int | None, current: Schedule) -> HttpResponse:
        """Show the values of the user with what was saved since: to save them again is a decision of the user."""
        data = request.POST.copy()
        data["revision"] = str(current.revision)
        draft = self.draft(request, current, data)
        draft.is_valid()
        conflict = {
            "by": current.changed_by,
            "at": formatting.relative_time(current.changed_at),
            "fields": self.changes_since(request, current, revision),
        }
        return self._render_form(request, draft, conflict=conflict)

    def _render_form(
        self, request: HttpRequest, draft: Draft, *, notice: str = "", conflict: Any = None
    ) -> HttpResponse:
        schedule = draft.schedule
        context: dict[str, Any] = {
            "title": _("Add schedule") if schedule is None else schedule.name,
            "schedule": schedule,
            "draft": draft,
            "has_tasks": draft.has_tasks,
            "form": draft.form,
            "payload_form": draft.payload_form,
            "task_facts": task_facts(draft.task) if draft.payload_form is not None else None,
            "preview": draft.preview(),
            "notice": notice,
            "conflict": conflict,
            "check_url": self.url(request, "schedule", "check"),
            "sees_payload": not draft.hides_payload,
            **self._links(request, schedule),
        }
        return self.render(request, "schedule_form.html", context)

    def _render_facts(self, request: HttpRequest, schedule: Schedule) -> HttpResponse:
        sees_payload = self.has_view_payload_permission(request)
        context = {
            "title": schedule.name,
            "schedule": schedule,
            "facts": facts_of(schedule, sees_payload=sees_payload),
            "preview": preview_of_schedule(schedule),
            "is_schedulable": task_permission(schedule.task) is not None,
            **self._links(request, schedule),
        }
        return self.render(request, "schedule_form.html", context)

    def _links(self, request: HttpRequest, schedule: Schedule | None) -> Mapping[str, str]:
        links = {"list_url": self.url(request, "schedule"), "back_url": self.url_or_index(request, "schedule")}
        if schedule is None:
            return {**links, "form_url": self.url(request, "schedule", "add")}
        return {
            **links,
            "changed": formatting.relative_time(schedule.changed_at),
            "pause": _pause(schedule),
            "form_url": self.url(request, "schedule", "change", schedule.pk),
            "history_url": self.url(request, "schedule", "history", schedule.pk),
        }


def _pause(schedule: Schedule) -> str:
    """Return until when a schedule is paused; empty if it is not."""
    if not schedule.is_paused:
        return ""
    if schedule.is_paused_forever:
        return _("Paused.")
    return _("Paused until %(time)s.") % {"time": formatting.exact_time(schedule.paused_until)}


def _set(schedule: Schedule, values: Mapping[str, Any]) -> list[str]:
    """Set the fields of a schedule; return the names of those that have another value than before."""
    changed = [name for name, value in values.items() if getattr(schedule, name) != value]
    for name in changed:
        setattr(schedule, name, values[name])
    return changed
