"""The view that changes schedules: one, the selected ones, or all that match a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.pages import explain_database_errors, require_post
from django_graphile_worker.admin.schedules.actions import action_log
from django_graphile_worker.admin.schedules.actions.action_steps import Change, Done
from django_graphile_worker.admin.schedules.actions.row_buttons import ITEM, parse_button
from django_graphile_worker.admin.schedules.actions.schedule_actions import ACTIONS, ScheduleAction, question
from django_graphile_worker.admin.schedules.items_view import ScheduleItemsAdmin
from django_graphile_worker.admin.schedules.list_query import query_of
from django_graphile_worker.admin.schedules.problems import read_problems
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.sql.schedules import listing

# One request changes at most so many schedules, in one transaction.
MOST_CHANGED = 10_000
# The confirmation names so many of them.
EXAMPLES = 10
# What the confirmation sends again.
KEPT_FIELDS = ("row", "action", "id", "all", "q", "state", "task", "source", "back", "database")


@dataclass(frozen=True, slots=True)
class Selection:
    """The schedules that an action is for: those that it changes, and how many it does not, and why."""

    schedules: list[Schedule]
    forbidden: int
    unchanged: int

    @property
    def names(self) -> list[str]:
        return [schedule.name for schedule in self.schedules]


class ScheduleActionsAdmin(ScheduleItemsAdmin):
    """The view of all actions. An action needs POST, its own permission and that of each task, and is logged."""

    @explain_database_errors
    @require_post
    def act_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_view_permission(request))
        name, kind, target = parse_button(request.POST.get("row", ""))
        action = ACTIONS.get(name or request.POST.get("action", ""))
        if action is None:
            messages.warning(request, _("Select an action."))
            return self._redirect_back(request)
        if kind == ITEM:
            return self.act_on_item(request, action, target)
        self.require(self.sees_schedules(request) and getattr(self, action.permission)(request))
        ids = [target] if target else request.POST.getlist("id")
        return self._act(request, action, ids)

    def _act(self, request: HttpRequest, action: ScheduleAction, ids: list[str]) -> HttpResponse:
        alias, is_confirmed = databases.selected_alias(request), "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None) if action.form else None
        with databases.writing(alias):
            selection = self._select(request, action, ids, alias, timezone.now())
            number = len(selection.schedules)
            if not number:
                return self._nothing(request, action, selection)
            is_asked = action.is_always_confirmed or number > 1
            if (is_asked and not is_confirmed) or (form is not None and not form.is_valid()):
                return self._confirm(request, action, selection, form)
            values = form.cleaned_data if form else {}
            by = request.user.get_username()
            try:
                with changed_by(by, using=alias):
                    done = action.run(selection.schedules, Change(by, alias, values))
            except ValidationError as error:
                # A program can write a line that no parser reads.
                messages.error(request, " ".join(error.messages))
                return self._redirect_back(request)
            action_log.write(request, action, done)
        self._tell(request, action, selection, done)
        return self._after(request, done)

    def _select(
        self, request: HttpRequest, action: ScheduleAction, ids: list[str], alias: str, now: datetime
    ) -> Selection:
        """Lock the schedules, so that the task that was checked is the task that the action is for."""
        keys = self._all_ids(request, alias) if self._is_all(request, action) else _numbers(ids)
        found = self._lock(request, keys, alias)
        check = getattr(self, action.permission)
        permitted = [schedule for schedule in found if check(request, schedule)]
        changed = [schedule for schedule in permitted if action.applies(schedule, now)]
        if found and not permitted:
            raise PermissionDenied
        return Selection(changed, len(found) - len(permitted), len(permitted) - len(changed))

    def _lock(self, request: HttpRequest, keys: list[int], alias: str) -> list[Schedule]:
        """Lock the schedules that the user may see. What restricts them may be a query that PostgreSQL cannot lock."""
        visible, locked = self.get_queryset(request).using(alias), Schedule.objects.using(alias).select_for_update()
        rows = locked.filter(pk__in=visible.filter(pk__in=keys).values("pk")).order_by("pk")
        found = list(rows[:MOST_CHANGED])
        # Another transaction may have changed them while this one waited.
        seen = set(visible.filter(pk__in=[schedule.pk for schedule in found]).values_list("pk", flat=True))
        return [schedule for schedule in found if schedule.pk in seen]

    def _is_all(self, request: HttpRequest, action: ScheduleAction) -> bool:
        return action.takes_all and "all" in request.POST and not request.POST.get("row")

    def _all_ids(self, request: HttpRequest, alias: str) -> list[int]:
        with databases.reading(alias) as session:
            problems = read_problems(session, sees_outcomes=self.sees_outcomes(request, alias))
            criteria = self.criteria(request, query_of(request), alias, problems)
            return listing.matching_ids(session.cursor, criteria, schema=session.schema, limit=MOST_CHANGED)

    def _confirm(self, request: HttpRequest, action: ScheduleAction, selection: Selection, form: Any) -> HttpResponse:
        number = len(selection.schedules)
        sent = [(name, value) for name in KEPT_FIELDS for value in request.POST.getlist(name)]
        context = {
            "title": question(action, selection.names, number),
            "action": action,
            "form": form,
            "names": selection.names[:EXAMPLES] if number > 1 else [],
            "more": formatting.number(number - EXAMPLES) if number > EXAMPLES else "",
            "skipped": _skipped(action, selection),
            "hidden_fields": sent,
            "act_url": self.url(request, "schedule", "act"),
            "back_url": self.back_url(request),
            "list_url": self.list_url(request),
        }
        return self.render(request, "schedules_confirm.html", context)

    def _nothing(self, request: HttpRequest, action: ScheduleAction, selection: Selection) -> HttpResponse:
        if selection.unchanged:
            skipped = " ".join(_skipped(action, selection))
            messages.info(request, _("Nothing was changed. %(skipped)s") % {"skipped": skipped})
        elif "all" in request.POST and not action.takes_all:
            text = _("Nothing was changed. “%(action)s” is not for all that match: select the schedules one by one.")
            messages.warning(request, text % {"action": action.label})
        else:
            messages.warning(request, _("Nothing was changed. Select the schedules and the action again."))
        return self._redirect_back(request)

    def _tell(self, request: HttpRequest, action: ScheduleAction, selection: Selection, done: Sequence[Done]) -> None:
        messages.success(request, self.told(request, action, done))
        for text in _skipped(action, selection):
            messages.warning(request, text)

    def _after(self, request: HttpRequest, done: Sequence[Done]) -> HttpResponse:
        """Return to the list, or open the only copy."""
        copy = done[0].copy if len(done) == 1 else None
        address = self.url(request, "schedule", "change", copy.pk) if copy else ""
        return HttpResponseRedirect(address) if address else self._redirect_back(request)

    def _redirect_back(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(self.back_url(request))


def _numbers(texts: list[str]) -> list[int]:
    return [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= 18]


def _skipped(action: ScheduleAction, selection: Selection) -> list[str]:
    """Return what is not changed, and why."""
    found = []
    if selection.forbidden:
        text = ngettext(
            "%(number)s schedule is left out: it is in code, or you may not schedule its task.",
            "%(number)s schedules are left out: they are in code, or you may not schedule their tasks.",
            selection.forbidden,
        )
        found.append(text % {"number": formatting.number(selection.forbidden)})
    if selection.unchanged:
        found.append(str(action.left_out % {"number": selection.unchanged}))
    return found
