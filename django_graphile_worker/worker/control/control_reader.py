"""Reads what is asked of this worker: which of its jobs are to stop, what is paused, and when a schedule is due.

A change notifies the channel ``jobs:control`` when it is committed, and the listener calls the heartbeat, which reads.
A notification may be lost, and does not pass a pooler in transaction mode: so each heartbeat reads, too. Both happen on
the thread of the heartbeat, on its connection. No code of the site runs there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg.errors import ProgramLimitExceeded

from django_graphile_worker.sql import control
from django_graphile_worker.worker.database.connection import Database

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker


class ControlReader:
    """Reads the requests for one worker, with one statement, and passes them on."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker

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
        self._worker.pauses.update(read.pauses)
        if read.until_schedule is not None:
            self._worker.schedule_expected(read.until_schedule)
        if read.stops:
            self._pass_on(read.stops, database)

    def _read(self, database: Database, proof_channel: str | None = None) -> control.Control:
        worker_id, now = self._worker.worker_id, self._worker.now()
        with database.cursor() as cursor:
            return control.read_control(cursor, worker_id, schema=database.schema, now=now, proof_channel=proof_channel)

    def _send_proof(self, database: Database, channel: str) -> None:
        with contextlib.suppress(psycopg.Error), database.cursor() as cursor:
            control.send_proof(cursor, channel, schema=database.schema)

    def _pass_on(self, requests: Sequence[control.RequestedStop], database: Database) -> None:
        self._worker.run_stops_requested([request for request in requests if request.is_claimed])
        missed = [request for request in requests if not request.is_claimed]
        if missed:
            with database.cursor() as cursor:
                forgotten = control.forget_stops(cursor, missed, schema=database.schema)
            self._worker.run_stops_missed([request for request in missed if request.job_id in forgotten])
