"""Records of the runs that have a time limit, in memory that a worker process shares with its supervisor.

A task that holds the lock of the interpreter keeps every thread of its process from running, and with them the thread
that would stop the task. Only another process can end it. The supervisor reads from these records which run is past
its deadline, and ends the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import struct
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple

from django_graphile_worker.sql.claims import Claim

# More runs than this at once are not recorded, and no more workers.
MOST_RUNS, MOST_WORKERS = 512, 32
_WORKER_ID = struct.Struct("=64s")
_RECORD = struct.Struct("=dqqi100s")
_DEADLINE = struct.Struct("=d")
_RUNS_BEGIN = _WORKER_ID.size * MOST_WORKERS
_LENGTH = _RUNS_BEGIN + _RECORD.size * MOST_RUNS
# Writes the stacks of all threads behind the records. A handler in C, which needs no lock of the interpreter.
STACKS_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 5 if hasattr(signal, "SIGRTMIN") else None


class RunRecord(NamedTuple):
    """A run with a time limit, as its process recorded it."""

    # By the monotonic clock, which all processes of a machine share.
    deadline: float
    job_id: int
    thread_id: int
    # The number of the worker in its process.
    worker: int
    token: str


class RunRecordsFile:
    """The records as the supervisor reads them. It makes the file before the process starts."""

    def __init__(self) -> None:
        descriptor, self.path = tempfile.mkstemp(prefix="graphile-worker-")
        os.ftruncate(descriptor, _LENGTH)
        self._memory = mmap.mmap(descriptor, _LENGTH, prot=mmap.PROT_READ)
        self._descriptor = descriptor

    def past(self, moment: float) -> list[RunRecord]:
        """Return the runs whose deadline was before this moment."""
        offsets = range(_RUNS_BEGIN, _LENGTH, _RECORD.size)
        return [self._read(offset) for offset in offsets if 0.0 < self._deadline(offset) < moment]

    def _deadline(self, offset: int) -> float:
        (deadline,) = _DEADLINE.unpack_from(self._memory, offset)
        return float(deadline)

    def _read(self, offset: int) -> RunRecord:
        deadline, job_id, thread_id, worker, token = _RECORD.unpack_from(self._memory, offset)
        return RunRecord(deadline, job_id, thread_id, worker, _text(token))

    def worker_ids(self) -> list[str]:
        """Return the ids of the workers of the process, in their order; empty for a worker without an id."""
        ids = _WORKER_ID.iter_unpack(self._memory[:_RUNS_BEGIN])
        return [_text(worker_id) for (worker_id,) in ids]

    def stacks(self) -> str:
        """Return the stacks that the process wrote when it got ``STACKS_SIGNAL``."""
        size = max(os.fstat(self._descriptor).st_size - _LENGTH, 0)
        return os.pread(self._descriptor, size, _LENGTH).decode(errors="replace")

    def close(self) -> None:
        self._memory.close()
        os.close(self._descriptor)
        # The process removes the file when it has opened it; a process that did not start has not.
        with contextlib.suppress(OSError):
            Path(self.path).unlink()


class RunRecordsWriter:
    """The records as the worker process writes them."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR)
        Path(path).unlink()
        self._memory = mmap.mmap(self._descriptor, _LENGTH)
        self._free = deque(range(MOST_RUNS))
        if STACKS_SIGNAL is not None:
            os.lseek(self._descriptor, _LENGTH, os.SEEK_SET)
            # In C, because a job keeps the lock of the interpreter. Reading the stacks of running threads without the
            # lock can end the process; the supervisor, which sends the signal, kills it anyway.
            faulthandler.register(STACKS_SIGNAL, file=self._descriptor, all_threads=True)

    def of_worker(self, number: int) -> WorkerRecords:
        """Return the records of one of the workers of this process."""
        return WorkerRecords(self, number)

    def note_worker(self, number: int, worker_id: str) -> None:
        if number < MOST_WORKERS:
            _WORKER_ID.pack_into(self._memory, number * _WORKER_ID.size, worker_id.encode())

    def begin(self, worker: int, claim: Claim, deadline: float) -> int:
        """Write a record; return its number, or -1 if there is no room."""
        try:
            number = self._free.pop()
        except IndexError:
            return -1
        # The supervisor may read the record before it is complete, and looks at it again after the deadline.
        offset = _RUNS_BEGIN + number * _RECORD.size
        token = claim.token.encode()
        _RECORD.pack_into(self._memory, offset, deadline, claim.id, threading.get_ident(), worker, token)
        return number

    def end(self, number: int) -> None:
        _DEADLINE.pack_into(self._memory, _RUNS_BEGIN + number * _RECORD.size, 0.0)
        self._free.append(number)


class WorkerRecords:
    """The records of one worker of a process."""

    def __init__(self, writer: RunRecordsWriter, number: int) -> None:
        self._writer = writer
        self._number = number
        self.end = writer.end

    def note_worker(self, worker_id: str) -> None:
        """Note the id under which the worker claims from now on."""
        self._writer.note_worker(self._number, worker_id)

    def begin(self, claim: Claim, deadline: float) -> int:
        return self._writer.begin(self._number, claim, deadline)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")
