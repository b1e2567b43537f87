"""Who waits for the end of which job: workers send a notification only for the jobs that are listed here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

REGISTER = """/* gw:register-waiter */
insert into :SCHEMA._private_waiters as waiter (job_id, waiter, expires_at)
select job_id, %(waiter)s::text, clock_timestamp() + interval '1 second' * %(seconds)s::float8
from unnest(%(ids)s::bigint[]) as wanted (job_id) order by job_id
on conflict (job_id, waiter) do update set expires_at = excluded.expires_at"""


def register(cursor: Cursor, job_ids: Sequence[int], *, waiter: str, seconds: float, schema: str) -> None:
    """List the waiter for these jobs, for this many seconds. The caller commits before it reads the jobs."""
    parameters = {"ids": int_array(job_ids), "waiter": waiter, "seconds": seconds}
    cursor.execute(statement(REGISTER, schema), parameters)


def announced_jobs(payload: str) -> set[tuple[str, int]]:
    """Return the worker schema and the id of each job that a notification names; any session may send other texts."""
    try:
        announced = json.loads(payload)
        return {(str(announced["schema"]), int(job_id)) for job_id in announced["jobs"]}
    except (ValueError, TypeError, LookupError, RecursionError):
        return set()
