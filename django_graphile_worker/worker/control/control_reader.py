"""Reads what is asked of this worker: which of its jobs are to stop, and what is paused.

A change of either notifies the channel ``jobs:control`` when it is committed, and the listener calls the heartbeat,
which reads. A notification may be lost, and does not pass a pooler in transaction mode: so each heartbeat reads, too.
Both happen on the thread of the heartbeat, on its connection. No code of the site runs there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from django_graphile_worker.sql import control
from django_graphile_worker.worker.database.connection import Database

if TYPE_CHECKING:
    from typing import Protocol

    class ControlEvents(Protocol):
        """What the reader needs from its worker, and reports to it."""

        def worker_id(self) -> str:
            """Return the id of the worker whose claims are to be stopped."""

        def stops_read(self, requests: Sequence[control.StopRequest]) -> None:
            """Stop these runs. They are all requests for this worker: a request that is missing now is settled."""

        def pauses_read(self, pauses: Sequence[control.ReadPause]) -> None:
            """Compare these pauses, which are all of them, with the pauses that are known."""

        def now(self) -> datetime | None:
            """Return the time of the jobs; None for the time of the database."""


class ControlReader:
    """Reads the requests for one worker, with one statement, and passes them on."""

    def __init__(self, events: ControlEvents) -> None:
        self._events = events

    def read(self, database: Database) -> None:
        """Read all requests. The parts that get them compare them with what they know already."""
        with database.cursor() as cursor:
            read = control.read_control(
                cursor, self._events.worker_id(), schema=database.schema, now=self._events.now()
            )
        self._events.stops_read(read.stops)
        self._events.pauses_read(read.pauses)
