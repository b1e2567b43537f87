"""What the actions on schedules do, each in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from django_graphile_worker.admin import audit
from django_graphile_worker.admin.schedules.actions.copying import copy_of
from django_graphile_worker.models import Schedule


@dataclass(frozen=True, slots=True)
class Change:
    """What an action is asked to do: the user who asks, the database, and the values of its form."""

    by: str
    alias: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a schedule: the entry for the log, and the job or the copy that was added."""

    schedule: Schedule
    message: audit.Message
    job_id: int | None = None
    copy: Schedule | None = None


def run_now(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    return [_run_now(schedule, change) for schedule in schedules]


def _run_now(schedule: Schedule, change: Change) -> Done:
    schedule.validate_definition()
    job_id = schedule.run_now(by=change.by)
    message = audit.Message(gettext_noop("Run now, as job #%(id)s."), {"id": str(job_id)})
    return Done(schedule, message, job_id=job_id)


def pause(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    until = change.values.get("until")
    _set_pause(schedules, change, until or Schedule.FOREVER)
    message = (
        audit.Message(gettext_noop("Paused."))
        if until is None
        else audit.Message(gettext_noop("Paused until %(time)s."), {"time": until})
    )
    return [Done(schedule, message) for schedule in schedules]


def resume(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    _set_pause(schedules, change, None)
    return [Done(schedule, audit.Message(gettext_noop("Resumed."))) for schedule in schedules]


def _set_pause(schedules: Sequence[Schedule], change: Change, until: datetime | None) -> None:
    """Pause or resume schedules. As in the admin's log, many of them at once have no entries of their own."""
    _rows(schedules, change).update(paused_until=until)
    if len(schedules) <= audit.MOST_ENTRIES:
        for schedule in schedules:
            schedule.note_pause(until, by=change.by, using=change.alias)


def enable(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    _rows(schedules, change).update(is_enabled=True)
    return [Done(schedule, audit.Message(gettext_noop("Enabled."))) for schedule in schedules]


def disable(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    _rows(schedules, change).update(is_enabled=False)
    return [Done(schedule, audit.Message(gettext_noop("Disabled."))) for schedule in schedules]


def delete(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    _rows(schedules, change).delete()
    return [Done(schedule, audit.Message(gettext_noop("Deleted."))) for schedule in schedules]


def duplicate(schedules: Sequence[Schedule], change: Change) -> list[Done]:
    return [_duplicate(schedule, change) for schedule in schedules]


def _duplicate(schedule: Schedule, change: Change) -> Done:
    copy = copy_of(schedule, change.alias)
    message = audit.Message(gettext_noop("Duplicated as %(name)s."), {"name": copy.name})
    return Done(schedule, message, copy=copy)


def _rows(schedules: Sequence[Schedule], change: Change) -> QuerySet[Schedule]:
    return Schedule.objects.using(change.alias).filter(pk__in=[schedule.pk for schedule in schedules])
