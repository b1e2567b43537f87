"""Reads what is asked of this worker: which of its jobs are to stop, what is paused, and when a schedule is due.

A change notifies the channel ``jobs:control`` when it is committed, and the listener calls the heartbeat, which reads.
A notification may be lost, and does not pass a pooler in transaction mode: so each heartbeat reads, too. Both happen on
the thread of the heartbeat, on its connection. No code of the site runs there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import psycopg
from psycopg.errors import ProgramLimitExceeded

from django_graphile_worker.sql import control
from django_graphile_worker.worker.database.connection import Database

if TYPE_CHECKING:
    from typing import Protocol

    class ControlEvents(Protocol):
        """What the reader needs from its worker, and reports to it."""

        def worker_id(self) -> str:
            """Return the id of the worker whose claims are to be stopped."""

        def stop(self, requests: Sequence[control.RequestedStop]) -> None:
            """Stop these runs. A request is passed on with each read until its claim has ended."""

        def missed(self, requests: Sequence[control.RequestedStop]) -> None:
            """Report requests that came too late: the jobs had ended by themselves."""

        def pauses_read(self, pauses: Sequence[control.ReadPause]) -> None:
            """Compare these pauses, which are all of them, with the pauses that are known."""

        def schedule_expected(self, seconds: float) -> None:
            """Note that a schedule is due in so many seconds."""

        def now(self) -> datetime | None:
            """Return the time of the jobs; None for the time of the database."""


class ControlReader:
    """Reads the requests for one worker, with one statement, and passes them on."""

    def __init__(self, events: ControlEvents) -> None:
        self._events = events

    def read(self, database: Database, proof_channel: str | None = None) -> None:
        """Read all requests. The parts that get them compare them with what they know already.

        With a channel, notify it, as proof for the listener that notifications arrive.
        """
        try:
            read = self._read(database, proof_channel)
        except ProgramLimitExceeded:
            # The notification queue of the server is full.
            read = self._read(database)
        except psycopg.Error:
            # A table may be locked. The listener needs the proof nevertheless.
            if proof_channel is not None:
                self._send_proof(database, proof_channel)
            raise
        self._events.pauses_read(read.pauses)
        if read.until_schedule is not None:
            self._events.schedule_expected(read.until_schedule)
        if read.stops:
            self._pass_on(read.stops, database)

    def _read(self, database: Database, proof_channel: str | None = None) -> control.Control:
        worker_id, now = self._events.worker_id(), self._events.now()
        with database.cursor() as cursor:
            return control.read_control(cursor, worker_id, schema=database.schema, now=now, proof_channel=proof_channel)

    def _send_proof(self, database: Database, channel: str) -> None:
        with contextlib.suppress(psycopg.Error), database.cursor() as cursor:
            control.send_proof(cursor, channel, schema=database.schema)

    def _pass_on(self, requests: Sequence[control.RequestedStop], database: Database) -> None:
        self._events.stop([request for request in requests if request.is_claimed])
        missed = [request for request in requests if not request.is_claimed]
        if missed:
            with database.cursor() as cursor:
                forgotten = control.forget_stops(cursor, missed, schema=database.schema)
            self._events.missed([request for request in missed if request.job_id in forgotten])
