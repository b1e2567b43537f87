"""The recorder without counts: it sends no statement, and needs no connection."""

from __future__ import annotations

from unittest.mock import Mock

from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer
from django_graphile_worker.worker.reporting.statistics_recorder import StatisticsRecorder


def test_nothing_to_record_is_no_statement() -> None:
    database = Mock()
    recorder = StatisticsRecorder(
        database=database, buffer=StatisticsBuffer(), interval=10.0, worker_id=lambda: "django-worker-1"
    )
    recorder.step()
    recorder.close()
    database.cursor.assert_not_called()
    database.close.assert_called()
