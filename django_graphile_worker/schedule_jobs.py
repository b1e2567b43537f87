"""The job of a tick: what a schedule says about it, and where it says nothing, what its task says."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from django_graphile_worker import conf
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.items import flags_of_run
from django_graphile_worker.job_flags import RUNS_KEPT, schedule_flag
from django_graphile_worker.job_options import flags_of_recurring, valid_job_key
from django_graphile_worker.registry import Task
from django_graphile_worker.schedules.times import Definition, times_after
from django_graphile_worker.sql.schedules.firing import TickJob

RECORD_OF_SINGLE_RUN = timedelta(days=30)


class Scheduled(Protocol):
    """What a job takes from its schedule."""

    @property
    def id(self) -> int: ...
    @property
    def overlap(self) -> str: ...
    @property
    def queue_name(self) -> str | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def max_attempts(self) -> int | None: ...
    @property
    def job_key(self) -> str | None: ...


def job_of(
    schedule: Scheduled,
    definition: Definition,
    task: Task[Any, Any] | None,
    *,
    payload: str,
    at: datetime,
    is_late: bool = False,
) -> TickJob:
    """Return the job of a tick. ``payload`` is the payload as text of JSON."""
    defaults = None if task is None else task.defaults
    job_key = schedule.job_key
    if job_key is None and defaults is not None and defaults.job_key is not None:
        job_key = valid_job_key(defaults.job_key_for(json.loads(payload)))
    flags = () if defaults is None else (*(defaults.flags or ()), *flags_of_recurring(defaults, at))
    max_attempts = schedule.max_attempts or (None if defaults is None else defaults.max_attempts)
    return TickJob(
        at=at,
        is_late=is_late,
        queue_name=_queue_name(schedule, None if defaults is None else defaults.queue_name),
        # Schedules are of the installation "default".
        max_attempts=max_attempts or conf.current().chosen_max_attempts,
        job_key=job_key,
        job_key_mode=None if defaults is None else defaults.job_key_mode,
        priority=defaults.priority if schedule.priority is None and defaults is not None else schedule.priority,
        flags=(*flags, flag_of(schedule.id, definition, at)),
    )


def job_of_item(item: CronItem, *, at: datetime, is_late: bool = False) -> TickJob:
    """Return the job of a tick of an item of the crontab, which has all its options."""
    return TickJob(
        at=at,
        is_late=is_late,
        queue_name=item.queue_name,
        max_attempts=item.max_attempts,
        job_key=item.job_key,
        job_key_mode=item.job_key_mode,
        priority=item.priority,
        flags=tuple(flags_of_run(item, at)),
    )


def _queue_name(schedule: Scheduled, default: str | None) -> str | None:
    """Return the queue of a job. Jobs of a queue run one at a time."""
    if schedule.overlap == "queue":
        return schedule.queue_name or f"schedule:{schedule.id}"
    return schedule.queue_name or default


def flag_of(schedule_id: int, definition: Definition, at: datetime) -> str:
    """Return the flag by which a worker finds for how many seconds it records the outcome of a run."""
    return schedule_flag(schedule_id, _recorded_for(definition, at))


def _recorded_for(definition: Definition, at: datetime) -> timedelta:
    """Return for how long the outcome of a run is recorded: until so many later runs are there, within the limits."""
    if definition.interval is not None:
        return RUNS_KEPT * definition.interval
    if definition.cron is None:
        return RECORD_OF_SINGLE_RUN
    return _recorded_for_cron(definition.cron, definition.time_zone, at)


@lru_cache(maxsize=2_000)
def _recorded_for_cron(cron: str, time_zone: str, at: datetime) -> timedelta:
    # Thousands of schedules may have the same line, and fire at the same time.
    later = times_after(Definition(cron=cron, time_zone=time_zone), at)
    return max(itertools.islice(later, RUNS_KEPT), default=at) - at
