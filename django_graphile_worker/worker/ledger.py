"""The statements of the worker, each on the connection of the part that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from django_graphile_worker.sql import claims
from django_graphile_worker.worker.database import Database

Clock = Callable[[], datetime | None]


class ReleaseLedger:
    """How claims end, in the database."""

    def __init__(self, database: Database, *, holder: Callable[[], str], now: Clock, notify: bool) -> None:
        self._database = database
        self._schema = database.schema
        self._holder = holder
        self._now = now
        self._notify = notify

    def complete(self, ended: Sequence[claims.Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return claims.complete_jobs(cursor, ended, schema=self._schema, holder=self._holder())

    def fail(self, failures: Sequence[claims.Failure]) -> dict[int, float | None]:
        with self._database.cursor() as cursor:
            return claims.fail_jobs(cursor, failures, schema=self._schema, holder=self._holder(), now=self._now())

    def give_back(self, ended: Sequence[claims.Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return claims.return_jobs(cursor, ended, schema=self._schema, holder=self._holder())

    def give_back_remains(self, ended: Sequence[tuple[claims.Claim, str]]) -> set[int]:
        # Here, as it is rare, and nothing that the first job has to wait for.
        from django_graphile_worker.sql.remains import Remains, return_remains

        remains = [Remains(*each) for each in ended]
        with self._database.cursor() as cursor:
            return return_remains(cursor, remains, schema=self._schema, holder=self._holder())

    def still_claimed(self, ended: Sequence[claims.Claim]) -> set[int]:
        with self._database.cursor() as cursor:
            return claims.still_claimed(cursor, ended, schema=self._schema, holder=self._holder())

    def release_queues(self, queue_ids: Sequence[int], *, unless_in_use: bool) -> set[int]:
        with self._database.cursor() as cursor:
            return claims.release_queues(
                cursor,
                queue_ids,
                schema=self._schema,
                holder=self._holder(),
                notify=self._notify,
                unless_in_use=unless_in_use,
                now=self._now(),
            )
