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
from itertools import pairwise
from typing import Any, Protocol

# Upper bounds of the buckets of both histograms, in seconds: runs and waits are from milliseconds to an hour.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
# The histograms.
WAIT, RUN = "wait", "run"
# What is counted beside the outcomes.
CLAIMED, TIMED_OUT = "claimed", "timed_out"
OUTCOMES = ("succeeded", "failed", "permanently_failed", "interrupted", "cancelled", "expired")
# A program may have millions of named queues, and each value of a label costs memory in Prometheus for ever. So many
# names, the first that are seen, have series of their own. The jobs of all others have this name.
MAX_QUEUES = 50
OTHER_QUEUES = "other"
# The system writes so much into a pipe at once, or nothing.
LONGEST_LINE = 4096
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


def measured(histogram: str, seconds: Sequence[float]) -> dict[str, float]:
    """Return the numbers of a histogram: each bucket that is not empty, and the sum."""
    ordered = sorted(seconds)
    # The jobs of a bucket stand side by side, so each bucket is found and not each job.
    ends = [0, *(bisect_right(ordered, bound) for bound in BUCKETS), len(ordered)]
    numbers: dict[str, float] = {
        f"{histogram} {place}": end - start for place, (start, end) in enumerate(pairwise(ends)) if end > start
    }
    # The clocks of the database and of this process may differ: a wait is never negative.
    numbers[f"{histogram} sum"] = sum(ordered[bisect_left(ordered, 0.0) :])
    return numbers


def buckets(histogram: str, cell: Cell) -> list[int]:
    """Return the numbers of all buckets, with the last for all that is longer than the last bound."""
    return [int(cell.get(f"{histogram} {place}", 0)) for place in range(len(BUCKETS) + 1)]


class Outbox:
    """The counts of a child of the supervisor, which are sent through a pipe as soon as they are made.

    What is in the pipe outlives the process, also one that is killed. All children write to the same pipe: a line is
    written as a whole or not at all. If the pipe is full, the counts are added up here and sent later.
    """

    def __init__(self, file: int) -> None:
        os.set_blocking(file, False)
        self._file = file
        self._lock = threading.Lock()
        self._pending: dict[Key, defaultdict[str, float]] = {}

    def add(self, key: Key, cell: Cell) -> None:
        with self._lock:
            sums = self._pending.setdefault(key, defaultdict(float))
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
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
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
        self._lock = threading.Lock()
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """Add up the counts that have arrived, and return the statuses."""
        with self._lock:
            *lines, self._rest = (self._rest + b"".join(self._chunks())).split(b"\n")
            statuses = []
            for value in map(json.loads, lines):
                if isinstance(value, dict):
                    statuses.append(value)
                else:
                    self._tally.add((value[0], value[1], value[2]), value[3])
            return statuses

    def _chunks(self) -> Iterable[bytes]:
        with suppress(BlockingIOError):
            while chunk := os.read(self._file, PIPE_SIZE):
                yield chunk
