"""The listener: hears of new jobs the moment they are committed.

It listens on the connection that claims: the thread that hears of a job is the one
that goes and gets it, on a link that is awake already.

``LISTEN`` succeeds on connections that will never hear anything: through a
transaction pooler, or on a link that died quietly. So the listener believes only
what it hears: the heartbeat, on its own connection, notifies a channel that only
this worker listens to. Silence there means that notifications do not arrive; then
it says so, connects anew, and the worker lives by polling meanwhile. What a claim
brings along is no proof at first: through a pooler that happens too, by luck. And a
silence during which this process did not run, nor its heartbeat, proves nothing.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.sql.control import CONTROL_CHANNEL
from django_graphile_worker.worker.service import jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

JOBS_CHANNEL = "jobs:insert"
# The channel on which graphile-worker notifies other workers that it has changed the schema.
MIGRATIONS_CHANNEL = "worker:migrate"
# A listener that has received no notification for this many heartbeat intervals connects again: notifications do not
# arrive on its connection.
BEATS_OF_SILENCE = 2.5
# Seconds. The first proof is requested at once, so it arrives soon or not at all.
FIRST_PROOF_WITHIN = 5.0
# If a wait is longer than requested, by more than this fraction of the allowed silence, the process did not run.
OVERSLEEP = 0.2
LONGEST_SILENCE_BETWEEN_TRIES = 60.0
LONGEST_WAIT_FOR_SERVER = 5.0
# Seconds between two answers to notifications that any role can send without end.
CONTROL_INTERVAL = 0.1
MIGRATIONS_INTERVAL = 1.0


class SilentListenerError(GraphileWorkerError):
    """LISTEN was accepted, but notifications do not arrive."""


class Wakeup:
    """A wake-up that one thread sends and another awaits, which may watch a connection at the same time."""

    def __init__(self) -> None:
        self._watched: int | None = None
        self._is_waiting = False

    # Made when first needed: a worker that never waits leaves nothing open.

    @cached_property
    def _selector(self) -> selectors.BaseSelector:
        selector = selectors.DefaultSelector()
        selector.register(self._ends[0], selectors.EVENT_READ)
        return selector

    @cached_property
    def _ends(self) -> tuple[socket.socket, socket.socket]:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        return ends

    def watch(self, connection: Any) -> None:
        """End a wait also when this connection's socket has input; None for no connection."""
        if self._watched is not None:
            # Closing the connection has removed its socket from the operating system's half of the selector already.
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(self._watched)
        self._watched = None if connection is None else connection.pgconn.socket
        if self._watched is not None:
            self._selector.register(self._watched, selectors.EVENT_READ)

    def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool:
        """Wait for ``wake()`` or the socket, unless the condition holds.

        Return True if ``wake()`` ended the wait or the condition holds.
        """
        selector = self._selector
        # Set the flag before checking the condition; the caller of wake() makes the condition true before wake() checks
        # the flag. Whichever runs second sees the other, so no wake-up is lost.
        self._is_waiting = True
        try:
            if unless():
                return True
            events = selector.select(None if math.isinf(seconds) else seconds)
            return any(key.fileobj is self._ends[0] for key, _ in events) and self._drain()
        finally:
            self._is_waiting = False

    def wake(self) -> None:
        """End the wait that is under way."""
        if self._is_waiting:
            # A full socket already holds enough wake-ups, and a closed socket has no wait to end.
            with contextlib.suppress(OSError):
                self._ends[1].send(b"!")

    def close(self) -> None:
        if "_selector" in vars(self):
            self._selector.close()
            for end in self._ends:
                end.close()

    def _drain(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while self._ends[0].recv(4096):
                pass
        return True


class PacedAnswer:
    """What notifications ask for: done at once, but only once in an interval. The last request counts, too."""

    def __init__(self, call: Callable[[], None], interval: float) -> None:
        self._call = call
        self._interval = interval
        self._is_requested = False
        self._not_before = -math.inf

    def request(self, now: float) -> None:
        self._is_requested = True
        self.give_if_due(now)

    def give_if_due(self, now: float) -> None:
        if self.seconds_left(now) <= 0:
            self._is_requested = False
            self._not_before = now + self._interval
            self._call()

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the call is due; infinity if nothing asks for it."""
        return self._not_before - now if self._is_requested else math.inf


class Listener:
    """Where the fetcher waits: for a notification of jobs, for a wake-up from its own process, or for the next poll."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._database = worker.claim_database
        self._sender = worker.sender
        self._answers = {
            MIGRATIONS_CHANNEL: PacedAnswer(worker.schema_changed, MIGRATIONS_INTERVAL),
            CONTROL_CHANNEL: PacedAnswer(worker.heartbeat.read_control_soon, CONTROL_INTERVAL),
        }
        settings = worker.settings
        # Seconds within which a notification must arrive; None where no proof can be requested.
        self._proof_within = BEATS_OF_SILENCE * settings.heartbeat_interval if settings.notify else None
        self._clock = time.monotonic
        self._connection: Any = None
        self._own_channel = ""
        self._has_listened = False
        # Seconds of waiting since the last proof.
        self._silence = 0.0
        self._must_ask = False
        self._is_reading = False
        self._has_jobs = False
        self._losses = 0
        # Whether the last connection was given up because no proof arrived on it.
        self._was_silent = False
        self._try_again_at = -math.inf
        self._wakeup = Wakeup()
        self.is_healthy = False

    def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool:
        """Wait for jobs, for ``interrupt()`` or for the end of the time; return True if jobs were announced."""
        deadline = self._clock() + seconds
        try:
            self._listen()
            self._give_answers()
            while not self._has_jobs and (remaining := deadline - self._clock()) > 0:
                if self._rest(min(remaining, self._until_next_action()), unless):
                    break
                self._read_notifications()
        except Exception as error:
            self._lose(error)
        has_jobs, self._has_jobs = self._has_jobs, False
        return has_jobs

    @property
    def is_heard(self) -> bool | None:
        """Whether notifications arrive; None while a connection waits for its first proof, unless the last got none."""
        if self.is_healthy:
            return True
        is_lost = self._losses > 0 and self._connection is None
        return False if is_lost or self._was_silent else None

    def interrupt(self) -> None:
        """End the wait that may be under way on another thread."""
        self._wakeup.wake()

    def close(self) -> None:
        self._forget_connection()
        self._wakeup.close()

    def _listen(self) -> None:
        """Listen on the connection, unless it listens already, or a try failed a moment ago."""
        if self._is_listening or self._clock() < self._try_again_at:
            return
        self._worker.reports.listening_starting()
        if self._connection is not None and self._connection is self._database.current:
            # The worker has a new id. A new session does not listen on the channel of the old id.
            self._database.close()
        self._forget_connection()
        self._own_channel = self._worker.proof_channel()
        with self._database.cursor() as cursor:
            for channel in (JOBS_CHANNEL, CONTROL_CHANNEL, MIGRATIONS_CHANNEL, self._own_channel):
                cursor.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            connection = cursor.connection
        if connection is not self._database.current:
            raise psycopg.OperationalError("The connection was closed at its deadline, after it began to listen.")
        self._connection = connection
        self._connection.add_notify_handler(lambda notice: self._receive(notice.channel, notice.payload))
        self._wakeup.watch(self._connection)
        self._silence = 0.0
        self._must_ask = self._proof_within is not None
        if self._proof_within is None:
            self._prove()
        # Jobs may have been added before the connection listened.
        self._has_jobs = True
        if self._has_listened:
            # A migration may have been announced meanwhile.
            self._worker.schema_changed()
        self._has_listened = True

    @property
    def _is_listening(self) -> bool:
        return (
            self._connection is not None
            and self._connection is self._database.current
            and self._own_channel == self._worker.proof_channel()
        )

    def _rest(self, seconds: float, unless: Callable[[], bool]) -> bool:
        """Wait for input on the connection; return True if ``interrupt()`` ended the wait instead."""
        if self._must_ask:
            self._must_ask = False
            self._worker.heartbeat.wake()
        began = self._clock()
        try:
            return self._wakeup.wait(seconds, unless=unless)
        finally:
            self._count_silence(self._clock() - began, seconds)

    def _count_silence(self, rested: float, meant: float) -> None:
        if rested - meant > OVERSLEEP * self._longest_silence:
            # The machine was suspended or the process was stopped, so its heartbeat sent no proof either.
            self._silence = 0.0
            self._must_ask = True
        else:
            self._silence += rested

    def _read_notifications(self) -> None:
        """Read the notifications that have arrived. The claim itself reads notifications that arrive during it."""
        self._give_answers()
        if self._connection is None:
            self._listen()
            return
        self._is_reading = True
        link = self._connection.pgconn
        link.consume_input()
        while notice := link.notifies():
            self._receive(notice.relname.decode(), notice.extra.decode())
        self._is_reading = False
        if not self._has_jobs:
            self._insist_on_proof()

    def _receive(self, channel: str, payload: str) -> None:
        if channel == self._own_channel:
            if self._is_reading or self.is_healthy:
                self._silence = 0.0
                self._prove()
            else:
                self._must_ask = True
        elif channel in self._answers:
            # Any session may notify, so the worker queries what has changed.
            if channel == MIGRATIONS_CHANNEL or payload == self._database.schema:
                self._answers[channel].request(self._clock())
        elif not payload.startswith(self._sender) and announces_jobs(payload):
            self._has_jobs = True

    def _give_answers(self) -> None:
        for answer in self._answers.values():
            answer.give_if_due(self._clock())

    def _prove(self) -> None:
        if not self.is_healthy:
            self.is_healthy = True
            self._losses = 0
            self._was_silent = False
            self._worker.reports.listening_started()

    def _until_next_action(self) -> float:
        """Return the seconds until the listener must act, if no notification arrives."""
        now = self._clock()
        due = self._try_again_at - now if self._connection is None else self._longest_silence - self._silence
        return max(min(due, *(answer.seconds_left(now) for answer in self._answers.values())), 0.0)

    @property
    def _longest_silence(self) -> float:
        if self._proof_within is None:
            return math.inf
        return self._proof_within if self.is_healthy else min(self._proof_within, FIRST_PROOF_WITHIN)

    def _insist_on_proof(self) -> None:
        if self._silence >= self._longest_silence:
            raise SilentListenerError(
                f"Expected a notification within {self._longest_silence:g} s, heard none. A pooler in "
                "transaction mode does not pass notifications on: point the worker at the server "
                "itself or at a session pool, or run it with --no-listen. Polling meanwhile."
            )

    def _lose(self, error: Exception) -> None:
        self.is_healthy = False
        self._forget_connection()
        self._database.close()
        # A server that did not answer may soon answer again; a pooler does not change its mode.
        self._was_silent = isinstance(error, SilentListenerError)
        longest = LONGEST_SILENCE_BETWEEN_TRIES if self._was_silent else LONGEST_WAIT_FOR_SERVER
        delay = jittered(min(longest, 0.1 * 4.0 ** min(self._losses, 10)))
        self._losses += 1
        self._try_again_at = self._clock() + delay
        self._worker.reports.listening_lost(error, delay)

    def _forget_connection(self) -> None:
        self._wakeup.watch(None)
        self._connection = None


def announces_jobs(payload: str) -> bool:
    """Return True if a notification announces jobs to run: its count is negative if a job was removed."""
    count = payload.rpartition('"count":')[2].strip("} ")
    return count != "0" and not count.startswith("-")
