"""Hears of new jobs the moment they are committed.

``LISTEN`` succeeds on connections that will never hear anything: through a
transaction pooler, or on a link that died quietly. So the listener believes only
what it hears: the heartbeat, on its own connection, notifies a channel that only
this worker listens to. Silence there means that notifications do not arrive; then
it says so, connects anew, and the worker lives by polling meanwhile.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

from psycopg import sql

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker.database import Database
from django_graphile_worker.worker.service import Service, Trouble, jittered

JOBS_CHANNEL = "jobs:insert"
# How long one step waits for notifications before it looks at the clock.
PATIENCE = 2.0
# A first sign of life is asked for at once, so it comes at once or not at all.
FIRST_PROOF_WITHIN = 5.0
LONGEST_SILENCE_BETWEEN_TRIES = 60.0
LONGEST_WAIT_FOR_SERVER = 5.0


class SilentListenerError(GraphileWorkerError):
    """LISTEN was accepted, but notifications do not arrive."""


class Listener(Service):
    """A connection of its own that does nothing but listen."""

    name = "listener"

    def __init__(
        self,
        *,
        database: Database,
        channel: Callable[[], str],
        on_jobs: Callable[[], None],
        on_listening: Callable[[], None],
        on_lost: Callable[[Exception, float], None],
        request_proof: Callable[[], None],
        proof_within: float | None,
        clock: Callable[[], float] = time.monotonic,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._channel = channel
        self._on_jobs = on_jobs
        self._on_listening = on_listening
        self._on_lost = on_lost
        self._request_proof = request_proof
        self._proof_within = proof_within
        self._clock = clock
        self._heard_at: float | None = None
        self._own_channel = ""
        self._losses = 0
        self.is_healthy = False

    def step(self) -> float:
        """Wait a while for notifications; connect first if need be."""
        try:
            connection = self._listening_connection()
            for notice in connection.notifies(timeout=PATIENCE):
                self._hear(notice)
                if self.is_stopping:
                    break
            self._insist_on_proof()
        except Exception as error:
            return math.inf if self.is_stopping else self._lose(error)
        return 0.0

    def stop(self) -> None:
        super().stop()
        # The thread sits in the socket; nothing else wakes it.
        self._database.cut()

    def close(self) -> None:
        self._database.close()

    def _listening_connection(self) -> Any:
        if self._heard_at is None or self._own_channel != self._channel():
            self._database.close()
            self._own_channel = self._channel()
            with self._database.cursor() as cursor:
                for channel in (JOBS_CHANNEL, self._own_channel):
                    cursor.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            self._heard_at = self._clock()
            if self._proof_within is None:
                self._prove()
            else:
                self._request_proof()
            # Whatever was added while nobody listened.
            self._on_jobs()
        return self._database.connection()

    def _hear(self, notice: Any) -> None:
        if notice.channel == self._own_channel:
            self._heard_at = self._clock()
            self._prove()
        elif announces_jobs(notice.payload):
            self._on_jobs()

    def _prove(self) -> None:
        if not self.is_healthy:
            self.is_healthy = True
            self._losses = 0
            self._on_listening()

    def _insist_on_proof(self) -> None:
        if self._proof_within is None or self._heard_at is None:
            return
        limit = self._proof_within if self.is_healthy else min(self._proof_within, FIRST_PROOF_WITHIN)
        if self._clock() - self._heard_at > limit:
            raise SilentListenerError(
                f"Expected a notification within {limit:g} s, heard none. A pooler in "
                "transaction mode does not pass notifications on: point the worker at the server "
                "itself or at a session pool, or run it with --no-listen. Polling meanwhile."
            )

    def _lose(self, error: Exception) -> float:
        self.is_healthy = False
        self._heard_at = None
        self._database.close()
        # A server that was away is back soon; a pooler stays what it is.
        is_silent = isinstance(error, SilentListenerError)
        longest = LONGEST_SILENCE_BETWEEN_TRIES if is_silent else LONGEST_WAIT_FOR_SERVER
        delay = jittered(min(longest, 0.1 * 4.0 ** min(self._losses, 10)))
        self._losses += 1
        self._on_lost(error, delay)
        return delay


def announces_jobs(payload: str) -> bool:
    """Does a notification tell of jobs? The original counts down when one is removed."""
    try:
        return bool(json.loads(payload)["count"] > 0)
    except (ValueError, TypeError, KeyError):
        return True
