"""Jobs that were not started in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.result_keeping import NOTHING_KEPT, PARAMETERS, ResultKeeping
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.statistics.statistics import ALL_TASKS

# The class of exception that results name for a job that expired.
EXPIRED = "django_graphile_worker.exceptions.JobExpiredError"

EXPIRE = f"""/* gw:expire */
select id from :SCHEMA._private_expire_claims_v1(
    %(ids)s::bigint[], %(tokens)s::text[], %(expiries)s::timestamptz[], '{EXPIRED}', {PARAMETERS},
    %(now)s::timestamptz) as id"""

READ_EXPIRED = """/* gw:read-expired */
select coalesce(sum(known.expired), 0)::bigint from :SCHEMA._private_statistics as known
where known.period_seconds = %(period)s::int and known.started_at >= %(since)s::timestamptz
    and known.task_identifier = any (%(tasks)s::text[])"""


class ExpiredClaim(NamedTuple):
    """A claim whose job must not be started any more, and the time by which it should have been."""

    claim: Claim
    # Seconds since 1970.
    expires_at: float


def expire(
    cursor: Any,
    expired: Sequence[ExpiredClaim],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> set[int]:
    """Delete jobs that were not started in time, and record it; return the ids of the jobs that were still claimed."""
    parameters = {
        "ids": int_array(each.claim.id for each in expired),
        "tokens": text_array(each.claim.token for each in expired),
        "expiries": [datetime.fromtimestamp(each.expires_at, UTC) for each in expired],
        "now": now,
        **keeping.parameters(),
    }
    cursor.execute(statement(EXPIRE, schema), parameters)
    return {row[0] for row in cursor.fetchall()}


def number_of_expired(cursor: Any, *, schema: str, period: int, since: datetime, tasks: Sequence[str] = ()) -> int:
    """Return how many jobs expired since a time, of all tasks or of these."""
    parameters = {"period": period, "since": since, "tasks": list(tasks) or [ALL_TASKS]}
    cursor.execute(statement(READ_EXPIRED, schema), parameters)
    return int(cursor.fetchone()[0])
