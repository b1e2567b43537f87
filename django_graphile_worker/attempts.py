"""How many attempts a job has had, and when the next one is due.

A job that must not be retried has ``attempts = max_attempts`` in the database, as in graphile-worker, however often it
ran. The number of its last attempt is therefore written into ``last_error``, by the worker or by the operator that
failed the job.
"""

from __future__ import annotations

import math
import re

_REMARK = re.compile(r"^Not tried again after attempt ([0-9]{1,5}) of [0-9]{1,5}\.$", re.MULTILINE)


def usual_backoff(attempts: int) -> float:
    """Return the seconds until the next attempt of a job that has failed so often, as ``_private_backoff`` does."""
    return math.exp(min(attempts, 10))


def final_remark(attempts: int, max_attempts: int) -> str:
    """Return the line that ``last_error`` gets; empty if all attempts were used."""
    return f"Not tried again after attempt {attempts} of {max_attempts}." if attempts < max_attempts else ""


def was_given_up(last_error: str | None) -> bool:
    """Return whether ``last_error`` says that the job must not be retried although attempts were left."""
    return bool(last_error and _REMARK.search(last_error))


def attempts_made(attempts: int, max_attempts: int, last_error: str | None) -> int:
    """Return the number of attempts that a job has really had."""
    if attempts < max_attempts or not last_error:
        return attempts
    # A job that was retried may have an earlier remark.
    found = _REMARK.findall(last_error)
    return int(found[-1]) if found else attempts
