"""Writes the statistics of the dashboard to the database.

The recorder has a thread and a connection of its own: a lock on the tables of the statistics delays neither a heartbeat
nor a result, only the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer
from django_graphile_worker.worker.service import Service, Trouble, jittered

if TYPE_CHECKING:
    from django_graphile_worker.sql.statistics.statistics import Row

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
        # Late import: nothing is counted before the first job has ended, so the first job does not wait for it.
        from django_graphile_worker.sql.statistics import named_statistics, statistics

        schema = self._database.schema
        queue_rows = self._buffer.drain_queues()
        try:
            with self._database.cursor() as cursor:
                statistics.append(cursor, rows, schema=schema)
        except BaseException:
            self._buffer.restore(rows, queue_rows)
            raise
        try:
            with self._database.cursor() as cursor:
                named_statistics.append(cursor, self._named(rows, queue_rows), schema=schema)
        except BaseException:
            # The counts of tasks are written; the counts of this worker are lost with this error.
            self._buffer.restore((), queue_rows)
            raise
        for module in (statistics, named_statistics):
            with self._database.cursor() as cursor:
                while module.fold(cursor, schema=schema, at_least_after=at_least_after):
                    continue

    def _named(self, rows: Sequence[Row], queue_rows: Sequence[Row]) -> list[tuple[str, Row]]:
        """Return the counts of the queues, and those of this worker: the sum of its tasks in each minute."""
        # Late import: see _record.
        from django_graphile_worker.sql.statistics import named_statistics, statistics

        worker_id = self._worker_id()
        minutes = {row.started_at for row in rows}
        own = [
            statistics.together(
                [row for row in rows if row.started_at == minute], started_at=minute, task_identifier=worker_id
            )
            for minute in sorted(minutes)
        ]
        return [
            *((named_statistics.WORKER, row) for row in own),
            *((named_statistics.QUEUE, row) for row in queue_rows),
        ]
