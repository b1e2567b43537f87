"""Waits for the end of jobs: on one thread and one connection, for all callers of this process and a database.

The thread lists the process as a waiter of a job, which commits at once, and only then reads the job: an end after that
is notified, an end before that is read. The statement that ends a job may have begun before the waiter was listed, and
commit after the job was read; so the thread reads each job again a few moments later, and then every few seconds, which
also finds ends that no worker notifies of.

A transaction pooler does not pass notifications on. It is recognised by its process id, which is not that of the
server; then the thread polls.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
from psycopg import errors, sql

from django_graphile_worker.results.waits import Wait
from django_graphile_worker.sql import results as statements
from django_graphile_worker.sql.errors import translated
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.wakeup import Wakeup

logger = logging.getLogger("django_graphile_worker.results")

# Seconds for which a waiter is listed. A wait that takes longer lists it again after half of them.
LISTED_FOR = 60.0
# Seconds after which the thread of a process that waits for nothing ends, and closes its connection. PostgreSQL waits
# for five seconds until nobody uses a database that is to be dropped, as test runners do at their end.
IDLE_TIME = 1.0
# Waits that are due within this many seconds are looked at together.
TOGETHER = 0.005
# Seconds between attempts to reach a database that does not answer.
FIRST_RETRY, LAST_RETRY = 0.1, 5.0
# The connection broke, or the server is not there; the waits continue when it is back.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError)


class ResultListener:
    """The waits of this process for jobs in one database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        # The name of this process in the table of waiters.
        self.waiter = uuid.uuid4().hex
        self._waits: set[Wait] = set()
        # Set when a wait was added or the listener is closed, and until the thread has seen it.
        self._has_news = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wakeup = Wakeup()
        self._connection: Any = None
        # The schema and the id of jobs whose end was notified and that are not read yet.
        self._announced: set[tuple[str, int]] = set()
        self._idle_since = clock()
        self._failures = 0
        self._may_list = True
        self.is_listening = False

    # Called by the threads that wait.

    def add(self, wait: Wait) -> Wait:
        """Begin a wait."""
        wait.begin(self._clock())
        with self._lock:
            self._waits.add(wait)
            self._has_news = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="graphile-worker-results", daemon=True)
                self._thread.start()
        self._wakeup.wake()
        return wait

    def forget(self, wait: Wait) -> None:
        """End a wait whose caller waits no longer."""
        with self._lock:
            self._waits.discard(wait)

    def close(self, seconds: float = 5.0) -> None:
        """Cancel all waits, end the thread, and close the connection."""
        with self._lock:
            waits, self._waits = self._waits, set()
            thread, self._thread = self._thread, None
            self._has_news = True
        self._wakeup.wake()
        for wait in waits:
            wait.cancel()
        if thread is not None:
            thread.join(seconds)
        self._wakeup.close()

    # Called on the thread.

    def _run(self) -> None:
        while not self._is_over():
            self._rest(self._attempt())

    def _is_over(self) -> bool:
        """Return True, with the connection closed, if the listener is closed or has had no wait for a while."""
        with self._lock:
            is_closed = self._thread is not threading.current_thread()
            if self._waits or self._has_news:
                self._idle_since = self._clock()
        if not is_closed and self._clock() - self._idle_since < IDLE_TIME:
            return False
        self._disconnect()
        with self._lock:
            # A wait that was added in the meantime has found this thread, and relies on it.
            if self._waits and self._thread is threading.current_thread():
                return False
            if not is_closed:
                self._thread = None
        return True

    def _attempt(self) -> float:
        """Do one step; return the seconds until the next. Only an error that will not pass ends the waits."""
        try:
            delay = self.step()
        except CONNECTION_TROUBLE as error:
            self._disconnect()
            delay = min(FIRST_RETRY * 2.0**self._failures, LAST_RETRY)
            self._failures = min(self._failures + 1, 10)
            logger.warning("Results cannot be read, the next try is in %.1f s: %s", delay, error)
            return delay
        except BaseException as error:
            self._disconnect()
            schema = self._database.schema
            self._end_all(translated(error, alias=self._database.alias, schema=schema) or error)
            return 0.0
        self._failures = 0
        return delay

    def step(self) -> float:
        """List new waits, read the jobs that are announced or due for a look; return the seconds until the next."""
        with self._lock:
            self._has_news = False
            waits = list(self._waits)
        if not waits:
            return IDLE_TIME
        self._connect(waits)
        now = self._clock()
        if self.is_listening:
            self._list([each for each in waits if each.listed_until < now + LISTED_FOR / 2], now)
        due = [each for each in waits if each.next_look_at <= now + TOGETHER or self._is_announced(each)]
        self._announced.clear()
        self._look(due)
        return max(min((each.next_look_at for each in waits if not each.done()), default=now) - self._clock(), 0.0)

    def _is_announced(self, wait: Wait) -> bool:
        return (wait.schema, wait.job_id) in self._announced

    def _list(self, unlisted: list[Wait], now: float) -> None:
        listed = [each for each in unlisted if each.is_notified]
        try:
            for schema, ids, _ in _by_schema(listed):
                with self._database.cursor() as cursor:
                    statements.register_waiter(cursor, ids, waiter=self.waiter, seconds=LISTED_FOR, schema=schema)
        except errors.InsufficientPrivilege:
            # A role that may only read polls.
            self._may_list = self.is_listening = False
            return
        for each in listed:
            each.listed_until = now + LISTED_FOR

    def _look(self, due: list[Wait]) -> None:
        for schema, ids, waits in _by_schema(due):
            with self._database.cursor() as cursor:
                rows = statements.read_results(cursor, ids, schema=schema)
            now = self._clock()
            for wait in waits:
                if wait.see(rows.get(wait.job_id)):
                    self.forget(wait)
                else:
                    wait.look_later(now, is_listening=self.is_listening)

    def _end_all(self, error: BaseException) -> None:
        with self._lock:
            waits, self._waits = self._waits, set()
        for wait in waits:
            wait.end_with(error)

    def _rest(self, seconds: float) -> None:
        """Wait for a notification, for a new wait, or for the time of the next look."""
        # A notification may have arrived together with the last answer: the socket has nothing to read then.
        is_intact = self._receive()
        if seconds > 0 and is_intact:
            self._wakeup.wait(seconds, unless=lambda: self._has_news or bool(self._announced))
            self._receive()

    def _receive(self) -> bool:
        """Note the notifications that have arrived; return False if the connection broke."""
        if self._connection is None:
            return True
        link = self._connection.pgconn
        try:
            link.consume_input()
            while notice := link.notifies():
                self._hear(notice.extra.decode())
        except psycopg.Error:
            # The next step connects again.
            self._disconnect()
            return False
        return True

    def _hear(self, payload: str) -> None:
        self._announced |= statements.announced_jobs(payload)

    def _connect(self, waits: Iterable[Wait]) -> None:
        """Connect and listen, unless the connection is open. What ended before it was open is read then."""
        if self._connection is not None and self._connection is self._database.current:
            return
        self._disconnect()
        connection = self._database.connection()
        self.is_listening = self._may_list and self._database.is_direct and any(each.is_notified for each in waits)
        if self.is_listening:
            with self._database.cursor() as cursor:
                cursor.execute(sql.SQL("listen {}").format(sql.Identifier(statements.CHANNEL)))
            # Notifications that arrive together with the answer to a statement.
            connection.add_notify_handler(lambda notice: self._hear(notice.payload))
        self._wakeup.watch(connection)
        self._connection = connection
        for each in waits:
            each.look_at_once()

    def _disconnect(self) -> None:
        self._wakeup.watch(None)
        self._connection = None
        self._database.close()


def _by_schema(waits: Iterable[Wait]) -> Iterator[tuple[str, list[int], list[Wait]]]:
    """Yield each worker schema with the ids of its jobs, each once and sorted, and with its waits."""
    groups: defaultdict[str, list[Wait]] = defaultdict(list)
    for wait in waits:
        groups[wait.schema].append(wait)
    for schema, group in groups.items():
        yield schema, sorted({each.job_id for each in group}), group
