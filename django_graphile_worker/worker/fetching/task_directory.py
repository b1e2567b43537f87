"""The task directory: the tasks of a worker, by their ids in the database."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django_graphile_worker.registry import Task
from django_graphile_worker.sql import tasks as task_names
from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.worker.database.connection import Database

if TYPE_CHECKING:
    from django_graphile_worker.worker.fetching.new_tasks import NewTasks

# Seconds until the names of the tasks are looked up again: a clean-up may have removed them from the database.
REVIEW_INTERVAL = 60.0
# The same in a project with Django tasks: a worker that is never idle finds new tasks only so.
REVIEW_INTERVAL_OF_DJANGO_TASKS = 5.0


class TaskDirectory:
    """The tasks that this worker runs, by the ids of their identifiers in the database."""

    def __init__(
        self,
        database: Database,
        tasks: Mapping[str, Task[Any, Any]],
        *,
        new_tasks: NewTasks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._clock = clock
        # Finds Django tasks, which may be in any module; None in a project without them.
        self._new_tasks = new_tasks
        # By identifier. Replaced as a whole, as other threads read it.
        self.tasks = tasks
        self._by_id: dict[int, Task[Any, Any]] = {}
        self._paused: frozenset[str] = frozenset()
        # Held while the ids are chosen: the thread that claims reviews the tasks, and another thread reads the pauses.
        self._choosing = threading.Lock()
        # The ids of tasks that have no limits and are not paused, and the same ids as the text of a PostgreSQL array,
        # which is made once and not for every claim.
        self.ids: list[int] = []
        # The limited tasks that are not paused, by id. Ordinary claims do not ask for them. Replaced as a whole.
        self.limited: Mapping[int, Task[Any, Any]] = {}
        # Called when the first limited task is found, on the thread that claims.
        self.on_limited: Callable[[], None] = _do_nothing
        # Called with the tasks by id when they change, before a claim asks for their jobs.
        self.on_tasks: Callable[[Mapping[int, Task[Any, Any]]], None] = _ignore_tasks
        self.ids_text = b"{}"
        self._reviewed_at = -math.inf
        self._review_interval = REVIEW_INTERVAL if new_tasks is None else REVIEW_INTERVAL_OF_DJANGO_TASKS

    @property
    def is_review_due(self) -> bool:
        return self._clock() - self._reviewed_at > self._review_interval

    @property
    def may_have_tasks(self) -> bool:
        """Whether there may be jobs for this worker."""
        return bool(self.tasks) or self.finds_tasks

    @property
    def finds_tasks(self) -> bool:
        """Whether tasks are found by the names that jobs brought into the database."""
        return self._new_tasks is not None

    def review_soon(self) -> None:
        """Have the next claim look the names up again."""
        self._reviewed_at = -math.inf

    def review(self) -> None:
        """Register the names of this worker's tasks in the database, and read their ids."""
        with self._database.cursor() as cursor:
            names = task_names.register_tasks(cursor, list(self.tasks), schema=self._database.schema)
        self._replace({task_id: self.tasks[identifier] for task_id, identifier in names.items()})
        self._reviewed_at = self._clock()
        if self._new_tasks is not None:
            self._new_tasks.forget_ids()
            self.find_new_tasks()

    def find_new_tasks(self) -> bool:
        """Look for names of Django tasks that are new in the database; return True if this worker runs one of them."""
        if self._new_tasks is None:
            return False
        found = self._new_tasks.find(self._database, known=self._by_id, tasks=self.tasks)
        if not found:
            return False
        self.tasks = {**self.tasks, **{task.identifier: task for task in found.values()}}
        self._replace({**self._by_id, **found})
        return True

    @property
    def by_id(self) -> Mapping[int, Task[Any, Any]]:
        return self._by_id

    def task_of(self, task_id: int) -> Task[Any, Any] | None:
        return self._by_id.get(task_id)

    def identifier_of(self, task_id: int) -> str | None:
        task = self._by_id.get(task_id)
        return None if task is None else task.identifier

    def pause(self, identifiers: frozenset[str]) -> None:
        """Leave the ids of these tasks out of the ids that claims ask for."""
        with self._choosing:
            self._paused = identifiers
            self._choose_ids()

    def _replace(self, by_id: dict[int, Task[Any, Any]]) -> None:
        with self._choosing:
            self._by_id = by_id
            self.on_tasks(by_id)
            self._choose_ids()

    def _choose_ids(self) -> None:
        paused, was_limited = self._paused, bool(self.limited)
        active = {task_id: task for task_id, task in self._by_id.items() if task.identifier not in paused}
        self.ids = [task_id for task_id, task in active.items() if not task.limits]
        self.ids_text = int_array(self.ids).encode()
        self.limited = {task_id: task for task_id, task in active.items() if task.limits}
        if self.limited and not was_limited:
            self.on_limited()


def _do_nothing() -> None:
    pass


def _ignore_tasks(tasks: Mapping[int, Task[Any, Any]]) -> None:
    pass
