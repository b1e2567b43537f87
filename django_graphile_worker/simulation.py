"""What the tools of ``testing`` change while a test uses them: the time, and when jobs run. In production, nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

# Returns the time of the clock that a test has opened, aware; None if no clock is open.
now: Callable[[], datetime] | None = None
# Whether jobs run as soon as the transaction that adds them has ended.
is_immediate = False
# Whether this process has paused something. Only then run_jobs() of a test reads pauses.
has_pauses = False
# Whether this process has written schedules under an open clock. Then run_jobs() of a test reads them again.
has_new_schedules = False


def moved(run_at: datetime | timedelta | None) -> datetime | timedelta | None:
    """Return a time or a delay as a time of the clock of the test, or unchanged if no clock is open.

    The database counts a delay from its own clock, which a test cannot move.
    """
    if now is None or run_at is None or isinstance(run_at, datetime):
        return run_at
    return now() + run_at
