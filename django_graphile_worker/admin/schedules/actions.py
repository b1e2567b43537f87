"""The actions on schedules: who may take each, which schedules it changes, what it does, and what the user is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext, ngettext_lazy, pgettext_lazy

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.forms import DateTimeLocalInput, time_zone_help
from django_graphile_worker.admin.schedules.code_items import ScheduleItemsAdmin
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.models.schedules import OF_THE_DATABASE
from django_graphile_worker.schedules.validation import LONGEST_NAME

# One request changes at most so many schedules, in one transaction.
MAX_CHANGED = 10_000
# The confirmation names so many of them.
EXAMPLES = 10
# What the confirmation sends again.
KEPT_FIELDS = ("row", "action", "_selected_action", "select_across", "index", "database")
PAUSES = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}

Text = str | Promise


class PauseScheduleForm(forms.Form):
    """A length, or a date and time. ``cleaned_data["until"]`` is the end of the pause; None without an end."""

    length = forms.ChoiceField(
        label=gettext_lazy("Pause"),
        choices=[
            ("resumed", gettext_lazy("until someone resumes it")),
            ("hour", gettext_lazy("for an hour")),
            ("day", gettext_lazy("for a day")),
            ("week", gettext_lazy("for a week")),
            ("at", gettext_lazy("until the time below")),
        ],
    )
    until = forms.DateTimeField(
        label=gettext_lazy("Until"), required=False, widget=DateTimeLocalInput, help_text=time_zone_help()
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        length, until = cleaned["length"], cleaned.get("until")
        if length == "at" and until is None:
            self.add_error("until", _("Enter the time at which the pause ends."))
        elif until is not None and until <= timezone.now():
            self.add_error("until", _("Enter a time in the future."))
        elif until is None and length in PAUSES:
            cleaned["until"] = timezone.now() + PAUSES[length]
        return cleaned


@dataclass(frozen=True, slots=True)
class Change:
    """What an action is asked to do: with which schedules, on which page, with the values of its form."""

    schedules: Sequence[Schedule]
    page: ScheduleActionsAdmin
    request: HttpRequest
    values: Mapping[str, Any]

    @property
    def by(self) -> str:
        return self.request.user.get_username()

    @property
    def alias(self) -> str:
        return databases.selected_alias(self.request)

    @property
    def rows(self) -> QuerySet[Schedule]:
        return Schedule.objects.using(self.alias).filter(pk__in=[schedule.pk for schedule in self.schedules])

    def done(self, text: str, **values: Any) -> list[Done]:
        return [Done(schedule, audit.Message(text, values)) for schedule in self.schedules]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a schedule: the entry for the log, and the job or the copy that was added."""

    schedule: Schedule
    # None if the entry is written already.
    message: audit.Message | None
    job_id: int | None = None
    copy: Schedule | None = None


def _run_now(change: Change) -> list[Done]:
    done = []
    for schedule in change.schedules:
        schedule.validate_definition()
        job_id = schedule.run_now(by=change.by)
        message = audit.Message(gettext_noop("Run now, as job #%(id)s."), {"id": str(job_id)})
        done.append(Done(schedule, message, job_id=job_id))
    return done


def _pause(change: Change) -> list[Done]:
    until = change.values.get("until")
    _set_pause(change, until or Schedule.FOREVER)
    if until is None:
        return change.done(gettext_noop("Paused."))
    return change.done(gettext_noop("Paused until %(time)s."), time=until)


def _resume(change: Change) -> list[Done]:
    _set_pause(change, None)
    return change.done(gettext_noop("Resumed."))


def _set_pause(change: Change, until: datetime | None) -> None:
    """Pause or resume schedules. As in the admin's log, many of them at once have no entries of their own."""
    change.rows.update(paused_until=until)
    if len(change.schedules) <= audit.MAX_ENTRIES:
        for schedule in change.schedules:
            schedule.note_pause(until, by=change.by, using=change.alias)


def _enable(change: Change) -> list[Done]:
    change.rows.update(is_enabled=True)
    return change.done(gettext_noop("Enabled."))


def _disable(change: Change) -> list[Done]:
    change.rows.update(is_enabled=False)
    return change.done(gettext_noop("Disabled."))


def _delete(change: Change) -> list[Done]:
    """Delete as Django's own action does, with the methods that a project may override."""
    change.page.log_deletions(change.request, change.schedules)
    change.page.delete_queryset(change.request, change.rows)
    return [Done(schedule, None) for schedule in change.schedules]


# The fields that are not copied: those of the database and the workers, and the state of the schedule.
NOT_COPIED = frozenset({"id", "name", "is_enabled", "paused_until", *OF_THE_DATABASE})


def _duplicate(change: Change) -> list[Done]:
    """Add copies that are disabled."""
    names = [field.attname for field in Schedule._meta.concrete_fields if field.attname not in NOT_COPIED]
    done = []
    for schedule in change.schedules:
        values = {name: getattr(schedule, name) for name in names}
        copy = Schedule(**values, name=_free_name(schedule.name, change.alias), is_enabled=False)
        copy.save(using=change.alias)
        message = audit.Message(gettext_noop("Duplicated as %(name)s."), {"name": copy.name})
        done.append(Done(schedule, message, copy=copy))
    return done


def _free_name(name: str, alias: str) -> str:
    """Return the name of a copy: that of the original, cut if it is long, and a number from the second copy on."""
    number = 0
    while True:
        number += 1
        text = _("%(name)s (copy)") if number == 1 else _("%(name)s (copy %(number)s)")
        values = {"number": formatting.number(number)}
        rest = len(text % {**values, "name": ""})
        found = text % {**values, "name": name[: LONGEST_NAME - rest]}
        if not Schedule.objects.using(alias).filter(name=found).exists():
            return found


# Why an action leaves out schedules that the user may change.
IN_THIS_STATE = ngettext_lazy(
    "%(number)s schedule is in this state already.", "%(number)s schedules are in this state already.", "number"
)
DISABLED = ngettext_lazy(
    "%(number)s schedule is left out: it is disabled.",
    "%(number)s schedules are left out: they are disabled.",
    "number",
)


@dataclass(frozen=True, slots=True)
class ScheduleAction:
    """An action. ``permission`` is the method has_…_permission of the admin that is asked about each schedule."""

    name: str
    label: Text
    permission: str
    explanation: Text
    # What the user is asked, and told afterwards, with the name of the schedule or the number of schedules.
    question: Text
    result: Text
    # Whether it changes a schedule in this state at this time.
    applies: Callable[[Schedule, datetime], bool]
    run: Callable[[Change], list[Done]]
    form: type[forms.Form] | None = None
    # What is told about the others.
    left_out: Any = IN_THIS_STATE
    is_destructive: bool = False
    # Whether a user can take it for all schedules that match a search.
    takes_all: bool = True

    def is_allowed(self, page: Any, request: HttpRequest, schedule: Schedule | None = None) -> bool:
        return bool(getattr(page, f"has_{self.permission}_permission")(request, schedule))


def _is_paused(schedule: Schedule, now: datetime) -> bool:
    until = schedule.paused_until
    return until is not None and formatting.aware(until) > formatting.aware(now)


ACTIONS: Mapping[str, ScheduleAction] = {
    action.name: action
    for action in (
        ScheduleAction(
            name="run_now",
            label=gettext_lazy("Run now"),
            permission="run",
            explanation=gettext_lazy("A job is added at once. The next times stay as they are."),
            question=gettext_lazy("Run %(name)s now?"),
            result=gettext_lazy("Ran %(name)s."),
            applies=lambda schedule, now: True,
            run=_run_now,
            takes_all=False,
        ),
        ScheduleAction(
            name="pause",
            label=pgettext_lazy("action", "Pause"),
            permission="pause_schedule",
            explanation=gettext_lazy(
                "No job is added while a schedule is paused. The times of the pause are not made up for."
            ),
            question=gettext_lazy("Pause %(name)s?"),
            result=gettext_lazy("Paused %(name)s."),
            applies=lambda schedule, now: schedule.is_enabled,
            run=_pause,
            form=PauseScheduleForm,
            left_out=DISABLED,
        ),
        ScheduleAction(
            name="resume",
            label=gettext_lazy("Resume"),
            permission="pause_schedule",
            explanation=gettext_lazy("Schedules are due at their next times again."),
            question=gettext_lazy("Resume %(name)s?"),
            result=gettext_lazy("Resumed %(name)s."),
            applies=_is_paused,
            run=_resume,
        ),
        ScheduleAction(
            name="enable",
            label=gettext_lazy("Enable"),
            permission="change",
            explanation=gettext_lazy("Schedules are due from now on; earlier times are not made up for."),
            question=gettext_lazy("Enable %(name)s?"),
            result=gettext_lazy("Enabled %(name)s."),
            applies=lambda schedule, now: not schedule.is_enabled,
            run=_enable,
        ),
        ScheduleAction(
            name="disable",
            label=gettext_lazy("Disable"),
            permission="disable",
            explanation=gettext_lazy("Disabled schedules add no jobs until someone enables them."),
            question=gettext_lazy("Disable %(name)s?"),
            result=gettext_lazy("Disabled %(name)s."),
            applies=lambda schedule, now: schedule.is_enabled,
            run=_disable,
        ),
        ScheduleAction(
            name="duplicate",
            label=gettext_lazy("Duplicate"),
            permission="duplicate",
            explanation=gettext_lazy("Each copy is disabled until someone enables it."),
            question=gettext_lazy("Duplicate %(name)s?"),
            result=gettext_lazy("Duplicated %(name)s."),
            applies=lambda schedule, now: True,
            run=_duplicate,
            takes_all=False,
        ),
        ScheduleAction(
            # The name that Django's own action has, in whose place this one is.
            name="delete_selected",
            label=gettext_lazy("Delete"),
            permission="delete",
            explanation=gettext_lazy(
                "Nothing is added for a deleted schedule any more. Jobs that it has added already stay."
            ),
            question=gettext_lazy("Delete %(name)s?"),
            result=gettext_lazy("Deleted %(name)s."),
            applies=lambda schedule, now: True,
            run=_delete,
            is_destructive=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The schedules that an action is for: those that it changes, and how many it does not, and why."""

    action: ScheduleAction
    schedules: list[Schedule]
    forbidden: int
    unchanged: int

    def skipped(self) -> list[str]:
        """Return what is not changed, and why."""
        found = []
        if self.forbidden:
            text = ngettext(
                "%(number)s schedule is left out: it is in code, or you may not schedule its task.",
                "%(number)s schedules are left out: they are in code, or you may not schedule their tasks.",
                self.forbidden,
            )
            found.append(text % {"number": formatting.number(self.forbidden)})
        if self.unchanged:
            found.append(str(self.action.left_out % {"number": self.unchanged}))
        return found


def _action(name: str) -> Any:
    """Return the method of an action, as Django's lists call it."""
    action = ACTIONS[name]

    @admin.action(permissions=[action.permission], description=action.label)  # type: ignore[arg-type]
    def perform(self: ScheduleActionsAdmin, request: HttpRequest, queryset: QuerySet[Schedule]) -> HttpResponse | None:
        if request.POST.get("select_across") == "1" and not action.takes_all:
            text = _("Nothing was changed. “%(action)s” is not for all that match: select the schedules one by one.")
            messages.warning(request, text % {"action": action.label})
            return None
        return self.act(request, action, queryset)

    return perform


class ScheduleActionsAdmin(ScheduleItemsAdmin):
    """The actions. Each needs POST, its own permission and that of each task, and is logged."""

    run_now = _action("run_now")
    pause = _action("pause")
    resume = _action("resume")
    enable = _action("enable")
    disable = _action("disable")
    duplicate = _action("duplicate")
    delete_selected = _action("delete_selected")

    def act_on_row(self, request: HttpRequest) -> HttpResponse:
        """Take the action of a button: its value has the action, what the row is, and the id or the name."""
        name, _space, rest = request.POST["row"].partition(" ")
        kind, _space, target = rest.partition(" ")
        if kind == "item":
            return self.act_on_item(request, name, target)
        actions: dict[str, Any] = self.get_actions(request)
        self.require(self.sees_schedules(request) and (name in actions or name not in ACTIONS))
        response: HttpResponse | None = None
        if name in actions:
            is_id = target.isascii() and target.isdigit() and len(target) <= 18
            rows = self.get_queryset(request).filter(pk=int(target) if is_id else 0)
            response = actions[name][0](self, request, rows)
        else:
            messages.warning(request, _("Select an action."))
        return response or HttpResponseRedirect(request.get_full_path())

    def act(self, request: HttpRequest, action: ScheduleAction, queryset: QuerySet[Schedule]) -> HttpResponse | None:
        """Change the schedules, or ask first. Return None for the page from which the action was taken."""
        alias, is_confirmed = databases.selected_alias(request), "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None) if action.form else None
        with databases.writing(alias):
            selection = self._select(request, action, queryset)
            if not selection.schedules:
                self._say_nothing(request, selection)
                return None
            needs_answer = action.is_destructive or form is not None or len(selection.schedules) > 1
            deletion = self._deletion(request, selection) if action.is_destructive else {}
            is_refused = deletion.get("lacking") or deletion.get("protected")
            if (needs_answer and not is_confirmed) or is_refused or (form is not None and not form.is_valid()):
                return self._confirm(request, selection, form, deletion)
            change = Change(selection.schedules, self, request, form.cleaned_data if form else {})
            try:
                with changed_by(change.by, using=alias):
                    done = action.run(change)
            except ValidationError as error:
                # A program can write a line that no parser reads.
                messages.error(request, " ".join(error.messages))
                return None
            _log(request, done)
        one = done[0] if len(done) == 1 else None
        if one is not None and one.job_id is not None:
            messages.success(request, self.added_message(request, one.schedule.task, one.job_id))
        else:
            messages.success(request, str(action.result) % {"name": _named([each.schedule for each in done])})
        for text in selection.skipped():
            messages.warning(request, text)
        # Open the only copy.
        url = self.url(request, "schedule", "change", one.copy.pk) if one is not None and one.copy is not None else ""
        return HttpResponseRedirect(url) if url else None

    def _select(self, request: HttpRequest, action: ScheduleAction, queryset: QuerySet[Schedule]) -> Selection:
        """Lock the schedules, so that the task that was checked is the task that the action is for.

        What restricts the queryset may be a query that PostgreSQL cannot lock.
        """
        rows = Schedule.objects.using(databases.selected_alias(request)).select_for_update()
        locked = list(rows.filter(pk__in=queryset.order_by().values("pk")).order_by("pk")[:MAX_CHANGED])
        # Another transaction may have changed them while this one waited.
        ids = [schedule.pk for schedule in locked]
        seen = set(queryset.order_by().filter(pk__in=ids).values_list("pk", flat=True))
        found, now = [schedule for schedule in locked if schedule.pk in seen], timezone.now()
        permitted = [schedule for schedule in found if action.is_allowed(self, request, schedule)]
        changed = [schedule for schedule in permitted if action.applies(schedule, now)]
        if found and not permitted:
            raise PermissionDenied
        return Selection(action, changed, len(found) - len(permitted), len(permitted) - len(changed))

    def _say_nothing(self, request: HttpRequest, selection: Selection) -> None:
        if selection.unchanged:
            skipped = " ".join(selection.skipped())
            messages.info(request, _("Nothing was changed. %(skipped)s") % {"skipped": skipped})
        else:
            messages.warning(request, _("Nothing was changed. Select the schedules and the action again."))

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        deleted = audit.Message(gettext_noop("Deleted."))
        _log(request, [Done(schedule, deleted) for schedule in queryset], audit.DELETION)

    def _deletion(self, request: HttpRequest, selection: Selection) -> dict[str, Any]:
        """Return what is deleted with the schedules, and what prevents that."""
        related, counts, lacking, protected = self.get_deleted_objects(selection.schedules, request)
        is_alone = sum(counts.values()) <= len(selection.schedules)
        return {"related": [] if is_alone else related, "lacking": sorted(lacking), "protected": protected}

    def _confirm(
        self, request: HttpRequest, selection: Selection, form: Any, deletion: Mapping[str, Any]
    ) -> HttpResponse:
        number = len(selection.schedules)
        context = {
            "title": str(selection.action.question) % {"name": _named(selection.schedules)},
            "action": selection.action,
            "form": form,
            "names": [schedule.name for schedule in selection.schedules[:EXAMPLES]] if number > 1 else [],
            "more": formatting.number(number - EXAMPLES) if number > EXAMPLES else "",
            "skipped": selection.skipped(),
            "hidden_fields": [(name, value) for name in KEPT_FIELDS for value in request.POST.getlist(name)],
            "list_url": request.get_full_path(),
            **deletion,
        }
        return self.render(request, "schedules_confirm.html", context)


def _log(request: HttpRequest, done: Sequence[Done], flag: int = audit.CHANGE) -> None:
    """Write an entry for each of a few schedules, else one entry that names the first of them."""
    message = done[0].message if done else None
    if message is None:
        return
    if len(done) <= audit.MAX_ENTRIES:
        for each in done:
            schedule = each.schedule
            audit.log(request, Schedule, str(schedule.pk), schedule.name, each.message or message, flag)
            if each.copy is not None:
                added = audit.Message(gettext_noop("Added as a copy of %(name)s."), {"name": schedule.name})
                audit.log(request, Schedule, str(each.copy.pk), each.copy.name, added, audit.ADDITION)
        return
    names = ", ".join(each.schedule.name for each in done[: audit.MAX_ENTRIES])
    several = audit.Message(gettext_noop("%(message)s Schedules: %(names)s, …"), {"message": message, "names": names})
    audit.log(request, Schedule, "", _named([each.schedule for each in done]), several, flag)


def _named(schedules: Sequence[Schedule]) -> str:
    """Return the name of a schedule, or how many there are."""
    if len(schedules) == 1:
        return schedules[0].name
    text = ngettext("%(number)s schedule", "%(number)s schedules", len(schedules))
    return text % {"number": formatting.number(len(schedules))}
