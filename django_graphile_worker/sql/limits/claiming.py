"""Claims of limited jobs: no job is claimed that may not run now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_graphile_worker.limits.definitions import LimitDefinition
from django_graphile_worker.sql.claims import Claim, claims_of_rows
from django_graphile_worker.sql.codecs import int_array, nullable_array, text_array
from django_graphile_worker.sql.schema import statement

# The numbers of all limits, made by `parameters_of`.
PARAMETERS = """%(limit_names)s::text[], %(concurrencies)s::int[], %(rate_counts)s::int[],
    %(rate_windows)s::float8[], %(bursts)s::int[]"""

# The columns in the order of the fields of Claim, with the summary where a claim has its token.
CLAIM_LIMITED = f"""/* gw:claim-limited */
select job_id, job_task_id, job_attempts, job_payload, queue_id, job_priority, job_run_at, job_max_attempts,
    job_key, job_revision, job_flags, job_error, job_created_at, job_updated_at, name_of_queue, summary
from :SCHEMA._private_claim_limited(
    %(token)s::text, %(task_ids)s::int[], %(expiries)s::float8[], %(other_tasks)s::int[],
    %(max_jobs)s::int, %(forbidden_flags)s::text[], %(now)s::timestamptz, %(clock)s::timestamptz, {PARAMETERS})"""


def parameters_of(definitions: Iterable[LimitDefinition]) -> dict[str, str]:
    """Return the parameters of ``PARAMETERS``: an array for each number, in the order of the names."""
    known = list(definitions)
    return {
        "limit_names": text_array([each.name for each in known]),
        "concurrencies": nullable_array([each.numbers.concurrency for each in known]),
        "rate_counts": nullable_array([each.numbers.rate_count for each in known]),
        "rate_windows": nullable_array([each.numbers.rate_seconds for each in known]),
        "bursts": nullable_array([each.numbers.burst for each in known]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedClaimed:
    """The claims of one statement, in the order in which the jobs start."""

    claims: list[Claim]
    # Whether there may be more limited jobs that can be claimed now.
    has_more: bool
    # When a key opens, or a lane is to be looked at again; None if nothing is known.
    seconds_until_next: float | None
    # Some of the jobs have expired by this time of the server, in seconds since 1970; None if none has. They are not
    # counted, and must not start.
    expired_at: float | None = None


def claim_limited(
    cursor: Any,
    *,
    schema: str,
    token: str,
    expiries: Mapping[int, float | None],
    other_tasks: Sequence[int] = (),
    numbers: Mapping[str, str],
    max_jobs: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    clock: datetime | None = None,
) -> LimitedClaimed:
    """Claim up to ``max_jobs`` limited jobs that may run now.

    ``expiries`` are the ids of the limited tasks, and after how many seconds the jobs of each expire. ``other_tasks``
    are the ids of the worker's other tasks: no job of a queue is claimed before one of theirs that comes first.
    ``numbers`` are the parameters of ``parameters_of``. ``clock`` is the time of windows in a test.
    """
    cursor.execute(
        statement(CLAIM_LIMITED, schema),
        {
            "token": token,
            "task_ids": int_array(expiries),
            "expiries": nullable_array(expiries.values()),
            "other_tasks": int_array(other_tasks),
            "max_jobs": max_jobs,
            "forbidden_flags": list(forbidden_flags) if forbidden_flags else None,
            "now": now,
            "clock": clock,
            **numbers,
        },
    )
    claims, summary = claims_of_rows(cursor.fetchall(), token)
    return LimitedClaimed(claims=claims, **summary)
