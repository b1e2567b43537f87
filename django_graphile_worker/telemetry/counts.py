"""The counters of the metrics: what a worker counts of jobs, and the sums of all its processes.

Nothing here needs a library. A process counts into a ``Tally``, or into an ``Outbox`` if its supervisor keeps the sums.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Protocol

# Upper bounds of the buckets of both histograms, in seconds: runs and waits are from milliseconds to an hour.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
# The histograms.
WAIT, RUN = "wait", "run"
# What is counted beside the outcomes.
CLAIMED, RETURNED, TIMED_OUT = "claimed", "returned", "timed_out"
OUTCOMES = ("succeeded", "failed", "permanently_failed", "interrupted", "cancelled", "expired")
# A program may have millions of named queues, and each value of a label costs memory in Prometheus for ever. So many
# names, the first that are seen, have series of their own. The jobs of all others have this name.
MAX_QUEUES = 50
OTHER_QUEUES = "other"
# Characters of a name that a child sends. Those of tasks and queues are never longer. So a line is shorter than 4096
# bytes, also with escapes: the system writes such a line as a whole or not at all.
MAX_NAME = 128
# The size that the pipe gets on Linux.
PIPE_SIZE = 1_048_576

# Database, task and queue. A job without a queue has an empty name.
Key = tuple[str, str, str]
Cell = Mapping[str, float]


class Counts(Protocol):
    """What a worker counts into."""

    def add(self, key: Key, cell: Cell) -> None: ...


class Tally:
    """The sums of all that was counted, since the process started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: dict[Key, defaultdict[str, float]] = {}
        self._queues: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, key: Key, cell: Cell) -> None:
        with self._lock:
            sums = self._cell(key)
            for name, number in cell.items():
                sums[name] += number

    def cells(self) -> dict[Key, dict[str, float]]:
        """Return a copy of the sums."""
        with self._lock:
            return {key: dict(cell) for key, cell in self._cells.items()}

    def _cell(self, key: Key) -> defaultdict[str, float]:
        cell = self._cells.get(key)
        if cell is None:
            database, task, queue = key
            queues = self._queues[database]
            if queue and queue not in queues and len(queues) >= MAX_QUEUES:
                return self._cells.setdefault((database, task, OTHER_QUEUES), defaultdict(float))
            if queue:
                queues.add(queue)
            cell = self._cells[key] = defaultdict(float)
        return cell


def measured(durations: Sequence[float], due_at: Sequence[float], now: float) -> dict[str, float]:
    """Return the numbers of both histograms, of runs that have just ended: buckets that are not empty, and sums.

    In a large group, mostly all are in the same bucket. Then only the shortest and the longest are looked at.
    """
    number, took = len(durations), sum(durations)
    shortest, longest = min(durations), max(durations)
    earliest = min(due_at)
    least, most = now - longest - max(due_at), now - shortest - earliest
    cell = _one_bucket(RUN, shortest, longest, number, took) or _spread(RUN, durations)
    if earliest == -inf:
        # A job whose run_at is '-infinity' has no wait that could be measured.
        pairs = zip(durations, due_at, strict=True)
        return cell | _spread(WAIT, [now - duration - due for duration, due in pairs if due > -inf])
    if wait := _one_bucket(WAIT, least, most, number, max(number * now - took - sum(due_at), 0.0)):
        return cell | wait
    return cell | _spread(WAIT, [now - duration - due for duration, due in zip(durations, due_at, strict=True)])


def _one_bucket(histogram: str, shortest: float, longest: float, number: int, total: float) -> dict[str, float] | None:
    first = bisect_left(BUCKETS, shortest)
    if shortest < 0.0 or bisect_left(BUCKETS, longest) != first:
        return None
    return {f"{histogram} {first}": number, f"{histogram} sum": total}


def _spread(histogram: str, seconds: Sequence[float]) -> dict[str, float]:
    # The clocks of the database and of this process may differ: a wait is never negative.
    ordered = sorted(max(each, 0.0) for each in seconds)
    ends = [0, *(bisect_right(ordered, bound) for bound in BUCKETS), len(ordered)]
    numbers = {f"{histogram} {place}": end - start for place, (start, end) in enumerate(pairwise(ends)) if end > start}
    return {**numbers, f"{histogram} sum": sum(ordered)}


def buckets(histogram: str, cell: Cell) -> list[int]:
    """Return how many runs are in each bucket or before it; the last has all."""
    numbers = (cell.get(f"{histogram} {place}", 0) for place in range(len(BUCKETS) + 1))
    # A few jobs may stand for many, each for a number that is not whole.
    return [round(number) for number in accumulate(numbers)]


class Outbox:
    """The counts of a child of the supervisor, which are sent through a pipe as soon as they are made.

    What is in the pipe outlives the process, also one that is killed. All children write to the same pipe, a line at a
    time. If the pipe is full, the counts are added up here and sent later.
    """

    def __init__(self, file: int) -> None:
        os.set_blocking(file, False)
        self._file = file
        self._lock = threading.Lock()
        self._pending: dict[Key, defaultdict[str, float]] = {}

    def add(self, key: Key, cell: Cell) -> None:
        database, task, queue = (name[:MAX_NAME] for name in key)
        with self._lock:
            sums = self._pending.setdefault((database, task, queue), defaultdict(float))
            for name, number in cell.items():
                sums[name] += number
            self._flush()

    def flush(self) -> None:
        """Send what could not be sent before."""
        with self._lock:
            self._flush()

    def send(self, status: Mapping[str, Any]) -> None:
        """Send the status of the process; a full pipe loses it."""
        self._write(status)

    def _flush(self) -> None:
        while self._pending and self._write([*(key := next(iter(self._pending))), self._pending[key]]):
            del self._pending[key]

    def _write(self, value: object) -> bool:
        line = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n"
        try:
            os.write(self._file, line)
        except BlockingIOError:
            return False
        except OSError:
            # The supervisor is gone, and this process stops.
            return True
        return True


class Inbox:
    """The end of the pipe at which the supervisor reads."""

    def __init__(self, file: int, tally: Tally) -> None:
        os.set_blocking(file, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):
                fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        self._file = file
        self._tally = tally
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """Add up the counts that have arrived, and return the statuses; one thread at a time."""
        *lines, self._rest = (self._rest + b"".join(self._chunks())).split(b"\n")
        statuses = []
        for line in lines:
            # Outside of Linux, a full pipe may take a part of a line.
            with suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    statuses.append(value)
                else:
                    self._tally.add((value[0], value[1], value[2]), value[3])
        return statuses

    def _chunks(self) -> Iterable[bytes]:
        with suppress(BlockingIOError):
            while chunk := os.read(self._file, PIPE_SIZE):
                yield chunk
