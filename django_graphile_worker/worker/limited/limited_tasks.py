"""The limited tasks of a worker: the numbers of their limits, and the lane of each job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from django_graphile_worker.expiry import PREFIX as EXPIRY_PREFIX
from django_graphile_worker.limits.definitions import definitions
from django_graphile_worker.limits.keys import keys_of
from django_graphile_worker.limits.setting import Overrides
from django_graphile_worker.limits.templates import KeyTemplate
from django_graphile_worker.registry import Task
from django_graphile_worker.run_flags import without_run_flags
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.limits.numbers import parameters_of
from django_graphile_worker.sql.limits.sorting import Lane, UnsortedJob
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory


class LimitedTasks:
    """The limited tasks in the directory of a worker."""

    def __init__(self, directory: TaskDirectory, overrides: Overrides) -> None:
        self._directory = directory
        # The setting LIMITS.
        self._overrides = overrides
        self._tasks: Mapping[int, Task[Any, Any]] | None = None
        # The parameters of statements, made again only when the directory has changed.
        self._shapes: dict[int, int] = {}
        self._expiries: dict[int, float | None] = {}
        self._numbers: dict[str, str] = {}

    @property
    def shapes(self) -> Mapping[int, int]:
        """For the id of each limited task that is not paused, the number of its limits."""
        self._read_directory()
        return self._shapes

    @property
    def numbers(self) -> Mapping[str, str]:
        """The numbers of all limits as the parameters of a statement."""
        self._read_directory()
        return self._numbers

    @property
    def expiries(self) -> Mapping[int, float | None]:
        """For the id of each limited task, after how many seconds its jobs expire."""
        self._read_directory()
        return self._expiries

    @property
    def others(self) -> Sequence[int]:
        """The ids of the tasks of the worker that have no limits and are not paused."""
        return self._directory.ids

    def all_shapes(self) -> dict[int, int | None]:
        """Return the number of the limits of every task of the worker; None for a task without limits."""
        return {task_id: shape_of(task) if task.limits else None for task_id, task in self._directory.by_id.items()}

    def is_limited(self, task_id: int) -> bool:
        task = self._directory.task_of(task_id)
        return task is not None and bool(task.limits)

    def lane_of(self, job: UnsortedJob) -> Lane:
        """Return the lane of a job; calls the key functions of the project."""
        task = self._directory.by_id[job.task_id]
        return Lane(
            task_id=job.task_id,
            shape=shape_of(task),
            queue_id=job.queue_id or 0,
            flags_text=_flags(job.flags_text),
            turn_limit=next((limit.name for limit in task.limits if limit.is_fair), None),
            keys=tuple((key.limit_name, key.text) for key in keys_of(task, job.payload_text)),
        )

    def _read_directory(self) -> None:
        tasks = self._directory.limited
        if tasks is not self._tasks:
            self._shapes = {task_id: shape_of(task) for task_id, task in tasks.items()}
            self._expiries = {task_id: task.expires for task_id, task in tasks.items()}
            self._numbers = parameters_of(definitions(tasks.values(), self._overrides))
            self._tasks = tasks


def shape_of(task: Task[Any, Any]) -> int:
    """Return a number that stands for the limits of a task: other limits, other keys, another number.

    Jobs that were sorted by code with other limits are in lanes with another number, and are sorted again.
    """
    limits = [[limit.name, limit.is_fair, _source_of(limit.key)] for limit in task.limits]
    # As a signed number of 32 bits.
    return crc32(json.dumps(limits).encode()) - 2**31


def _source_of(key: Any) -> str:
    if isinstance(key, KeyTemplate):
        return key.text
    return f"{key.__module__}.{getattr(key, '__qualname__', type(key).__qualname__)}"


def _flags(flags_text: str | None) -> str | None:
    """Return the flags that a worker may forbid. Times of expiry, and runs of schedules, would be a lane each."""
    flags = sorted(flag for flag in without_run_flags(flags_from(flags_text)) if not flag.startswith(EXPIRY_PREFIX))
    return json.dumps(dict.fromkeys(flags, True)) if flags else None
