"""Reports tasks that have jobs but no live worker: a mistyped name, or a missing deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.service import Service, jittered

# Seconds until the first look: workers that are started together have registered by then.
FIRST_LOOK = 15.0
LOOK_INTERVAL = 120.0


class UnservedTasks(Service):
    """The service that reports each such task once, and again if it was served in between.

    It reports no errors of the database: the parts that run jobs report the same errors.
    """

    name = "unserved-tasks"

    def __init__(
        self, *, database: Database, timeout: float, on_found: Callable[[Sequence[str]], None], first_look: float
    ) -> None:
        super().__init__()
        self._database = database
        self._timeout = timeout
        self._on_found = on_found
        self._first_look = first_look
        self._reported: frozenset[str] = frozenset()
        self._has_waited = False

    def step(self) -> float:
        if not self._has_waited:
            self._has_waited = True
            return self._first_look
        names = frozenset(self._find())
        unreported = sorted(names - self._reported)
        self._reported = names
        if unreported:
            self._on_found(unreported)
        return jittered(LOOK_INTERVAL)

    def _find(self) -> list[str]:
        # Late import: the first job does not wait for it.
        from django_graphile_worker.sql.inspection.unserved_tasks import unserved_tasks

        try:
            with self._database.cursor() as cursor:
                found = unserved_tasks(cursor, schema=self._database.schema, timeout=self._timeout)
        finally:
            # A connection is expensive; a look every two minutes does not justify keeping it open.
            self._database.close()
        return [task.identifier for task in found]

    def close(self) -> None:
        self._database.close()
