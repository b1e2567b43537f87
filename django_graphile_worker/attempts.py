"""How often a job was tried.

A job that is not to be tried again has ``attempts = max_attempts`` in the database, as graphile-worker has it,
however often it ran. The worker therefore writes the number of the last attempt into ``last_error``.
"""

from __future__ import annotations

import re

_REMARK = re.compile(r"^Not tried again after attempt ([0-9]{1,5}) of [0-9]{1,5}\.$", re.MULTILINE)


def final_remark(attempts: int, max_attempts: int) -> str:
    """The line for ``last_error``; empty when all attempts were used."""
    return f"Not tried again after attempt {attempts} of {max_attempts}." if attempts < max_attempts else ""


def was_given_up(last_error: str | None) -> bool:
    """Tell whether our worker wrote that the job is not to be tried again, whatever attempts were left."""
    return bool(last_error and _REMARK.search(last_error))


def attempts_made(attempts: int, max_attempts: int, last_error: str | None) -> int:
    """How many attempts a job has really had."""
    if attempts < max_attempts or not last_error:
        return attempts
    found = _REMARK.search(last_error)
    return int(found[1]) if found else attempts
