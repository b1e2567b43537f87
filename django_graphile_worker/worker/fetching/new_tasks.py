"""Finds Django tasks by the names that jobs brought into the database.

A Django task may be in any module, so a worker cannot know all of them when it starts: the module may be one that no
``tasks.py`` imports, or one that did not exist. The first job of a task puts its name into the database. A worker reads
new names whenever it has nothing to do, and imports the function that a name tells.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from django_graphile_worker.registry import Task, is_path, split_identifier
from django_graphile_worker.sql import tasks as task_names
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.task_selection import FindTask

logger = logging.getLogger("django_graphile_worker.worker")

# Ids are given before they are committed, so that a lower id may appear after a higher one.
OVERLAP = 100
# Seconds until a name whose import failed is tried again.
RETRY_AFTER = 30.0
# How many names are read at once: any program that adds jobs can fill the table.
MOST_NAMES = 1_000


class NewTasks:
    """The names of the database, and which of them this worker has tried."""

    def __init__(self, find_task: FindTask, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._find_task = find_task
        self._clock = clock
        self._highest_id = 0
        # When a name that is no task of this worker may be tried again.
        self._retry_at: dict[str, float] = {}
        self._reported: set[str] = set()

    def forget_ids(self) -> None:
        """Read all names again: a clean-up may have deleted some, and their ids have changed."""
        self._highest_id = 0

    def find(
        self, database: Database, *, known: Mapping[int, Task[Any, Any]], tasks: Mapping[str, Task[Any, Any]]
    ) -> dict[int, Task[Any, Any]]:
        """Return the tasks of names that are not ``known`` by their id. ``tasks`` are known by their identifier."""
        after = self._highest_id - OVERLAP
        with database.cursor() as cursor:
            names = task_names.paths_after(cursor, after, most=MOST_NAMES, schema=database.schema)
        self._highest_id = max([self._highest_id, *names])
        unknown = {task_id: name for task_id, name in names.items() if task_id not in known}
        found = {task_id: tasks.get(name) or self._resolved(name) for task_id, name in unknown.items()}
        return {task_id: task for task_id, task in found.items() if task is not None}

    def _resolved(self, identifier: str) -> Task[Any, Any] | None:
        now = self._clock()
        if self._retry_at.get(identifier, now) > now or not is_path(split_identifier(identifier)[0]):
            return None
        self._retry_at[identifier] = now + RETRY_AFTER
        try:
            task = self._find_task(identifier)
        except (Exception, SystemExit) as error:
            # A later deployment may add the module, or repair it.
            self._report(identifier, error)
            return None
        if task is not None:
            self._retry_at.pop(identifier)
        return task

    def _report(self, identifier: str, error: BaseException) -> None:
        if identifier in self._reported:
            return
        self._reported.add(identifier)
        level = logging.DEBUG if isinstance(error, ModuleNotFoundError) else logging.WARNING
        line = "The task %s could not be imported, and is tried again after %s seconds (%s: %s)."
        logger.log(level, line, identifier, round(RETRY_AFTER), type(error).__name__, error)
