"""The flags of jobs that this package sets and reads: when a job expires, its headers, of which schedule it is a run.

A flag travels with the job, workers of all kinds keep it, and any program that adds jobs can set it. ``expires:<time>``
stores the option ``expires``, in seconds since 1970, and ``headers:<JSON>`` the option ``headers``.
``schedule:<id>:<seconds>`` is a run of the schedule with this id, ``crontab:<seconds>`` a run of an item of the crontab
in the code of a project, with the time for which its outcome is kept: each worker of this package that ends the job
knows that it records the outcome. Any other flag that begins like a run belongs to the project.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django_graphile_worker.exceptions import InvalidJobError

EXPIRY_PREFIX = "expires:"
# Stored for expires=False: the job never expires, although its task says so.
NEVER = f"{EXPIRY_PREFIX}infinity"

HEADERS_PREFIX = "headers:"

SCHEDULE_PREFIX = "schedule:"
CRONTAB_PREFIX = "crontab:"
# The outcomes of about as many runs are kept.
RUNS_KEPT = 25
SHORTEST_KEEP = timedelta(hours=1)
LONGEST_KEEP = timedelta(days=400)

_RUN_FLAG = re.compile(r"(?:schedule:(?P<schedule>[0-9]{1,18})|crontab):(?P<seconds>[0-9]{1,9})")
_IN_JSON = re.compile(rf'"{_RUN_FLAG.pattern}"')


def expiry_flag(expires: datetime | timedelta | bool, run_at: datetime) -> str:
    """Return the flag of a job that expires at a time, or so long after ``run_at``. All times are aware."""
    if isinstance(expires, bool):
        return NEVER
    try:
        moment = run_at + expires if isinstance(expires, timedelta) else expires
    except OverflowError:
        return NEVER
    return f"{EXPIRY_PREFIX}{moment.timestamp():.3f}".rstrip("0").rstrip(".")


def headers_flag(headers: Mapping[str, Any], run_at: datetime | None = None) -> str:
    """Return the flag of a job with these headers, whenever it is due."""
    return HEADERS_PREFIX + json.dumps(headers, separators=(",", ":"))


def headers_in(flags: Iterable[str]) -> dict[str, Any]:
    """Return the headers of a job with these flags; of several flags with the same name, one has it."""
    headers: dict[str, Any] = {}
    for flag in sorted(flag for flag in flags if flag.startswith(HEADERS_PREFIX)):
        headers |= _headers(flag) or {}
    return headers


def _headers(flag: str) -> dict[str, Any] | None:
    try:
        headers = json.loads(flag[len(HEADERS_PREFIX) :], parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
    # Any program can set the flag. What add_job() refuses is left out, for those who write headers as text.
    return {_encodable(name): _scalar(item) for name, item in headers.items()} if isinstance(headers, dict) else None


def _scalar(value: object) -> object:
    if isinstance(value, str):
        return _encodable(value)
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_number else None


def _encodable(text: str) -> str:
    """Return the text with a question mark for half of a surrogate pair."""
    return text.encode(errors="replace").decode()


def refuse_malformed_flag(flag: str) -> None:
    """Raise InvalidJobError for a flag that looks like an expiry or headers and cannot be read as such."""
    if flag.startswith(HEADERS_PREFIX) and _headers(flag) is None:
        raise InvalidJobError(
            f"flags: expected {HEADERS_PREFIX!r} to be followed by a JSON object, got {flag!r}. Use headers=, which "
            "sets this flag."
        )
    if flag.startswith(EXPIRY_PREFIX) and _epoch(flag) is None:
        raise InvalidJobError(
            f"flags: expected {EXPIRY_PREFIX!r} to be followed by seconds since 1970, got {flag!r}. Use "
            "expires=, which sets this flag."
        )


def own_expiry(flags: Iterable[str]) -> float | None:
    """Return when a job with these flags expires, in seconds since 1970; infinity for never, None if it does not say.

    The earliest, if several flags say so.
    """
    times = [epoch for flag in flags if flag.startswith(EXPIRY_PREFIX) and (epoch := _epoch(flag)) is not None]
    return min(times, default=None)


def expiry_in(flags_text: str) -> float | None:
    """Return ``own_expiry()`` of flags in the JSON of a row."""
    if EXPIRY_PREFIX not in flags_text:
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
        epoch = float(flag[len(EXPIRY_PREFIX) :])
    except ValueError:
        return None
    return None if math.isnan(epoch) else epoch


def schedule_flag(schedule_id: int, keep: timedelta) -> str:
    """Return the flag of a run of a schedule, whose outcome is kept for a time between the two limits."""
    return f"{SCHEDULE_PREFIX}{schedule_id}:{_whole_seconds(keep)}"


def crontab_flag(keep: timedelta) -> str:
    """Return the flag of a run of an item of the crontab."""
    return f"{CRONTAB_PREFIX}{_whole_seconds(keep)}"


def _whole_seconds(keep: timedelta) -> int:
    return int(min(max(keep, SHORTEST_KEEP), LONGEST_KEEP).total_seconds())


def is_run_flag(flag: str) -> bool:
    return _RUN_FLAG.fullmatch(flag) is not None


def without_run_flags(flags: Iterable[str]) -> list[str]:
    """Return the flags that another job with the same options has: it is not the run of a schedule."""
    return [flag for flag in flags if not is_run_flag(flag)]


def without_headers(flags: Iterable[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith(HEADERS_PREFIX)]


def names_in(flags: Iterable[str]) -> list[str]:
    """Return the flags that a worker may forbid: no time, no headers and no schedule."""
    return [flag for flag in without_headers(without_run_flags(flags)) if not flag.startswith(EXPIRY_PREFIX)]


def schedule_in(flags: Iterable[str]) -> int | None:
    """Return the id of the schedule of which a job with these flags is a run."""
    found = (_RUN_FLAG.fullmatch(flag) for flag in flags)
    return next((int(each["schedule"]) for each in found if each is not None and each["schedule"]), None)


def keep_in(flags_text: str | None) -> float | None:
    """Return the seconds that the flags in the JSON of a row say; None if the job is not the run of a schedule."""
    if flags_text is None:
        return None
    return max((float(each["seconds"]) for each in _IN_JSON.finditer(flags_text)), default=None)
