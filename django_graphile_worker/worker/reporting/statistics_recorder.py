"""Writes the statistics of the dashboard to the database.

The recorder has a thread and a connection of its own: a lock on the tables of the statistics delays neither a heartbeat
nor a result, only the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_graphile_worker.sql.statistics import statistics
from django_graphile_worker.sql.statistics.statistics import Row
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer
from django_graphile_worker.worker.service import Service, Trouble, jittered

# Seconds for which a worker that stops tries to write its last counts.
LAST_RECORD_TIMEOUT = 5.0


class StatisticsRecorder(Service):
    """The service that appends this worker's counts, and merges the counts of all workers when that is due."""

    name = "statistics"

    def __init__(
        self,
        *,
        database: Database,
        buffer: StatisticsBuffer,
        interval: float,
        worker_id: Callable[[], str],
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._buffer = buffer
        self._worker_id = worker_id
        self._interval = interval
        self._is_closed = False

    def step(self) -> float:
        rows = self._buffer.drain()
        if rows:
            # It is enough if one worker merges the counts of all workers within half an interval.
            self._record(rows, at_least_after=self._interval / 2)
        else:
            # An idle worker does not need this connection.
            self._database.close()
        return jittered(self._interval)

    def close(self) -> None:
        """Write what was counted since the last step. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            rows = self._buffer.drain()
            if rows:
                self._database.deadline = min(self._database.deadline, LAST_RECORD_TIMEOUT)
                self._record(rows, at_least_after=0.0)
        except Exception as error:
            if self._on_trouble is not None:
                self._on_trouble(self.name, error, 0.0)
        finally:
            self._database.close()

    def _record(self, rows: Sequence[Row], *, at_least_after: float) -> None:
        schema = self._database.schema
        try:
            with self._database.cursor() as cursor:
                statistics.append(cursor, rows, worker_id=self._worker_id(), schema=schema)
        except BaseException:
            self._buffer.restore(rows)
            raise
        with self._database.cursor() as cursor:
            while statistics.fold(cursor, schema=schema, at_least_after=at_least_after):
                continue
