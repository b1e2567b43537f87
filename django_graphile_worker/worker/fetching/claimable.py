"""Which jobs a worker may claim: those of its tasks, without a forbidden flag.

A Django task may be in any module, so a worker cannot know all of them when it starts: the module may be one that no
``tasks.py`` imports, or one that did not exist. The first job of a task puts its name into the database. A worker reads
new names whenever it has nothing to do, and imports the function of a name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from django.db import close_old_connections
from django.utils.module_loading import import_string

from django_graphile_worker.conf import Settings, checked_flags
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.registry import Task, is_path, split_identifier
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.task_selection import FindTask

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds until the names of the tasks are looked up again: a clean-up may have removed them from the database.
REVIEW_INTERVAL = 60.0
# The same in a project with Django tasks: a worker that is never idle finds new tasks only so.
REVIEW_INTERVAL_OF_DJANGO_TASKS = 5.0
# Ids are given before they are committed, so that a lower id may appear after a higher one.
OVERLAP = 100
# Seconds until a name whose import failed is tried again.
RETRY_AFTER = 30.0
# How many names are read at once: any program that adds jobs can fill the table.
MAX_NAMES = 1_000


class TaskDirectory:
    """The tasks that this worker runs, by the ids of their identifiers in the database."""

    def __init__(self, worker: DatabaseWorker, find_task: FindTask | None) -> None:
        self._worker = worker
        self._database = worker.claim_database
        # Finds Django tasks, which may be in any module, by the names that jobs brought into the database; None in a
        # project without them.
        self._find_task = find_task
        self.finds_tasks = find_task is not None
        # The highest id whose name was read, when a name that is no task of this worker may be tried again, and the
        # names whose import has failed.
        self._highest_id = 0
        self._retry_at: dict[str, float] = {}
        self._reported: set[str] = set()
        # By identifier. Replaced as a whole, as other threads read it.
        self.tasks = worker.tasks
        self._by_id: dict[int, Task[Any, Any]] = {}
        self._paused: frozenset[str] = frozenset()
        # Held while the ids are chosen: the thread that claims reviews the tasks, and another thread reads the pauses.
        self._choosing = threading.Lock()
        # The ids of tasks that have no limits and are not paused, and the same ids as the text of a PostgreSQL array,
        # which is made once and not for every claim.
        self.ids: list[int] = []
        # The limited tasks that are not paused, by id. Ordinary claims do not ask for them. Replaced as a whole.
        self.limited: Mapping[int, Task[Any, Any]] = {}
        self.ids_text = b"{}"
        self._reviewed_at = -math.inf
        self._review_interval = REVIEW_INTERVAL if find_task is None else REVIEW_INTERVAL_OF_DJANGO_TASKS

    @property
    def is_review_due(self) -> bool:
        return time.monotonic() - self._reviewed_at > self._review_interval

    @property
    def may_have_tasks(self) -> bool:
        """Whether there may be jobs for this worker."""
        return bool(self.tasks) or self.finds_tasks

    def review_soon(self) -> None:
        """Have the next claim look the names up again."""
        self._reviewed_at = -math.inf

    def review(self) -> None:
        """Register the names of this worker's tasks in the database, and read their ids."""
        with self._database.cursor() as cursor:
            names = workers.register_tasks(cursor, list(self.tasks), schema=self._database.schema)
        self._replace({task_id: self.tasks[identifier] for task_id, identifier in names.items()})
        self._reviewed_at = time.monotonic()
        # Read all names again: a clean-up may have deleted some, and their ids have changed.
        self._highest_id = 0
        self.find_new_tasks()

    def find_new_tasks(self) -> bool:
        """Look for names of Django tasks that are new in the database; return True if this worker runs one of them."""
        if self._find_task is None:
            return False
        with self._database.cursor() as cursor:
            names = workers.task_paths_after(
                cursor, self._highest_id - OVERLAP, max_names=MAX_NAMES, schema=self._database.schema
            )
        self._highest_id = max([self._highest_id, *names])
        tried = {
            task_id: self.tasks.get(name) or self._import(name, self._find_task)
            for task_id, name in names.items()
            if task_id not in self._by_id
        }
        found = {task_id: task for task_id, task in tried.items() if task is not None}
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
            # Before a claim asks for their jobs.
            self._worker.tasks_found()
            self._choose_ids()

    def _choose_ids(self) -> None:
        paused, was_limited = self._paused, bool(self.limited)
        active = {task_id: task for task_id, task in self._by_id.items() if task.identifier not in paused}
        self.ids = [task_id for task_id, task in active.items() if not task.limits]
        self.ids_text = int_array(self.ids).encode()
        self.limited = {task_id: task for task_id, task in active.items() if task.limits}
        if self.limited and not was_limited:
            self._worker.limited_tasks_found()

    def _import(self, identifier: str, find_task: FindTask) -> Task[Any, Any] | None:
        now = time.monotonic()
        if self._retry_at.get(identifier, now) > now or not is_path(split_identifier(identifier)[0]):
            return None
        self._retry_at[identifier] = now + RETRY_AFTER
        try:
            task = find_task(identifier)
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


class ForbiddenFlags:
    """The paused flags, and the setting ``FORBIDDEN_FLAGS``: flags, or a callable, which is called for every claim."""

    def __init__(self, settings: Settings) -> None:
        self._flags = settings.forbidden_flags
        if isinstance(self._flags, str):
            self._flags = import_string(self._flags)
        self._paused: tuple[str, ...] = ()
        # All flags, if no callable has to be asked for some of them.
        self._fixed = self._flags if isinstance(self._flags, tuple) else None

    def pause(self, flags: Iterable[str]) -> None:
        """Forbid these flags, too, and no longer the flags of the last call."""
        self._paused = tuple(sorted(flags))
        if isinstance(self._flags, tuple):
            self._fixed = (*self._flags, *self._paused)

    def __call__(self) -> tuple[str, ...]:
        """Return the flags as they are now."""
        if self._fixed is not None:
            return self._fixed
        born_in = fork_guard.generation
        try:
            return (*checked_flags(self._called()), *self._paused)
        except ConfigurationError:
            raise
        except BaseException as error:  # even SystemExit: it is the site's code
            raise ConfigurationError(
                'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, '
                f"got {type(error).__name__}: {error}"
            ) from error
        finally:
            # A process that the callable forked must not claim.
            fork_guard.end_child(born_in)
            # The callable may query the database, on this thread: a broken connection must not stay open.
            close_old_connections()

    def _called(self) -> Any:
        flags: Any = self._flags() if callable(self._flags) else ()
        return asyncio.run(_result_of(flags)) if inspect.isawaitable(flags) else flags


async def _result_of(awaitable: Any) -> Any:
    return await awaitable
