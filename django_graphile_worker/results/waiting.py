"""``wait_for_result()``: waits until a job has ended.

One thread with one connection waits for all callers of this process and a database. It lists the process as a waiter
of a job, which commits at once, and only then reads the job: an end after that is notified, an end before that is read.
The statement that ends a job may have begun before the waiter was listed, and commit after the job was read; so the
thread reads each job again a few moments later, and then every few seconds, which also finds ends that no worker
notifies of.

A transaction pooler does not pass notifications on. It is recognised by its process id, which is not that of the
server; then the thread polls.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import psycopg
from asgiref.sync import sync_to_async
from psycopg import errors, sql

from django_graphile_worker.exceptions import ResultTimeoutError, UncommittedJobError, UnknownResultError, to_delay
from django_graphile_worker.results.reading import JobOrId, Result, job_and_place, read_row, result_from
from django_graphile_worker.routing import Place
from django_graphile_worker.sql import results as statements
from django_graphile_worker.sql.errors import translated
from django_graphile_worker.sql.results import ResultRow
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.listener import Wakeup

logger = logging.getLogger("django_graphile_worker.results")

# Seconds from the beginning of a wait to the first times at which its job is read, and between the times after them.
FIRST_READS = (0.05, 0.3, 1.5)
READ_INTERVAL = 5.0
# Without notifications: seconds between reads, which grow with the time that the wait has taken.
SHORTEST_POLL, LONGEST_POLL, POLL_SHARE = 0.02, 1.0, 0.2
# Seconds for which a waiter is listed. A wait that takes longer lists it again after half of them.
LISTED_FOR = 60.0
# Seconds after which the thread of a process that waits for nothing ends, and closes its connection. PostgreSQL waits
# for five seconds until nobody uses a database that is to be dropped, as test runners do at their end.
IDLE_TIME = 1.0
# Jobs that are due within this many seconds are read together.
TOGETHER = 0.005
# Seconds between attempts to reach a database that does not answer.
FIRST_RETRY, LAST_RETRY = 0.1, 5.0
# The connection broke, or the server is not there; the waits continue when it is back.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError)

Timeout = timedelta | float | None


def wait_for_result(
    job_or_id: JobOrId,
    *,
    timeout: Timeout = None,
    using: str | None = None,
    installation: str | None = None,
) -> Result:
    """Wait until a job has ended, in whichever way; return what became of it.

    ``timeout`` is a number of seconds or a timedelta; None waits for as long as it takes. The task must keep its
    results: ``@task(keep_result=...)``.
    """
    seconds, (job_id, place) = _seconds(timeout), job_and_place(job_or_id, using, installation)
    if ended := _ended(place, job_id):
        return ended
    wait = listener_of(place).add(_wait(place, job_id))
    try:
        return _result(wait.result(seconds), job_id)
    except TimeoutError:
        raise _timed_out(job_id, seconds) from None
    finally:
        listener_of(place).forget(wait)


async def await_for_result(
    job_or_id: JobOrId,
    *,
    timeout: Timeout = None,  # noqa: ASYNC109 - the same arguments as wait_for_result()
    using: str | None = None,
    installation: str | None = None,
) -> Result:
    """Asynchronous variant of ``wait_for_result()``."""
    seconds, (job_id, place) = _seconds(timeout), job_and_place(job_or_id, using, installation)
    if ended := await sync_to_async(_ended, thread_sensitive=True)(place, job_id):
        return ended
    wait = listener_of(place).add(_wait(place, job_id))
    try:
        return _result(await asyncio.wait_for(asyncio.wrap_future(wait), seconds), job_id)
    except TimeoutError:
        raise _timed_out(job_id, seconds) from None
    finally:
        listener_of(place).forget(wait)


def _ended(place: Place, job_id: int) -> Result | None:
    """Return what became of a job that has ended, as the transaction of the caller sees it; None if it has not ended.

    Raise UncommittedJobError for a job that this transaction has added or changed: others cannot see that before its
    end, so no worker runs the job meanwhile.
    """
    row = read_row(place, job_id)
    if row is None:
        return None
    if row.has_ended:
        return result_from(row)
    if row.is_uncommitted:
        raise UncommittedJobError(
            f"wait_for_result: job {job_id} was added or changed in the transaction that is still open. No worker can "
            "run it before the end of the transaction, so it would never end. Wait after the atomic() block, or in "
            "transaction.on_commit(). In a TestCase, whose tests are transactions, run the job first with run_jobs() "
            "of django_graphile_worker.testing."
        )
    return None


def _seconds(timeout: object) -> float | None:
    if timeout is None:
        return None
    return to_delay(timeout, name="timeout", expected="a number of seconds, a timedelta or None").total_seconds()


def _wait(place: Place, job_id: int) -> Wait:
    settings = place.settings
    return Wait(job_id, settings.schema, is_notified=settings.listen and settings.notify)


def _result(row: ResultRow | None, job_id: int) -> Result:
    if row is None:
        raise UnknownResultError(
            f"wait_for_result: there is neither a job {job_id} nor a result of it. Either there never was such a "
            "job, or its transaction is not committed yet, or it has ended and nothing of it is kept: declare its "
            'task with @task(keep_result=timedelta(hours=1)), or set GRAPHILE_WORKER["KEEP_RESULTS"].'
        )
    return result_from(row)


def _timed_out(job_id: int, seconds: float | None) -> ResultTimeoutError:
    return ResultTimeoutError(
        f"wait_for_result: job {job_id} did not end within {seconds:g} seconds. The job is unchanged: "
        "wait again, or read result() later."
    )


class Wait(Future[ResultRow | None]):
    """A future of the row of a job that has ended; of None if nothing of the job is kept."""

    def __init__(self, job_id: int, schema: str, *, is_notified: bool = True) -> None:
        super().__init__()
        self.job_id = job_id
        self.schema = schema
        # Whether workers notify of the ends of the jobs in this schema.
        self.is_notified = is_notified
        self.began_at = math.inf
        self.next_read_at = -math.inf
        self.listed_until = -math.inf

    def begin(self, now: float) -> None:
        self.began_at = now

    def read_at_once(self) -> None:
        """Be listed and read again in the next step: the connection is a new one."""
        self.listed_until = self.next_read_at = -math.inf

    def read_later(self, now: float, *, is_listening: bool) -> None:
        """Choose when the job is read next: soon in a new wait, which may have begun while the job was ending."""
        age = now - self.began_at
        if is_listening and self.is_notified:
            self.next_read_at = self.began_at + next((each for each in FIRST_READS if each > age), age + READ_INTERVAL)
        else:
            self.next_read_at = now + min(max(POLL_SHARE * age, SHORTEST_POLL), LONGEST_POLL)

    def take(self, row: ResultRow | None) -> bool:
        """Take the row that was read; return True if the wait is over."""
        if not (row is None or row.has_ended):
            return False
        if self.set_running_or_notify_cancel():
            self.set_result(row)
        return True

    def end_with(self, error: BaseException) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


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
                self._thread = threading.Thread(target=self._main, name="graphile-worker-results", daemon=True)
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

    def _main(self) -> None:
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
        """List new waits, read the jobs that are announced or due; return the seconds until the next."""
        with self._lock:
            self._has_news = False
            waits = list(self._waits)
        if not waits:
            return IDLE_TIME
        self._connect(waits)
        now = self._clock()
        if self.is_listening:
            self._list([each for each in waits if each.listed_until < now + LISTED_FOR / 2], now)
        due = [each for each in waits if each.next_read_at <= now + TOGETHER or self._is_announced(each)]
        self._announced.clear()
        self._read(due)
        return max(min((each.next_read_at for each in waits if not each.done()), default=now) - self._clock(), 0.0)

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

    def _read(self, due: list[Wait]) -> None:
        for schema, ids, waits in _by_schema(due):
            with self._database.cursor() as cursor:
                rows = statements.read_results(cursor, ids, schema=schema)
            now = self._clock()
            for wait in waits:
                if wait.take(rows.get(wait.job_id)):
                    self.forget(wait)
                else:
                    wait.read_later(now, is_listening=self.is_listening)

    def _end_all(self, error: BaseException) -> None:
        with self._lock:
            waits, self._waits = self._waits, set()
        for wait in waits:
            wait.end_with(error)

    def _rest(self, seconds: float) -> None:
        """Wait for a notification, for a new wait, or until the next job is to be read."""
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
            each.read_at_once()

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


_listeners: dict[str, ResultListener] = {}
_making = threading.Lock()
# The listeners of the process that forked this one. They are kept, because what they hold belongs to that process.
_of_parents: list[ResultListener] = []


def listener_of(place: Place) -> ResultListener:
    """Return the listener of this process for the database of a place."""
    with _making:
        listener = _listeners.get(place.using)
        if listener is None:
            listener = _listeners[place.using] = ResultListener(Database(place.using, place.settings, part="results"))
        return listener


def close_listeners() -> None:
    """End all waits of this process, and close their connections; needed before a test database is dropped."""
    with _making:
        listeners = list(_listeners.values())
        _listeners.clear()
    for listener in listeners:
        listener.close()


def _start_anew() -> None:
    """Forget the listeners in a forked process, which has neither their threads nor connections of its own."""
    global _making
    _making = threading.Lock()
    _of_parents.extend(_listeners.values())
    _listeners.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
