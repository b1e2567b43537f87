"""Finds the tasks of schedules among the tasks of the project, whether or not this worker runs them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django_graphile_worker.registry import Registry, Task
from django_graphile_worker.worker.task_selection import FindTask

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds until a task that was not found is looked for again: its module may have failed to load.
RETRY_AFTER = 30.0


class KnownTasks:
    """The tasks of the project, by identifier."""

    def __init__(
        self, registry: Registry, find_django_task: FindTask | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._find_django_task = find_django_task
        self._clock = clock
        # When a name that is no task may be looked for again.
        self._retry_at: dict[str, float] = {}

    def get(self, identifier: str) -> Task[Any, Any] | None:
        """Return a task, or None if this project has no such task, or cannot load it."""
        task = self._registry.get(identifier) or self._find(identifier)
        if task is None:
            self._retry_at[identifier] = self._clock() + RETRY_AFTER
        return task

    def unknown(self) -> list[str]:
        """Return the names that are no tasks of this project, as far as they were looked for."""
        now = self._clock()
        self._retry_at = {name: retry_at for name, retry_at in self._retry_at.items() if retry_at > now}
        return list(self._retry_at)

    def _find(self, identifier: str) -> Task[Any, Any] | None:
        if self._find_django_task is None or identifier in self._retry_at:
            return None
        try:
            return self._find_django_task(identifier)
        except (Exception, SystemExit) as error:
            # The module of a task may raise anything. Workers report it when they look for the tasks of jobs.
            logger.debug("The task %s of a schedule could not be imported: %s", identifier, error)
            return None
