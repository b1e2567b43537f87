"""Refuses definitions of schedules that are not valid, with the messages of the parser of crontabs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone

from django_graphile_worker import conf, registry
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.models.schedule_tasks import find_task
from django_graphile_worker.payloads import encode
from django_graphile_worker.schedules.validation import mistakes_in
from django_graphile_worker.schedules.words import parse_interval
from django_graphile_worker.sql.schedules.changes import FOREVER

FIELDS = (
    "name", "task", "payload", "cron", "interval", "run_at", "time_zone", "starts_at", "ends_at", "queue_name",
    "priority", "max_attempts", "job_key", "missed", "missed_within", "overlap", "paused_until", "description",
)  # fmt: skip
PHRASES = ("interval", "missed_within")


def refuse_mistakes(schedule: Any, *, former_task: str | None = None) -> None:
    """Raise ValidationError with the mistakes of a ``Schedule`` by field; write its phrases as durations.

    The task must be one that this process knows, unless the schedule has it already: another project that shares the
    database may have it.
    """
    _take_python_values(schedule)
    values = {name: _value(getattr(schedule, name)) for name in FIELDS}
    if values["paused_until"] == FOREVER:
        # A pause without an end is no time that people choose.
        values["paused_until"] = None
    is_known = schedule.task == former_task or find_task(schedule.task) is not None
    is_new = schedule._state.adding and schedule.is_enabled
    mistakes = mistakes_in(
        values,
        tasks=None if is_known else registry.tasks.identifiers(),
        now=_value(timezone.now()) if is_new else None,
    )
    if mistakes:
        raise ValidationError(mistakes)
    for name in PHRASES:
        if isinstance(values[name], str):
            setattr(schedule, name, parse_interval(values[name]))


def _take_python_values(schedule: Any) -> None:
    """Replace a task by its identifier and an instance of a dataclass or model by its fields, as ``add_job()`` does."""
    if isinstance(schedule.task, registry.Task):
        schedule.task = schedule.task.identifier
    if not isinstance(schedule.payload, dict | list | str | int | float | None):
        try:
            schedule.payload = json.loads(encode(schedule.payload, max_size=conf.current().max_payload_size))
        except PayloadError as error:
            raise ValidationError({"payload": [str(error)]}) from error


def _value(value: Any) -> Any:
    """Return a value; a naive time of a project without USE_TZ as an aware time."""
    is_naive = isinstance(value, datetime) and timezone.is_naive(value)
    return timezone.make_aware(value) if is_naive else value
