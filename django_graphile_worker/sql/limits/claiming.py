"""Claims of limited jobs: no job is claimed that may not run now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.claims import Claim, claims_of_rows
from django_graphile_worker.sql.codecs import int_array, nullable_array
from django_graphile_worker.sql.limits.numbers import PARAMETERS
from django_graphile_worker.sql.schema import statement

# The columns in the order of the fields of Claim, with the summary where a claim has its token.
CLAIM_LIMITED = f"""/* gw:claim-limited */
select job_id, job_task_id, job_attempts, job_payload, queue_id, job_priority, job_run_at, job_max_attempts,
    job_key, job_revision, job_flags, job_error, job_created_at, job_updated_at, name_of_queue, summary
from :SCHEMA._private_claim_limited_v1(
    %(token)s::text, %(task_ids)s::int[], %(shapes)s::int[], %(expiries)s::float8[], %(other_tasks)s::int[],
    %(max_jobs)s::int, %(forbidden_flags)s::text[], %(now)s::timestamptz, %(clock)s::timestamptz, %(slack)s::float8,
    {PARAMETERS})"""

# Seconds. The statements that count starts have the same number.
MOST_SLACK = 5.0


class LimitedClaimed(Frozen):
    """The claims of one statement, in the order in which the jobs start."""

    claims: list[Claim]
    # Whether there may be more limited jobs that can be claimed now.
    has_more: bool
    # When a key opens, or a lane is to be looked at again; None if nothing is known.
    seconds_until_next: float | None
    # Within how many seconds of the statement the jobs must start; None if no rate is involved.
    start_within: float | None = None
    # Some of the jobs have expired by this time of the server, in seconds since 1970; None if none has. They are not
    # counted, and must not start.
    expired_at: float | None = None


def claim_limited(
    cursor: Any,
    *,
    schema: str,
    token: str,
    shapes: Mapping[int, int],
    expiries: Mapping[int, float | None] | None = None,
    other_tasks: Sequence[int] = (),
    numbers: Mapping[str, str],
    max_jobs: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    clock: datetime | None = None,
    slack: float = 0.0,
) -> LimitedClaimed:
    """Claim up to ``max_jobs`` limited jobs that may run now.

    ``shapes`` are the ids of the limited tasks with the number of their limits, ``expiries`` after how many seconds the
    jobs of each expire, ``other_tasks`` the ids of the worker's other tasks: no job of a queue is claimed before one of
    theirs that comes first. ``numbers`` are the parameters of ``numbers.parameters_of``. ``clock`` is the time of
    windows in a test. A worker that needs more than the margin of a rate to start a job says with ``slack`` how many
    seconds more, up to ``MOST_SLACK``.
    """
    cursor.execute(
        statement(CLAIM_LIMITED, schema),
        {
            "token": token,
            "task_ids": int_array(shapes),
            "shapes": int_array(shapes.values()),
            "expiries": nullable_array([(expiries or {}).get(task_id) for task_id in shapes]),
            "other_tasks": int_array(other_tasks),
            "max_jobs": max_jobs,
            "forbidden_flags": list(forbidden_flags) if forbidden_flags else None,
            "now": now,
            "clock": clock,
            "slack": min(max(slack, 0.0), MOST_SLACK),
            **numbers,
        },
    )
    claims, summary = claims_of_rows(cursor.fetchall(), token)
    return LimitedClaimed(claims=claims, **summary)
