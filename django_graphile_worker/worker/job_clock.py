"""The clock that decides when jobs are due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

# Returns the time to send with a statement, or None to use the clock of the database.
JobClock = Callable[[], datetime | None]


def job_clock(*, use_local_time: bool) -> JobClock:
    """Return the clock of this process if the setting ``USE_LOCAL_TIME`` is on, else the clock of the database."""
    return _local_time if use_local_time else _database_time


def _local_time() -> datetime:
    return datetime.now(UTC)


def _database_time() -> None:
    return None
