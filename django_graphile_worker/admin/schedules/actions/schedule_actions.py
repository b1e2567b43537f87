"""The actions on schedules: who may take each, which schedules it changes, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, ngettext_lazy, pgettext_lazy

from django_graphile_worker.admin import audit, formatting
from django_graphile_worker.admin.schedules.actions import action_steps
from django_graphile_worker.admin.schedules.actions.action_steps import Change, Done
from django_graphile_worker.admin.schedules.actions.pause_form import PauseScheduleForm
from django_graphile_worker.models import Schedule

Text = str | Promise

# Why an action leaves out schedules that the user may change.
IN_THIS_STATE = ngettext_lazy(
    "%(number)s schedule is in this state already.", "%(number)s schedules are in this state already.", "number"
)
DISABLED = ngettext_lazy(
    "%(number)s schedule is left out: it is disabled.",
    "%(number)s schedules are left out: they are disabled.",
    "number",
)


def is_paused(schedule: Schedule, now: datetime) -> bool:
    """Return whether an enabled schedule is paused now."""
    until = schedule.paused_until
    return until is not None and formatting.aware(until) > formatting.aware(now)


@dataclass(frozen=True, slots=True)
class ScheduleAction:
    """An action. ``permission`` is the name of a method of the admin that is asked about each schedule."""

    name: str
    label: Text
    permission: str
    explanation: Text
    # What the user is asked, and told afterwards: with the name of a schedule, and with a number of schedules.
    question_of_one: Text
    question: Any
    result: Any
    # Whether it changes a schedule in this state at this time.
    applies: Callable[[Schedule, datetime], bool]
    run: Callable[[Sequence[Schedule], Change], list[Done]]
    form: type[forms.Form] | None = None
    # What is told about the others.
    left_out: Any = IN_THIS_STATE
    is_destructive: bool = False
    # Whether a user can take it for all schedules that match a search.
    takes_all: bool = True
    # Whether it also is an action on items of the crontab.
    takes_items: bool = False
    log_flag: int = audit.CHANGE

    @property
    def is_always_confirmed(self) -> bool:
        """Whether it is confirmed also for one schedule."""
        return self.is_destructive or self.form is not None


ACTIONS: Mapping[str, ScheduleAction] = {
    action.name: action
    for action in (
        ScheduleAction(
            name="run_now",
            label=gettext_lazy("Run now"),
            permission="has_run_permission",
            explanation=gettext_lazy("A job is added at once. The next times stay as they are."),
            question_of_one=gettext_lazy("Run %(name)s now?"),
            question=ngettext_lazy("Run %(number)s schedule now?", "Run %(number)s schedules now?", "number"),
            result=ngettext_lazy("Ran %(number)s schedule.", "Ran %(number)s schedules.", "number"),
            applies=lambda schedule, now: True,
            run=action_steps.run_now,
            takes_all=False,
            takes_items=True,
        ),
        ScheduleAction(
            name="pause",
            label=pgettext_lazy("action", "Pause"),
            permission="has_pause_schedule_permission",
            explanation=gettext_lazy(
                "No job is added while a schedule is paused. The times of the pause are not made up for."
            ),
            question_of_one=gettext_lazy("Pause %(name)s?"),
            question=ngettext_lazy("Pause %(number)s schedule?", "Pause %(number)s schedules?", "number"),
            result=ngettext_lazy("Paused %(number)s schedule.", "Paused %(number)s schedules.", "number"),
            applies=lambda schedule, now: schedule.is_enabled,
            run=action_steps.pause,
            form=PauseScheduleForm,
            left_out=DISABLED,
            takes_items=True,
        ),
        ScheduleAction(
            name="resume",
            label=gettext_lazy("Resume"),
            permission="has_pause_schedule_permission",
            explanation=gettext_lazy("Schedules are due at their next times again."),
            question_of_one=gettext_lazy("Resume %(name)s?"),
            question=ngettext_lazy("Resume %(number)s schedule?", "Resume %(number)s schedules?", "number"),
            result=ngettext_lazy("Resumed %(number)s schedule.", "Resumed %(number)s schedules.", "number"),
            applies=is_paused,
            run=action_steps.resume,
            takes_items=True,
        ),
        ScheduleAction(
            name="enable",
            label=gettext_lazy("Enable"),
            permission="has_change_permission",
            explanation=gettext_lazy("Schedules are due from now on; earlier times are not made up for."),
            question_of_one=gettext_lazy("Enable %(name)s?"),
            question=ngettext_lazy("Enable %(number)s schedule?", "Enable %(number)s schedules?", "number"),
            result=ngettext_lazy("Enabled %(number)s schedule.", "Enabled %(number)s schedules.", "number"),
            applies=lambda schedule, now: not schedule.is_enabled,
            run=action_steps.enable,
        ),
        ScheduleAction(
            name="disable",
            label=gettext_lazy("Disable"),
            permission="has_disable_permission",
            explanation=gettext_lazy("Disabled schedules add no jobs until someone enables them."),
            question_of_one=gettext_lazy("Disable %(name)s?"),
            question=ngettext_lazy("Disable %(number)s schedule?", "Disable %(number)s schedules?", "number"),
            result=ngettext_lazy("Disabled %(number)s schedule.", "Disabled %(number)s schedules.", "number"),
            applies=lambda schedule, now: schedule.is_enabled,
            run=action_steps.disable,
        ),
        ScheduleAction(
            name="duplicate",
            label=gettext_lazy("Duplicate"),
            permission="has_duplicate_permission",
            explanation=gettext_lazy("Each copy is disabled until someone enables it."),
            question_of_one=gettext_lazy("Duplicate %(name)s?"),
            question=ngettext_lazy("Duplicate %(number)s schedule?", "Duplicate %(number)s schedules?", "number"),
            result=ngettext_lazy("Duplicated %(number)s schedule.", "Duplicated %(number)s schedules.", "number"),
            applies=lambda schedule, now: True,
            run=action_steps.duplicate,
            takes_all=False,
        ),
        ScheduleAction(
            name="delete",
            label=gettext_lazy("Delete"),
            permission="has_delete_permission",
            explanation=gettext_lazy(
                "Nothing is added for a deleted schedule any more. Jobs that it has added already stay."
            ),
            question_of_one=gettext_lazy("Delete %(name)s?"),
            question=ngettext_lazy("Delete %(number)s schedule?", "Delete %(number)s schedules?", "number"),
            result=ngettext_lazy("Deleted %(number)s schedule.", "Deleted %(number)s schedules.", "number"),
            applies=lambda schedule, now: True,
            run=action_steps.delete,
            is_destructive=True,
            log_flag=audit.DELETION,
        ),
    )
}


def question(action: ScheduleAction, names: Sequence[str], number: int) -> str:
    """Return what the user is asked."""
    if number == 1 and names:
        return str(action.question_of_one) % {"name": names[0]}
    return str(action.question % {"number": number})
