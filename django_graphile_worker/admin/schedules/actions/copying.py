"""Copies of schedules."""

from __future__ import annotations

from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.models import Schedule

LONGEST_NAME = 200
# The fields that are not copied: those of the database and the workers, and the state of the schedule.
NOT_COPIED = frozenset(
    {
        "id", "name", "is_enabled", "paused_until", "changed_by", "created_at", "changed_at", "revision", "anchor_at",
        "counts_from", "next_at", "last_tick", "last_job_id", "last_missed_at",
    }
)  # fmt: skip


def copy_of(schedule: Schedule, alias: str) -> Schedule:
    """Add a copy that is disabled, under a name that no schedule has, and return it."""
    fields = [field.attname for field in Schedule._meta.concrete_fields if field.attname not in NOT_COPIED]
    values = {name: getattr(schedule, name) for name in fields}
    copy = Schedule(**values, name=free_name(schedule.name, alias), is_enabled=False)
    copy.save(using=alias)
    return copy


def free_name(name: str, alias: str) -> str:
    """Return the name of a copy: that of the original, cut if it is long, and a number from the second copy on."""
    number = 1
    while Schedule.objects.using(alias).filter(name=(found := _name(name, number))).exists():
        number += 1
    return found


def _name(name: str, number: int) -> str:
    text = _("%(name)s (copy)") if number == 1 else _("%(name)s (copy %(number)s)")
    values = {"number": formatting.number(number)}
    rest = len(text % {**values, "name": ""})
    return text % {**values, "name": name[: LONGEST_NAME - rest]}
