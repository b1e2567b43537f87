"""Judges the alerts, if the setting ALERTS asks for them. Imported only then."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.setting_types import AlertSettings
from django_graphile_worker.telemetry.alert_delivery import logger
from django_graphile_worker.telemetry.alert_round import run_round
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds until the first round: workers that are started together have registered by then. A process that replaces
# another does not wait: it may live for a shorter time.
FIRST_ROUND = 15.0


class Alerting(Service):
    """The service that judges the alerts in its turn; nothing in the worker waits for it.

    Mail, and the job of a task, are sent on this thread with Django's own means.
    """

    name = "alerts"

    def __init__(self, worker: DatabaseWorker, settings: AlertSettings) -> None:
        super().__init__(on_trouble=worker.reports.other_trouble)
        self._worker = worker
        self._settings = settings
        self._database = worker.database("alerts")
        self._has_waited = False

    def step(self) -> float:
        if not self._has_waited and not self._worker.is_successor:
            self._has_waited = True
            return jittered(min(FIRST_ROUND, self._settings.interval))
        if self._is_own_thread():
            django_connections.watch_thread()
            django_connections.begin()
        try:
            run_round(self._database, self._worker.place, self._settings)
        except psycopg.ProgrammingError as error:
            # For example, the role of the worker has no right to the table: no other part would report that.
            logger.error("Alerts are not judged: %s", error)
        finally:
            if self._is_own_thread():
                django_connections.end()
            self._database.close()
        return jittered(self._settings.interval)

    def close(self) -> None:
        self._database.close()
        if self._is_own_thread():
            django_connections.thread_finished()

    def _is_own_thread(self) -> bool:
        """Return False for a test that calls ``step()``: another thread manages its connections itself."""
        return threading.current_thread() is self._thread
