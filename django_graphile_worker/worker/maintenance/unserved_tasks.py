"""Looks, now and then, whether jobs wait for tasks that no live worker has: a mistyped name, a missing deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.service import Service, jittered

# Workers that are started together have registered by then.
FIRST_LOOK = 15.0
LOOK_INTERVAL = 120.0


class UnservedTasks(Service):
    """Tells each such name once, and again when it comes back.

    A trouble here is nobody's business: the parts that the jobs need tell theirs.
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
        self._told: frozenset[str] = frozenset()
        self._has_waited = False

    def step(self) -> float:
        if not self._has_waited:
            self._has_waited = True
            return self._first_look
        names = frozenset(self._find())
        news = sorted(names - self._told)
        self._told = names
        if news:
            self._on_found(news)
        return jittered(LOOK_INTERVAL)

    def _find(self) -> list[str]:
        # Here, as nothing that the first job has to wait for.
        from django_graphile_worker.sql.inspection.unserved_tasks import unserved_tasks

        try:
            with self._database.cursor() as cursor:
                found = unserved_tasks(cursor, schema=self._database.schema, timeout=self._timeout)
        finally:
            # A connection is dear; one look in two minutes is not worth keeping it.
            self._database.close()
        return [task.identifier for task in found]

    def close(self) -> None:
        self._database.close()
