"""Add unique jobs: no second job while one with the same key waits or runs, or was added within a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, NamedTuple

from django_graphile_worker import simulation
from django_graphile_worker.job_options import Unique
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql.adding.specs import Entry, element, new_job
from django_graphile_worker.sql.jobs import get_jobs
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# How many entries one statement looks at whose jobs may have ended.
MAX_FORGOTTEN = 1_000

ADD_UNIQUE_JOBS = """/* gw:add_unique_jobs */
    select added.job_id, added.is_new, added.added_at, added.run_at, now(),
        has_table_privilege(':SCHEMA._private_jobs'::regclass, 'select')
    from :SCHEMA._private_add_unique_jobs(%s::json, %s::boolean, %s::timestamptz) as added"""


class _Added(NamedTuple):
    """A row of ADD_UNIQUE_JOBS."""

    id: int
    is_new: bool
    added_at: datetime
    run_at: datetime
    now: datetime
    can_read: bool


def add_unique_jobs(cursor: Cursor, entries: Sequence[Entry], *, schema: str, notify: bool = True) -> list[Job]:
    """Add the jobs that are not there, and return the job of each spec."""
    now = None if simulation.now is None else simulation.now()
    document = "[" + ",".join(_element(*entry) for entry in entries) + "]"
    cursor.execute(statement(ADD_UNIQUE_JOBS, schema), (document, not notify, now))
    rows = [_Added._make(row) for row in cursor.fetchall()]
    # One statement for all of them: most of a large call may be there.
    existing = [row.id for row in rows if not row.is_new and row.can_read]
    known = get_jobs(cursor, existing, schema=schema) if existing else {}
    return [_job(*entry, row, known) for entry, row in zip(entries, rows, strict=True)]


def _job(spec: JobSpec, payload: str, row: _Added, known: Mapping[int, Job]) -> Job:
    if row.is_new:
        return new_job(spec, payload, row.id, row.now, row.run_at)
    # A job that has ended is known by its id alone.
    return (known.get(row.id) or new_job(spec, payload, row.id, row.added_at, row.added_at)).as_existing()


def _element(spec: JobSpec, payload: str) -> str:
    """Return a spec as JSON, with the key under which it is unique, and the seconds for which ended jobs count."""
    assert spec.unique is not None
    parts = [element(spec, payload)[:-1], f'"u":{quoted(_key(spec.unique, payload))}']
    if spec.unique.window is not None:
        parts.append(f'"w":{spec.unique.window!r}')
    return ",".join(parts) + "}"


def _key(unique: Unique, payload: str) -> str:
    """Return the text that is compared. The order of the keys of an object does not matter."""
    if isinstance(unique.key, str):
        return f"key:{unique.key}"
    equal = json.dumps(decode_leniently(payload), sort_keys=True, separators=(",", ":"))
    return f"payload:{hashlib.sha256(equal.encode()).hexdigest()}"


FORGET_UNIQUE_JOBS = """/* gw:forget_unique_jobs */
    select :SCHEMA._private_forget_unique_jobs(%s::integer, %s::timestamptz)"""


def forget_unique_jobs(cursor: Cursor, *, schema: str, now: datetime | None = None) -> bool:
    """Delete entries whose job has ended and whose time is over; return whether there may be more of them."""
    cursor.execute(statement(FORGET_UNIQUE_JOBS, schema), (MAX_FORGOTTEN, now))
    return bool(cursor.fetchone()[0] >= MAX_FORGOTTEN)
