"""The statements that end claims, on the releaser's own connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from psycopg.errors import ProgramLimitExceeded

from django_graphile_worker.sql import releases
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.database.blocking_cursor import BlockingCursor
from django_graphile_worker.worker.database.connection import Database

Clock = Callable[[], datetime | None]


class ReleaseStatements:
    """The statements of ``sql.releases``, bound to a connection, a schema and a clock."""

    def __init__(self, database: Database, *, now: Clock, notify: bool) -> None:
        self._database = database
        self._blocking_cursor = BlockingCursor(database)
        self._schema = database.schema
        self._now = now
        self._notify = notify

    def complete(self, ended: Sequence[Claim]) -> set[int]:
        with self._blocking_cursor.usable() as cursor:
            return releases.complete_jobs(cursor, ended, schema=self._schema)

    def fail(self, failures: Sequence[releases.Failure]) -> dict[int, float | None]:
        with self._database.cursor() as cursor:
            return releases.fail_jobs(cursor, failures, schema=self._schema, now=self._now())

    def return_jobs(self, ended: Sequence[Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.return_jobs(cursor, ended, schema=self._schema)

    def return_remaining(self, ended: Sequence[tuple[Claim, str]]) -> set[int]:
        """Return array jobs with the items that are left of their payloads."""
        with self._database.cursor() as cursor:
            return releases.return_remaining(cursor, ended, schema=self._schema)

    def still_claimed(self, ended: Sequence[Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.still_claimed(cursor, ended, schema=self._schema)

    def release_queues(self, queues: Sequence[releases.HeldQueue]) -> set[int]:
        """Release queues; return the ids of the queues that have a job to run.

        All of the queues are checked for jobs, not only the queues that were still held: after a broken connection, the
        first try, whose answer was lost, may have released them.
        """
        with self._database.cursor() as cursor:
            releases.release_queues(cursor, queues, schema=self._schema)
        queue_ids = [queue.id for queue in queues]
        try:
            return self._waiting(queue_ids, notify=self._notify)
        except ProgramLimitExceeded:
            # The notification queue of the server is full. This worker claims the jobs, or others find them by polling.
            return self._waiting(queue_ids, notify=False)

    def close(self) -> None:
        self._database.close()

    def _waiting(self, queue_ids: Sequence[int], *, notify: bool) -> set[int]:
        with self._database.cursor() as cursor:
            return releases.waiting_queues(cursor, queue_ids, schema=self._schema, notify=notify, now=self._now())
