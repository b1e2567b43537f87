"""When jobs expire: the values of the option ``expires``, and the flag that stores the time in the row of a job.

A flag travels with the job, workers of all kinds keep it, and any program that adds jobs can set it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError

PREFIX = "expires:"
# Stored for expires=False: the job never expires, although its task says so.
NEVER = f"{PREFIX}infinity"
_EXPECTED = "an aware datetime, a timedelta or a number of seconds from run_at on, or False for never"

Expires = datetime | timedelta | float | bool


def valid_expires(value: object, *, name: str = "expires") -> datetime | timedelta | bool | None:
    """Return a time, a duration, False for never or None; raise for any other value."""
    if value is None or value is False or isinstance(value, datetime):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise InvalidJobError(f"{name}: expected a duration of up to a million years, got {value!r}.") from None
    if not isinstance(value, timedelta):
        raise InvalidTypeError(f"{name}: expected {_EXPECTED}, got {value!r} ({type(value).__name__}).")
    if value <= timedelta(0):
        raise InvalidJobError(f"{name}: expected a duration above zero, got {value!r}.")
    return value


def flag_for(expires: datetime | timedelta | bool, run_at: datetime) -> str:
    """Return the flag of a job that expires at a time, or so long after ``run_at``. All times are aware."""
    if isinstance(expires, bool):
        return NEVER
    try:
        moment = run_at + expires if isinstance(expires, timedelta) else expires
    except OverflowError:
        return NEVER
    return f"{PREFIX}{moment.timestamp():.3f}".rstrip("0").rstrip(".")


def refuse_malformed_flag(flag: str) -> None:
    """Raise InvalidJobError for a flag that looks like the time of an expiry and cannot be read as one."""
    if _epoch(flag) is None:
        raise InvalidJobError(
            f"flags: expected {PREFIX!r} to be followed by seconds since 1970, got {flag!r}. Use expires=, which sets "
            "this flag."
        )


def own_expiry(flags: Iterable[str]) -> float | None:
    """Return when a job with these flags expires, in seconds since 1970; infinity for never, None if it does not say.

    The earliest, if several flags say so.
    """
    times = [epoch for flag in flags if flag.startswith(PREFIX) and (epoch := _epoch(flag)) is not None]
    return min(times, default=None)


def expiry_in(flags_text: str) -> float | None:
    """Return ``own_expiry()`` of flags in the JSON of a row."""
    if PREFIX not in flags_text:
        return None
    try:
        flags = json.loads(flags_text)
    except (ValueError, RecursionError):
        return None
    return own_expiry([flag for flag in flags if isinstance(flag, str)]) if isinstance(flags, dict | list) else None


def as_time(epoch: float | None) -> datetime | None:
    """Return seconds since 1970 as a time; None for never."""
    if epoch is None or math.isinf(epoch):
        return None
    try:
        return datetime.fromtimestamp(epoch, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _epoch(flag: str) -> float | None:
    try:
        epoch = float(flag[len(PREFIX) :])
    except ValueError:
        return None
    return None if math.isnan(epoch) else epoch
