"""Keeps the lease of a worker: writes to the database, at an interval, that the worker is alive."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.sql import workers
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# In heartbeat intervals. If two beats are further apart, there may have been an outage between them.
LONGEST_GAP = 2.0
# How often per heartbeat interval a beat that failed is tried again.
RETRIES_PER_INTERVAL = 5
# Seconds between two reads of what is asked of the worker while no notification arrives.
READ_INTERVAL = 1.5
# CLOCK_MONOTONIC stops while a machine is suspended, but for the other workers the lease expires. Linux has a clock
# that continues; on other systems the monotonic clock is used.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def lease_clock() -> float:
    """Return seconds that also pass while the machine is suspended, on Linux."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def deadline_of_beats(statement_timeout: float, worker_timeout: float) -> float:
    """Return the seconds that a beat may take: a beat that hangs must leave time for another within the lease."""
    return min(statement_timeout, max(worker_timeout / 4, min(1.0, worker_timeout / 3)))


class Heartbeat(Service):
    """The service that keeps the lease, from before the first claim until after the last result.

    No code of the site runs on its thread.
    """

    name = "heartbeat"

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = lease_clock) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        settings = worker.settings
        self._interval = settings.heartbeat_interval
        self._timeout = settings.worker_timeout
        deadline = deadline_of_beats(settings.statement_timeout, settings.worker_timeout)
        self._database = worker.database("heartbeat", deadline=deadline)
        self._clock = clock
        self._last_beat = -math.inf
        self._next_beat = -math.inf
        self._last_read = -math.inf
        self._contact_since = math.inf
        # What the server's clock shows more than the lease clock, which no setting of this machine's clock changes.
        self._server_offset = 0.0
        # Whether the next step is to read what is asked of the worker, and whether it is to beat although a beat is not
        # due yet.
        self._must_read = False
        self._must_beat = False

    def wake(self) -> None:
        self._must_beat = True
        super().wake()

    def read_control_soon(self) -> None:
        """Read now what is asked of the worker, and not with the next beat. Called on other threads."""
        self._must_read = True
        super().wake()

    def register(self, database: Database | None = None, *, former_id: str | None = None) -> None:
        """Register the worker, before the first claim, so that every claim belongs to a registered worker."""
        began = self._clock()
        with (database or self._database).cursor() as cursor:
            server_time = workers.register_worker(
                cursor,
                self._worker.worker_id,
                self._worker.metadata(),
                schema=self._database.schema,
                timeout=self._timeout,
                heartbeat=self._interval,
            )
        self._note_beat(began)
        self._note_server_time(server_time)
        self._worker.registered(former_id)

    def step(self) -> float:
        """Beat once; if the worker is no longer in the register, register it again under another id."""
        began = self._clock()
        if self._only_reads(began):
            self._read_control()
            return self._until_next_step(began)
        if not self.was_called and began - self._last_beat < self._interval / 2:
            # The worker has just registered, which was a beat. Another beat would delay the first job by 3 ms.
            return self._until_next_step(began)
        if self._beat():
            self._note_beat(began)
            self._read_control(self._proof_channel())
        else:
            # The worker must not hold a lease until the new id is registered: before, it may not claim under that id.
            self._last_beat = -math.inf
            self.register(former_id=self._worker.lease_lost())
        return self._until_next_step(began)

    @property
    def holds_lease(self) -> bool:
        """Whether the last beat is so recent that no other worker can have recovered the claims."""
        return self._clock() < self._last_beat + self._timeout

    @property
    def in_contact_since(self) -> float:
        """The time, by the lease clock, since which every beat was in time; infinity while the last beat is late."""
        is_late = self._clock() - self._last_beat > LONGEST_GAP * self._interval
        return math.inf if is_late else self._contact_since

    def server_time(self) -> float:
        """Return the time by the server's clock, in seconds since 1970, as the last beat read it."""
        return self._clock() + self._server_offset

    def note_time_passed(self, epoch: float) -> None:
        """Note that the server's clock has passed a time, which the last beat may have estimated to be later."""
        self._server_offset = max(self._server_offset, epoch - self._clock())

    def deregister(self) -> None:
        worker_id, reason = self._worker.worker_id, self._worker.stop_reason
        with self._database.cursor() as cursor:
            workers.deregister_worker(cursor, worker_id, schema=self._database.schema, reason=reason)

    def close(self) -> None:
        self._database.close()

    def _beat(self) -> bool:
        try:
            with self._database.cursor() as cursor:
                worker_id, metadata = self._worker.worker_id, self._worker.metadata()
                server_time = workers.beat(cursor, worker_id, metadata, schema=self._database.schema)
            if server_time is not None:
                self._note_server_time(server_time)
            return server_time is not None
        except BaseException:
            self._contact_since = math.inf
            # The next step must be a beat, too: the listener may wait for the proof of this one.
            self._must_beat = True
            raise

    def _until_next_step(self, now: float) -> float:
        """Return the seconds until the next beat, or until the next read if that is sooner."""
        seconds = max(self._next_beat - now, 0.0)
        return seconds if self._worker.hears_requests else min(seconds, READ_INTERVAL)

    def _note_beat(self, began: float) -> None:
        if self._contact_since == math.inf or began - self._last_beat > LONGEST_GAP * self._interval:
            self._contact_since = self._clock()
        self._last_beat = self._last_read = began
        self._next_beat = began + jittered(self._interval)

    def _note_server_time(self, server_time: float) -> None:
        self._server_offset = server_time - self._clock()

    def _only_reads(self, now: float) -> bool:
        must_read, self._must_read = self._must_read, False
        must_beat, self._must_beat = self._must_beat, False
        if must_beat:
            return False
        if must_read:
            return now - self._last_beat < self._interval / 2
        is_quiet = now < self._next_beat and now - self._last_read >= READ_INTERVAL / 2
        return is_quiet and not self._worker.hears_requests

    def _read_control(self, proof_channel: str | None = None) -> None:
        """Read what is asked of the worker. An error does not matter for the lease: the next beat reads again."""
        self._last_read = self._clock()
        with contextlib.suppress(psycopg.Error):
            self._worker.control_reader.read(self._database, proof_channel)

    def _proof_channel(self) -> str | None:
        """Return the channel on which the listener expects proof that notifications arrive; None for no proof."""
        settings = self._worker.settings
        return self._worker.proof_channel() if settings.listen and settings.notify else None

    def _retry_delay(self) -> float:
        # The lease would expire during a long back-off.
        return min(super()._retry_delay(), self._interval / RETRIES_PER_INTERVAL)
