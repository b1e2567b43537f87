"""The task directory: the tasks of a worker, by their ids in the database."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from django_graphile_worker.registry import Task
from django_graphile_worker.sql import tasks as task_names
from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.worker.database.connection import Database

# Seconds until the names of the tasks are looked up again: a clean-up may have removed them from the database.
REVIEW_INTERVAL = 60.0


class TaskDirectory:
    """The tasks that this worker runs, by the ids of their identifiers in the database."""

    def __init__(self, database: Database, tasks: Mapping[str, Task[Any, Any]]) -> None:
        self._database = database
        self._tasks = tasks
        self._by_id: dict[int, Task[Any, Any]] = {}
        # The ids, and the same ids as the text of a PostgreSQL array, which is made once and not for every claim.
        self.ids: list[int] = []
        self.ids_text = b"{}"
        self._reviewed_at = -math.inf

    @property
    def is_review_due(self) -> bool:
        return time.monotonic() - self._reviewed_at > REVIEW_INTERVAL

    def review(self) -> None:
        """Register the names of this worker's tasks in the database, and read their ids."""
        with self._database.cursor() as cursor:
            names = task_names.register_tasks(cursor, list(self._tasks), schema=self._database.schema)
        self._by_id = {task_id: self._tasks[identifier] for task_id, identifier in names.items()}
        self.ids = list(self._by_id)
        self.ids_text = int_array(self._by_id).encode()
        self._reviewed_at = time.monotonic()

    def task_of(self, task_id: int) -> Task[Any, Any] | None:
        return self._by_id.get(task_id)

    def identifier_of(self, task_id: int) -> str | None:
        task = self._by_id.get(task_id)
        return None if task is None else task.identifier
