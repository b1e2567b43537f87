"""Jobs that go back with less to do: what is done of an array payload is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.arrays import int_array
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.schema import statement

# The attempt is given back, as to every job whose run the worker itself cut short.
RETURN_REMAINS = """/* gw:return-remains */
with returning_job as materialized (
    select job.ctid as tid, ended.payload,
        job.attempts = job.max_attempts and job.updated_at > job.locked_at as was_cancelled
    from unnest(%(ids)s::bigint[], %(attempts)s::smallint[], %(payloads)s::text[]) as ended(id, attempts, payload)
    join :SCHEMA._private_jobs as job on job.id = ended.id
    where job.locked_by = %(holder)s and (
        job.attempts = ended.attempts
        or (job.attempts = job.max_attempts and job.updated_at > job.locked_at))
    for update of job skip locked
)
update :SCHEMA._private_jobs as job
set payload = returning_job.payload::json,
    attempts = case when returning_job.was_cancelled then job.attempts else greatest(job.attempts - 1, 0) end,
    locked_by = null,
    locked_at = null
from returning_job
where job.ctid = returning_job.tid
returning job.id"""


class Remains(NamedTuple):
    """A claim, and what is left of its payload."""

    claim: Claim
    payload_text: str


def return_remains(cursor: Any, remains: Sequence[Remains], *, schema: str, holder: str) -> set[int]:
    """Give jobs back with what is left to do; the ids of those that were still ours."""
    parameters = {
        "holder": holder,
        "ids": int_array(each.claim.id for each in remains),
        "attempts": int_array(each.claim.attempts for each in remains),
        "payloads": [each.payload_text for each in remains],
    }
    cursor.execute(statement(RETURN_REMAINS, schema), parameters)
    return {row[0] for row in cursor.fetchall()}
