"""Ends pauses at their time. Every worker does it, and the database lets one of them end each pause.

The thread and the connection exist only from the first pause on that has an end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from django_graphile_worker.pause_type import Pause
from django_graphile_worker.sql import pauses
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.service import Service, Trouble


class PauseEndings(Service):
    """The service that settles pauses in the database when the time of one of them is over."""

    name = "pauses"

    def __init__(
        self,
        *,
        database: Database,
        now: Callable[[], datetime | None],
        on_ended: Callable[[Sequence[Pause]], None],
        on_settled: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._now = now
        # Called with the pauses that this worker has ended.
        self._on_ended = on_ended
        # Called after each settlement: the worker must read the pauses again.
        self._on_settled = on_settled
        self._clock = clock
        self._due_at = math.inf

    def expect(self, seconds: float) -> None:
        """Settle the pauses after this many seconds, and not at the time that was planned before."""
        self._due_at = self._clock() + seconds
        self.start()
        self.wake()

    def step(self) -> float:
        remaining = self._due_at - self._clock()
        if remaining > 0:
            return remaining
        with self._database.cursor() as cursor:
            ended = pauses.settle(cursor, schema=self._database.schema, now=self._now())
        self._due_at = math.inf
        if ended:
            self._on_ended(ended)
        self._on_settled()
        return math.inf

    def close(self) -> None:
        self._database.close()
