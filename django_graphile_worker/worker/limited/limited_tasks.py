"""The limited tasks of a worker: the numbers of their limits, and the lane of each job."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django_graphile_worker.job_flags import EXPIRY_PREFIX, without_run_flags
from django_graphile_worker.limits import Overrides, definitions, keys_of
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.limits import Lane, UnsortedJob, parameters_of
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory


class LimitedTasks:
    """The limited tasks in the directory of a worker."""

    def __init__(self, directory: TaskDirectory, overrides: Overrides) -> None:
        self._directory = directory
        # The setting LIMITS.
        self._overrides = overrides
        self._tasks: Mapping[int, Task[Any, Any]] | None = None
        # The parameters of statements, made again only when the directory has changed.
        self._expiries: dict[int, float | None] = {}
        self._numbers: dict[str, str] = {}

    @property
    def ids(self) -> Collection[int]:
        """The ids of the limited tasks that are not paused."""
        return self.expiries.keys()

    @property
    def numbers(self) -> Mapping[str, str]:
        """The numbers of all limits as the parameters of a statement."""
        self._read_directory()
        return self._numbers

    @property
    def expiries(self) -> Mapping[int, float | None]:
        """For the id of each limited task that is not paused, after how many seconds its jobs expire."""
        self._read_directory()
        return self._expiries

    @property
    def others(self) -> Sequence[int]:
        """The ids of the tasks of the worker that have no limits and are not paused."""
        return self._directory.ids

    def is_limited(self, task_id: int) -> bool:
        task = self._directory.task_of(task_id)
        return task is not None and bool(task.limits)

    def lane_of(self, job: UnsortedJob) -> Lane:
        """Return the lane of a job; calls the key functions of the project."""
        task = self._directory.by_id[job.task_id]
        return Lane(
            task_id=job.task_id,
            queue_id=job.queue_id or 0,
            flags_text=_flags(job.flags_text),
            turn_limit=next((limit.name for limit in task.limits if limit.is_fair), None),
            keys=tuple((key.limit_name, key.text) for key in keys_of(task, job.payload_text)),
        )

    def _read_directory(self) -> None:
        tasks = self._directory.limited
        if tasks is not self._tasks:
            self._expiries = {task_id: task.expires for task_id, task in tasks.items()}
            self._numbers = parameters_of(definitions(tasks.values(), self._overrides))
            self._tasks = tasks


def _flags(flags_text: str | None) -> str | None:
    """Return the flags that a worker may forbid. Times of expiry, and runs of schedules, would be a lane each."""
    flags = sorted(flag for flag in without_run_flags(flags_from(flags_text)) if not flag.startswith(EXPIRY_PREFIX))
    return json.dumps(dict.fromkeys(flags, True)) if flags else None
