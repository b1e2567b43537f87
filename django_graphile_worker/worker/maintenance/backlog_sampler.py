"""Samples how many jobs there are, for the charts of the admin."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import monotonic, time

import psycopg

from django_graphile_worker.worker.database.connection import Database, limited_transaction
from django_graphile_worker.worker.service import Trouble

# Seconds until the next sample after one that failed, for example because it took too long.
RETRY_INTERVAL = 600.0
# Seconds that a sample may take: the recovery of dead workers' jobs waits for it.
LONGEST_SAMPLE = 3.0


class BacklogSampler:
    """The samples of the backlog that this worker takes: in each minute, the first worker that asks takes one.

    An error costs samples and nothing else, so it is reported and not raised.
    """

    def __init__(self, *, now: Callable[[], datetime | None], on_trouble: Trouble) -> None:
        self._now = now
        self._on_trouble = on_trouble
        self._next_at = 0.0

    def sample(self, database: Database) -> None:
        """Count the jobs in each state, if no worker has done so in this minute."""
        if monotonic() < self._next_at:
            return
        # Late import: the first job need not wait for it.
        from django_graphile_worker.sql.statistics import backlog_samples

        schema, now = database.schema, self._now()
        try:
            with database.cursor() as cursor:
                if not backlog_samples.is_sampled(cursor, schema=schema, now=now):
                    with limited_transaction(cursor.connection, min(LONGEST_SAMPLE, database.deadline)):
                        backlog_samples.sample(cursor, schema=schema, now=now)
            # Until the next minute there is nothing to ask the database, however far its clock is from this one.
            self._next_at = monotonic() + 60.0 - time() % 60.0
        except psycopg.Error as error:
            self._next_at = monotonic() + RETRY_INTERVAL
            self._on_trouble("backlog samples", error, RETRY_INTERVAL)
