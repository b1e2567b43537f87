"""Keeps the lease: tells the database, again and again, that this worker lives."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from django_graphile_worker.sql import workers
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.maintenance.lease_clock import lease_clock
from django_graphile_worker.worker.service import Service, Trouble, jittered

# Beats that are further apart than this, in intervals, may have an outage between them.
LONGEST_GAP = 2.0
# A beat that failed is tried again after a part of the interval.
RETRIES_PER_INTERVAL = 5


def deadline_of_beats(statement_timeout: float, worker_timeout: float) -> float:
    """Seconds that a beat may take: one that hangs must leave time for others before the lease is over."""
    return min(statement_timeout, max(worker_timeout / 4, min(1.0, worker_timeout / 3)))


class Heartbeat(Service):
    """The lease begins before the first claim and ends after the last result. Nothing of the user's runs here."""

    name = "heartbeat"

    def __init__(
        self,
        *,
        database: Database,
        worker_id: Callable[[], str],
        metadata: Callable[[], Mapping[str, Any]],
        channel: Callable[[], str | None],
        on_lost: Callable[[], None],
        interval: float,
        timeout: float,
        clock: Callable[[], float] = lease_clock,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._worker_id = worker_id
        self._metadata = metadata
        self._channel = channel
        self._on_lost = on_lost
        self._interval = interval
        self._timeout = timeout
        self._clock = clock
        self._last_beat = -math.inf
        self._contact_since = math.inf

    def register(self, database: Database | None = None) -> None:
        """Enter the register; before the first claim, so that every claim is of a registered worker."""
        began = self._clock()
        with (database or self._database).cursor() as cursor:
            workers.register_worker(
                cursor,
                self._worker_id(),
                self._metadata(),
                schema=self._database.schema,
                timeout=self._timeout,
                heartbeat=self._interval,
            )
        self._note_beat(began)

    def step(self) -> float:
        """One beat; a worker that the register forgot enters it anew under another id."""
        began = self._clock()
        if not self.was_called and began - self._last_beat < self._interval / 2:
            # Just registered, which was a beat: another would come between the first job and its claim, for 3 ms.
            return jittered(self._interval)
        if self._beat():
            self._note_beat(began)
            self._send_proof()
        else:
            # Nothing is to be claimed under the new id before the register has it.
            self._last_beat = -math.inf
            self._on_lost()
            self.register()
        return jittered(self._interval)

    @property
    def holds_lease(self) -> bool:
        """Beats came through lately enough that nobody can have taken the claims away."""
        return self._clock() < self._last_beat + self._timeout

    @property
    def in_contact_since(self) -> float:
        """Since when, by this clock, every beat has come through in time; infinity while that is not so."""
        is_late = self._clock() - self._last_beat > LONGEST_GAP * self._interval
        return math.inf if is_late else self._contact_since

    def deregister(self) -> None:
        with self._database.cursor() as cursor:
            workers.deregister_worker(cursor, self._worker_id(), schema=self._database.schema)

    def close(self) -> None:
        self._database.close()

    def _beat(self) -> bool:
        try:
            with self._database.cursor() as cursor:
                return workers.beat(cursor, self._worker_id(), self._metadata(), schema=self._database.schema)
        except BaseException:
            self._contact_since = math.inf
            raise

    def _note_beat(self, began: float) -> None:
        if self._contact_since == math.inf or began - self._last_beat > LONGEST_GAP * self._interval:
            self._contact_since = self._clock()
        self._last_beat = began

    def _send_proof(self) -> None:
        """Have the listener hear something. If that fails it is no matter of the lease: the listener notices."""
        channel = self._channel()
        if channel is not None:
            with contextlib.suppress(psycopg.Error), self._database.cursor() as cursor:
                workers.send_proof(cursor, channel, schema=self._database.schema)

    def _retry_delay(self) -> float:
        # A lease does not wait for a long back-off.
        return min(super()._retry_delay(), self._interval / RETRIES_PER_INTERVAL)
