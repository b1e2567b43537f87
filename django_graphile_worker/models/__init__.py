"""The models: read-only tables of the worker schema, the tables that can be written, and the pages of the admin."""

from __future__ import annotations

from django_graphile_worker.models.pages import (
    ErrorGroup,
    Event,
    LimitKey,
    Overview,
    PastAttempt,
    PausedWork,
    RecurringTask,
)
from django_graphile_worker.models.schedules import Schedule, changed_by
from django_graphile_worker.models.tables import (
    Job,
    JobQueue,
    KnownCrontab,
    ReadOnlyModel,
    ReadOnlyQuerySet,
    Task,
    Worker,
    table,
)

__all__ = [
    "ErrorGroup",
    "Event",
    "Job",
    "JobQueue",
    "KnownCrontab",
    "LimitKey",
    "Overview",
    "PastAttempt",
    "PausedWork",
    "ReadOnlyModel",
    "ReadOnlyQuerySet",
    "RecurringTask",
    "Schedule",
    "Task",
    "Worker",
    "changed_by",
    "table",
]
