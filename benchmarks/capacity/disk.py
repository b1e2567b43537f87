"""What the disk takes: sequential writes that are flushed, as those of the write-ahead log are."""

from __future__ import annotations

import os
import tempfile
import time

from benchmarks.commands import CHECKOUT
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session

CHUNK = bytes(1 << 20)
METRICS = [Metric("rate", "MB/s"), Metric("flush", "ms for a flush of 8 kB", 2)]


def measure_disk(session: Session) -> Table:
    row = Row("disk", "the disk of this checkout")
    for _ in range(session.rounds):
        with tempfile.NamedTemporaryFile(dir=CHECKOUT) as file:
            row.add({"rate": _stream(file.fileno(), session.amount(128, 32)), "flush": _flush(file.fileno())})
    return session.add(Table("disk", "Sequential writes, flushed", METRICS, [row]))


def _stream(file: int, chunks: int) -> float:
    """Return megabytes a second, with a flush after each megabyte."""
    began = time.perf_counter()
    for _ in range(chunks):
        os.write(file, CHUNK)
        os.fdatasync(file)
    return chunks * len(CHUNK) / 1e6 / (time.perf_counter() - began)


def _flush(file: int, times: int = 50) -> float:
    """Return the milliseconds of a small write and its flush."""
    began = time.perf_counter()
    for _ in range(times):
        os.pwrite(file, CHUNK[:8192], 0)
        os.fdatasync(file)
    return (time.perf_counter() - began) / times * 1000
