"""The entries about actions on schedules in the admin's log."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest
from django.utils.translation import gettext_noop, ngettext

from django_graphile_worker.admin import audit, formatting
from django_graphile_worker.admin.schedules.actions.action_steps import Done
from django_graphile_worker.admin.schedules.actions.schedule_actions import ScheduleAction
from django_graphile_worker.models import Schedule


def write(request: HttpRequest, action: ScheduleAction, done: Sequence[Done]) -> None:
    """Write an entry for each of a few schedules, else one entry that names the first of them."""
    if len(done) <= audit.MOST_ENTRIES:
        for each in done:
            schedule = each.schedule
            audit.log(request, Schedule, str(schedule.pk), schedule.name, each.message, action.log_flag)
            if each.copy is not None:
                message = audit.Message(gettext_noop("Added as a copy of %(name)s."), {"name": schedule.name})
                audit.log(request, Schedule, str(each.copy.pk), each.copy.name, message, audit.ADDITION)
        return
    number = ngettext("%(number)s schedule", "%(number)s schedules", len(done))
    names = ", ".join(each.schedule.name for each in done[: audit.MOST_ENTRIES])
    message = audit.Message(
        gettext_noop("%(message)s Schedules: %(names)s, …"), {"message": done[0].message, "names": names}
    )
    subject = number % {"number": formatting.number(len(done))}
    audit.log(request, Schedule, "", subject, message, action.log_flag)
