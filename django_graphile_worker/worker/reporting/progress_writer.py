"""Writes the progress that tasks report: for each job at most once a second, and always the last report of a run.

A task that reports only leaves a value here, which costs it no statement. The service has a thread and a connection of
its own, so that the progress of a task can be seen while its transaction is open, and an async task does not wait.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from django_graphile_worker.sql import progress as sql_progress
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.worker.service import Service

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds between two writes for one job.
INTERVAL = 1.0
# Seconds that a run that has ended waits for its last report to be written: the end of the job is worth more.
FINISH_TIMEOUT = 2.0
# Seconds after which an unused connection is closed.
IDLE_TIME = 30.0


class _JobProgress:
    """The progress of one run."""

    __slots__ = ("claim", "has_ended", "is_written", "progress", "written_at")

    def __init__(self, claim: Claim, progress: Progress) -> None:
        self.claim = claim
        self.progress = progress
        self.written_at = -math.inf
        # Set when the last report is written; the thread that ends the run waits for it.
        self.is_written = threading.Event()
        self.has_ended = False


class ProgressWriter(Service):
    """The service that writes progress. Its thread starts with the first report."""

    name = "progress"

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._database = worker.database("progress")
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, _JobProgress] = {}
        # Jobs that have ended, whose progress is of no use unless their result is kept.
        self._ended_ids: list[int] = []
        # Jobs of which a report was written and whose claim is not settled.
        self._written_ids: set[int] = set()
        self._used_at = clock()

    # Called on the threads that run jobs.

    def report(self, claim: Claim, progress: Progress) -> None:
        """Take the progress of a run; the last value that was taken is written."""
        with self._lock:
            self.start()
            entry = self._running.get(_key(claim))
            if entry is None:
                entry = self._running[_key(claim)] = _JobProgress(claim, progress)
                is_awaited = False
            else:
                # If an earlier report waits to be written, the thread knows when that is due.
                is_awaited = not entry.is_written.is_set()
                entry.progress = progress
                entry.is_written.clear()
        if not is_awaited:
            self.wake()

    def finish(self, claim: Claim) -> None:
        """Wait until the last report of a run is written, but not for long. Called before the claim is released."""
        with self._lock:
            entry = self._running.get(_key(claim))
            if entry is None:
                return
            entry.has_ended = True
        if not entry.is_written.is_set() and not self.is_stopping:
            self.hurry()
            entry.is_written.wait(FINISH_TIMEOUT)
        with self._lock:
            self._running.pop(_key(claim), None)

    def settled(self, job_ids: Iterable[int]) -> None:
        """Take the ids of jobs whose claims have ended."""
        if not self._written_ids:
            return
        with self._lock:
            ended = [job_id for job_id in job_ids if job_id in self._written_ids]
            self._written_ids.difference_update(ended)
            self._ended_ids += ended
        if ended:
            self.wake()

    # Called on the service's own thread.

    def step(self) -> float:
        due, until_next = self._due()
        if due:
            self._write(due)
            # Reports that came during the write have woken nobody.
            _, until_next = self._due()
        ended = self._take_ended()
        if ended:
            with self._database.cursor() as cursor:
                sql_progress.forget(cursor, ended, schema=self._database.schema)
        if due or ended:
            self._used_at = self._clock()
        elif math.isinf(until_next) and self._clock() - self._used_at >= IDLE_TIME:
            self._database.close()
            return math.inf
        return min(until_next, IDLE_TIME)

    def close(self) -> None:
        self._database.close()

    def _due(self) -> tuple[list[_JobProgress], float]:
        """Return the runs to write now, and the seconds until the next one is due: zero if there are some."""
        now, until_next = self._clock(), math.inf
        due: list[_JobProgress] = []
        with self._lock:
            for entry in self._running.values():
                if entry.is_written.is_set():
                    continue
                wait = 0.0 if entry.has_ended else entry.written_at + INTERVAL - now
                if wait <= 0:
                    due.append(entry)
                until_next = min(until_next, max(wait, 0.0))
        return due, until_next

    def _write(self, due: list[_JobProgress]) -> None:
        values = [(entry, entry.progress) for entry in due]
        reports = [
            sql_progress.Report(entry.claim.id, entry.claim.token, each.done, each.total, each.message)
            for entry, each in values
        ]
        with self._database.cursor() as cursor:
            sql_progress.write(cursor, reports, schema=self._database.schema, now=self._worker.now())
        now = self._clock()
        with self._lock:
            for entry, written in values:
                entry.written_at = now
                self._written_ids.add(entry.claim.id)
                # Another report may have come in the meantime.
                if entry.progress is written:
                    entry.is_written.set()

    def _take_ended(self) -> list[int]:
        with self._lock:
            ended, self._ended_ids = self._ended_ids, []
        return ended


def _key(claim: Claim) -> str:
    return f"{claim.id} {claim.token}"
