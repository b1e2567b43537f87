"""The clock by which jobs fall due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

# Returns the time to send with a statement; None leaves it to the database's own clock.
JobClock = Callable[[], datetime | None]


def job_clock(*, use_local_time: bool) -> JobClock:
    """Return the worker's own clock where the setting asks for it, else the database's."""
    return _local_time if use_local_time else _database_time


def _local_time() -> datetime:
    return datetime.now(UTC)


def _database_time() -> None:
    return None
