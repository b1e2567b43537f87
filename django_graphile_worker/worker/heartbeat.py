"""Keeps the lease: tells the database, again and again, that this worker lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from django_graphile_worker.sql import workers
from django_graphile_worker.worker.database import Database
from django_graphile_worker.worker.service import Service, Trouble, jittered

# How often the locks of long jobs are looked at.
RENEWAL_INTERVAL = 600.0


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
        clock: Callable[[], float] = time.monotonic,
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
        self._last_beat = -float("inf")
        self._steady_since = float("inf")
        self._last_renewal = clock()

    def register(self, database: Database | None = None) -> None:
        """Enter the register; before the first claim, so that no claim is an orphan's."""
        with (database or self._database).cursor() as cursor:
            workers.register_worker(cursor, self._worker_id(), self._metadata(), schema=self._database.schema)
        self._last_beat = self._steady_since = self._clock()

    def step(self) -> float:
        """One beat; a worker that the register forgot enters it anew under another id."""
        began = self._clock()
        if not self.was_called and began - self._last_beat < self._interval / 2:
            # Just registered, which was a beat: another would come between the first job and its claim, for 3 ms.
            return jittered(self._interval)
        with self._database.cursor() as cursor:
            is_known = workers.beat(
                cursor,
                self._worker_id(),
                self._metadata(),
                schema=self._database.schema,
                channel=self._channel(),
            )
        if is_known:
            if began - self._last_beat > self._timeout / 2:
                self._steady_since = began
            self._last_beat = began
            self._renew_long_claims()
        else:
            self._on_lost()
            self.register()
        return jittered(self._interval)

    @property
    def holds_lease(self) -> bool:
        """Beats came through lately enough that nobody can have taken the claims away."""
        return self._clock() - self._last_beat < self._timeout

    @property
    def is_steady(self) -> bool:
        """Beats come through, and have for a while: others who are heard of no more are dead, not cut off too."""
        return self.holds_lease and self._clock() - self._steady_since >= self._interval

    def deregister(self) -> None:
        with self._database.cursor() as cursor:
            workers.deregister_worker(cursor, self._worker_id(), schema=self._database.schema)

    def close(self) -> None:
        self._database.close()

    def _renew_long_claims(self) -> None:
        if self._clock() - self._last_renewal > RENEWAL_INTERVAL:
            with self._database.cursor() as cursor:
                workers.renew_claims(cursor, self._worker_id(), schema=self._database.schema)
            self._last_renewal = self._clock()

    def _retry_delay(self) -> float:
        # A lease does not wait for a long back-off.
        return min(super()._retry_delay(), self._interval / 2)
