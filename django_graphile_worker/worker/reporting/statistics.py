"""Counts the outcomes of jobs for the dashboard, and writes the counts to the database.

They are counted per minute and task, and per minute and named queue. Every job is counted, so that code is written for
speed.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.statistics import (
    DURATIONS,
    FAILED,
    INTERRUPTED,
    OTHERS,
    PERMANENTLY_FAILED,
    PLACES,
    QUEUE,
    RUN_MICROSECONDS,
    SUCCEEDED,
    TASK,
    WAITS,
    Row,
    summed,
)
from django_graphile_worker.worker.outcomes import (
    CompletedAtomically,
    Expired,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    Succeeded,
)
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Squaring before the logarithm makes buckets of half an octave, and bit_length is the cheapest logarithm that
# Python has. Bucket n ends at 2 ** (n / 2) times half a millisecond.
SCALE = float(2**22)
# Longer times are in the last bucket anyway; the limit also keeps infinities out of int().
LONGEST = 4096.0
# Every job is counted. Of a batch with more jobs of one task than this, only SAMPLE jobs are measured, and stand for
# all: there are hundreds of such batches a second.
MEASURED_WHOLE = 8
SAMPLE = 3
UNKNOWN_TASK = "?"
# The counts of so many queues are kept in memory between two writes, and so many are written. Others are added up.
MAX_QUEUES = 1000
MAX_WRITTEN_QUEUES = 50
# Seconds for which a worker that stops tries to write its last counts.
LAST_RECORD_TIMEOUT = 5.0

_claim = attrgetter("claim")
# By position, as access by name costs twice as much.
_task_id, _queue_id, _queue_name = map(itemgetter, map(Claim._fields.index, ("task_id", "queue_id", "queue_name")))
_PLAIN = frozenset({Succeeded, Recorded, CompletedAtomically})

# The counts of each name in each minute: kind, name, start of the minute in seconds.
Cells = defaultdict[tuple[str, str, int], list[int]]


class StatisticsBuffer:
    """The counts that are not in the database yet. The releaser's thread adds, the recorder's thread drains."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._cells = _no_cells()
        self._queue_cells = _no_cells()

    def add(self, outcomes: Sequence[Outcome], identifier_of: Callable[[int], str | None]) -> None:
        """Count a batch of released jobs."""
        now = self._clock()
        minute = int(now // 60) * 60
        are_plain = _PLAIN.issuperset(map(type, outcomes))
        claims = list(map(_claim, outcomes))
        with self._lock:
            for task_id, batch in _by_task(outcomes, claims).items():
                cell = self._cells[TASK, identifier_of(task_id) or UNKNOWN_TASK, minute]
                _count(cell, batch, now, are_plain=are_plain)
            if any(map(_queue_id, claims)):
                for name, batch in _by_queue(outcomes, claims).items():
                    _count(self._queue_cell(name, minute), batch, now, are_plain=are_plain)

    def drain(self) -> list[Row]:
        """Remove and return the counts of tasks and queues so far."""
        with self._lock:
            cells, self._cells = self._cells, _no_cells()
            queue_cells, self._queue_cells = self._queue_cells, _no_cells()
        return [*_rows(cells), *_busiest(_rows(queue_cells))]

    def restore(self, rows: Iterable[Row]) -> None:
        """Add the counts back that could not be written."""
        with self._lock:
            for row in rows:
                is_of_task = row.kind == TASK
                cell = self._cells[row[:3]] if is_of_task else self._queue_cell(row.name, row.started_at)
                cell[:] = summed([cell, row.counts])

    def _queue_cell(self, name: str, minute: int) -> list[int]:
        is_full = len(self._queue_cells) >= MAX_QUEUES and (QUEUE, name, minute) not in self._queue_cells
        return self._queue_cells[QUEUE, OTHERS if is_full else name, minute]


class StatisticsRecorder(Service):
    """The service that appends this worker's counts, and merges the counts of all workers when that is due.

    It has a thread and a connection of its own: a lock on the tables of the statistics delays neither a heartbeat nor a
    result, only the figures.
    """

    name = "statistics"

    def __init__(self, worker: DatabaseWorker) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._database = worker.database("statistics")
        self._interval = worker.settings.heartbeat_interval
        self._buffer = StatisticsBuffer()
        self._is_closed = False

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Count a batch of released jobs."""
        self._buffer.add(outcomes, self._worker.directory.identifier_of)

    def step(self) -> float:
        rows = self._buffer.drain()
        if rows:
            # It is enough if one worker merges the counts of all workers within half an interval.
            self._record(rows, at_least_after=self._interval / 2)
        else:
            # An idle worker does not need this connection.
            self._database.close()
        return jittered(self._interval)

    def close(self) -> None:
        """Write what was counted since the last step. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            rows = self._buffer.drain()
            if rows:
                self._database.deadline = min(self._database.deadline, LAST_RECORD_TIMEOUT)
                self._record(rows, at_least_after=0.0)
        except Exception as error:
            self._worker.reports.database_trouble(self.name, error, 0.0)
        finally:
            self._database.close()

    def _record(self, rows: Sequence[Row], *, at_least_after: float) -> None:
        schema = self._database.schema
        try:
            with self._database.cursor() as cursor:
                statistics.append(cursor, rows, worker_id=self._worker.worker_id, schema=schema)
        except BaseException:
            self._buffer.restore(rows)
            raise
        with self._database.cursor() as cursor:
            while statistics.fold(cursor, schema=schema, at_least_after=at_least_after):
                continue


def _no_cells() -> Cells:
    return defaultdict(lambda: [0] * PLACES)


def _count(cell: list[int], batch: Sequence[Outcome], now: float, *, are_plain: bool) -> None:
    """Count a batch of outcomes; ``are_plain`` if all of them are successes."""
    ended = batch if are_plain else _count_others(cell, batch)
    cell[SUCCEEDED] += len(batch) if are_plain else sum(type(each) in _PLAIN for each in batch)
    step = -(-len(ended) // SAMPLE) if len(ended) > MEASURED_WHOLE else 1
    _measure(cell, ended[::step], step, now)


def _count_others(cell: list[int], batch: Sequence[Outcome]) -> list[Outcome]:
    """Count the outcomes that are not a success; return the outcomes of runs that were not interrupted."""
    for outcome in batch:
        if isinstance(outcome, Interrupted):
            cell[INTERRUPTED] += 1
        elif isinstance(outcome, Failed):
            is_last = outcome.permanent or outcome.claim.attempts >= outcome.claim.max_attempts
            cell[PERMANENTLY_FAILED if is_last else FAILED] += 1
    # The statement that ends an expired job counts it.
    return [outcome for outcome in batch if not isinstance(outcome, Interrupted | Expired)]


def _measure(cell: list[int], outcomes: Iterable[Outcome], weight: int, now: float) -> None:
    """Add how long these jobs ran, and how long they had been due before they began."""
    for outcome in outcomes:
        duration = outcome.duration
        wait = now - duration - outcome.claim.run_at_epoch
        # With this order of the comparison, NaN becomes the longest time, too.
        duration = duration if duration < LONGEST else LONGEST
        wait = max(wait, 0.0) if wait < LONGEST else LONGEST
        cell[DURATIONS + int(duration * duration * SCALE).bit_length()] += weight
        cell[WAITS + int(wait * wait * SCALE).bit_length()] += weight
        cell[RUN_MICROSECONDS] += int(duration * 1e6) * weight


def _by_task(outcomes: Sequence[Outcome], claims: Sequence[Claim]) -> Mapping[int, Sequence[Outcome]]:
    task_ids = set(map(_task_id, claims))
    if len(task_ids) == 1:
        # A large batch is mostly of one task.
        return {task_ids.pop(): outcomes}
    by_task: defaultdict[int, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_task[outcome.claim.task_id].append(outcome)
    return by_task


def _by_queue(outcomes: Sequence[Outcome], claims: Sequence[Claim]) -> Mapping[str, Sequence[Outcome]]:
    """Return the outcomes of jobs that have a queue, by its name."""
    by_queue: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome, name in zip(outcomes, map(_queue_name, claims), strict=True):
        if name is not None:
            by_queue[name].append(outcome)
    return by_queue


def _busiest(rows: list[Row]) -> list[Row]:
    """Return the rows of the queues with the most jobs, and in one row for each minute the sum of all others."""
    rows.sort(key=attrgetter("runs"), reverse=True)
    others = _no_cells()
    for row in rows[MAX_WRITTEN_QUEUES:]:
        cell = others[QUEUE, OTHERS, row.started_at]
        cell[:] = summed([cell, row.counts])
    return rows[:MAX_WRITTEN_QUEUES] + _rows(others)


def _rows(cells: Cells) -> list[Row]:
    return [Row(*key, counts) for key, counts in cells.items()]
