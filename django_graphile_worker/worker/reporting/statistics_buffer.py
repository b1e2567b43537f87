"""Counts the outcomes of jobs for the dashboard, per minute and task, and per minute and named queue.

The releaser counts every job, so this code is written for speed.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.outcomes import (
    CompletedAtomically,
    Expired,
    Failed,
    Interrupted,
    Outcome,
    Recorded,
    Succeeded,
)

if TYPE_CHECKING:
    from django_graphile_worker.sql.statistics.statistics import Row

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
MOST_QUEUES = 1000
MOST_WRITTEN_QUEUES = 50
OTHER_QUEUES = ""

_claim = attrgetter("claim")
# By position, as access by name costs twice as much.
_task_id, _queue_id, _queue_name = map(itemgetter, map(Claim._fields.index, ("task_id", "queue_id", "queue_name")))
_PLAIN = frozenset({Succeeded, Recorded, CompletedAtomically})


class Cell:
    """The counts of one task in one minute."""

    def __init__(self) -> None:
        # Late import: nothing is counted before the first job has ended, so the first job does not wait for it.
        from django_graphile_worker.sql.statistics.statistics import BUCKETS

        self.succeeded = self.failed = self.permanently_failed = self.interrupted = 0
        self.duration_seconds = self.wait_seconds = 0.0
        self.durations = [0] * BUCKETS
        self.waits = [0] * BUCKETS

    def measure(self, outcomes: Iterable[Outcome], weight: int, now: float) -> None:
        """Add how long these jobs ran, and how long they had been due before they began."""
        for outcome in outcomes:
            duration = outcome.duration
            wait = now - duration - outcome.claim.run_at_epoch
            # With this order of the comparison, NaN becomes the longest time, too.
            duration = duration if duration < LONGEST else LONGEST
            wait = max(wait, 0.0) if wait < LONGEST else LONGEST
            self.durations[int(duration * duration * SCALE).bit_length()] += weight
            self.waits[int(wait * wait * SCALE).bit_length()] += weight
            self.duration_seconds += duration * weight
            self.wait_seconds += wait * weight

    def count(self, batch: Sequence[Outcome], now: float, *, are_plain: bool) -> None:
        """Count a batch of outcomes; ``are_plain`` if all of them are successes."""
        ended = batch if are_plain else self.note_others(batch)
        self.succeeded += len(batch) if are_plain else sum(type(each) in _PLAIN for each in batch)
        step = -(-len(ended) // SAMPLE) if len(ended) > MEASURED_WHOLE else 1
        self.measure(ended[::step], step, now)

    def note_others(self, batch: Sequence[Outcome]) -> list[Outcome]:
        """Count the outcomes that are not a success; return the outcomes of jobs that were not interrupted."""
        for outcome in batch:
            if isinstance(outcome, Interrupted):
                self.interrupted += 1
            elif isinstance(outcome, Failed):
                self.note_failure(outcome)
        # The statement that ends an expired job counts it.
        return [outcome for outcome in batch if not isinstance(outcome, Interrupted | Expired)]

    def note_failure(self, failure: Failed) -> None:
        if failure.permanent or failure.claim.attempts >= failure.claim.max_attempts:
            self.permanently_failed += 1
        else:
            self.failed += 1

    def include(self, row: Row) -> None:
        self.succeeded += row.succeeded
        self.failed += row.failed
        self.permanently_failed += row.permanently_failed
        self.interrupted += row.interrupted
        self.duration_seconds += row.duration_seconds
        self.wait_seconds += row.wait_seconds
        self.durations = [mine + other for mine, other in zip(self.durations, row.durations, strict=True)]
        self.waits = [mine + other for mine, other in zip(self.waits, row.waits, strict=True)]


Cells = dict[tuple[int, str], Cell]


class StatisticsBuffer:
    """The counts that are not in the database yet. The releaser's thread adds, the recorder's thread drains."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._cells: Cells = {}
        self._queue_cells: Cells = {}

    def add(self, outcomes: Sequence[Outcome], identifier_of: Callable[[int], str | None]) -> None:
        """Count a batch of released jobs."""
        now = self._clock()
        minute = int(now // 60)
        are_plain = _PLAIN.issuperset(map(type, outcomes))
        claims = list(map(_claim, outcomes))
        with self._lock:
            for task_id, batch in _by_task(outcomes, claims).items():
                identifier = identifier_of(task_id) or UNKNOWN_TASK
                _cell(self._cells, minute, identifier).count(batch, now, are_plain=are_plain)
            if any(map(_queue_id, claims)):
                for name, batch in _by_queue(outcomes, claims).items():
                    self._queue_cell(minute, name).count(batch, now, are_plain=are_plain)

    def drain(self) -> list[Row]:
        """Remove and return the counts of tasks so far."""
        with self._lock:
            cells, self._cells = self._cells, {}
        return _rows(cells)

    def drain_queues(self) -> list[Row]:
        """Remove and return the counts of named queues so far; the identifier of a row is the name of the queue."""
        with self._lock:
            cells, self._queue_cells = self._queue_cells, {}
        return _busiest(_rows(cells))

    def restore(self, rows: Iterable[Row], queue_rows: Iterable[Row] = ()) -> None:
        """Add the counts back that could not be written."""
        with self._lock:
            for row in rows:
                _cell(self._cells, row.started_at // 60, row.task_identifier).include(row)
            for row in queue_rows:
                self._queue_cell(row.started_at // 60, row.task_identifier).include(row)

    def _queue_cell(self, minute: int, name: str) -> Cell:
        is_new = (minute, name) not in self._queue_cells
        is_full = is_new and len(self._queue_cells) >= MOST_QUEUES
        return _cell(self._queue_cells, minute, OTHER_QUEUES if is_full else name)


def _cell(cells: Cells, minute: int, identifier: str) -> Cell:
    cell = cells.get((minute, identifier))
    if cell is None:
        cell = cells[minute, identifier] = Cell()
    return cell


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
    if len(rows) <= MOST_WRITTEN_QUEUES:
        return rows
    # Late import: see Cell.
    from django_graphile_worker.sql.statistics.statistics import together

    rows.sort(key=lambda row: row.succeeded + row.failed + row.permanently_failed, reverse=True)
    others: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows[MOST_WRITTEN_QUEUES:]:
        others[row.started_at].append(row)
    summed = [together(each, started_at=start, task_identifier=OTHER_QUEUES) for start, each in others.items()]
    return rows[:MOST_WRITTEN_QUEUES] + summed


def _rows(cells: Cells) -> list[Row]:
    return [_row(minute, identifier, cell) for (minute, identifier), cell in cells.items()]


def _row(minute: int, identifier: str, cell: Cell) -> Row:
    # Late import: see Cell.
    from django_graphile_worker.sql.statistics.statistics import Row

    return Row(
        started_at=minute * 60,
        task_identifier=identifier,
        succeeded=cell.succeeded,
        failed=cell.failed,
        permanently_failed=cell.permanently_failed,
        interrupted=cell.interrupted,
        duration_seconds=cell.duration_seconds,
        wait_seconds=cell.wait_seconds,
        durations=tuple(cell.durations),
        waits=tuple(cell.waits),
    )
