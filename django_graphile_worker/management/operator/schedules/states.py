"""The state of a schedule, as a word and as a condition of a query."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import Q

from django_graphile_worker import registry
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.models import Schedule

ENABLED, PAUSED, DISABLED, ENDED, UNKNOWN_TASK = "enabled", "paused", "disabled", "ended", "unknown task"
FAILING = "failing"
STATES = ("enabled", "paused", "disabled", "ended", "failing")
# next_at is infinity if nothing will be fired; the model reads it as the last day of Python's calendar.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
TO_BE_COMPUTED = datetime(2, 1, 1, tzinfo=UTC)


def next_at(schedule: Schedule) -> datetime | None:
    """Return the time that the workers have computed; None if there is none, or if it is still to be computed."""
    found = schedule.next_at
    if found is None:
        return None
    return formatting.aware(found) if TO_BE_COMPUTED < formatting.aware(found) < NEVER else None


def state_of(schedule: Schedule, now: datetime, *, is_failing: bool = False) -> str:
    """Return one word, or two, for what the schedule does."""
    if not schedule.is_enabled:
        return DISABLED
    if schedule.paused_until is not None and formatting.aware(schedule.paused_until) > formatting.aware(now):
        return PAUSED
    if schedule.next_at is not None and formatting.aware(schedule.next_at) >= NEVER:
        return ENDED
    if schedule.task not in registry.tasks:
        return UNKNOWN_TASK
    return FAILING if is_failing else ENABLED


def condition(state: str, now: datetime) -> Q:
    """Return the condition of a query for schedules in a state; an unknown task and a failing one count as enabled."""
    paused, ended = Q(paused_until__gt=now), Q(next_at__gte=NEVER)
    on = Q(is_enabled=True)
    return {
        DISABLED: Q(is_enabled=False),
        PAUSED: on & paused,
        ENDED: on & ended & ~paused,
        ENABLED: on & ~paused & ~ended,
    }[state]
