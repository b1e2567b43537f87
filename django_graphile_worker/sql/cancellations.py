"""Cancels jobs: removes jobs that wait, requests workers to stop jobs that run, and ends the claims of such jobs.

``sql/ddl/tables.sql`` says how a cancelled job differs from one that was removed or replaced while it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.releases import HeldJob
from django_graphile_worker.sql.result_keeping import KEEPING, NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.statements import Cursor, Row, statement

# What a call made of a job, as _private_cancel_jobs says it.
REMOVED, STOPPING, UNSTOPPABLE, ENDED, UNKNOWN = FATES = ("removed", "stopping", "unstoppable", "ended", "unknown")

# The arguments of the function beside the jobs.
ARGUMENTS = f"%(reason)s::pg_catalog.text, %(by)s::pg_catalog.text, %(notify)s::pg_catalog.bool, {KEEPING}"

# Sent over a connection of Django. The columns of the job are null unless the job was removed: the worker that stops a
# running job reports it. They are null for all if the caller does not need them: there may be many large payloads.
_FATES = f"""select fate.id, fate.fate, {JOB_COLUMNS}
from {{call}} as fate
cross join lateral (
    select (case when %(is_read)s::bool and fate.fate = '{REMOVED}'::text then fate.job end).*) as job"""

CANCEL_JOBS = "/* gw:cancel */ " + _FATES.format(call=f":SCHEMA._private_cancel_jobs(%(ids)s::bigint[], {ARGUMENTS})")
CANCEL_BY_KEY = "/* gw:cancel-by-key */ " + _FATES.format(
    call=f":SCHEMA._private_cancel_by_key(%(key)s::text, {ARGUMENTS})"
)


class Fate(NamedTuple):
    """What became of an id: one of FATES, and the job if it was removed and the caller reads it."""

    job_id: int
    fate: str
    job: Job | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """Who cancels jobs and why, and the settings of the installation."""

    reason: str
    by: str
    notify: bool = True
    keeping: ResultKeeping = NOTHING_KEPT
    # Whether the jobs that are removed are read.
    is_read: bool = True

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of ARGUMENTS."""
        own = {"reason": self.reason, "by": self.by, "notify": self.notify, "is_read": self.is_read}
        return own | self.keeping.parameters()


def cancel_jobs(cursor: Cursor, job_ids: Sequence[int], cancellation: Cancellation, *, schema: str) -> list[Fate]:
    """Remove the jobs that wait, and request the workers of the others to stop them; return what became of each."""
    cursor.execute(statement(CANCEL_JOBS, schema), {"ids": list(job_ids), **cancellation.parameters()})
    return _fates(cursor, schema=schema)


def cancel_by_key(cursor: Cursor, job_key: str, cancellation: Cancellation, *, schema: str) -> list[Fate]:
    """Cancel the job with this key; return what became of it, or nothing if there is none."""
    cursor.execute(statement(CANCEL_BY_KEY, schema), {"key": job_key, **cancellation.parameters()})
    return _fates(cursor, schema=schema)


def _fates(cursor: Cursor, *, schema: str) -> list[Fate]:
    rows = cursor.fetchall()
    jobs = {job.id: job for job in jobs_from(cursor, [row[2:] for row in rows], schema=schema)}
    return [Fate(job_id, fate, jobs.get(job_id)) for job_id, fate, *_ in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledJob:
    """A job that was cancelled while a worker held it, and whose claim has ended."""

    job: Job
    reason: str
    cancelled_by: str
    # Seconds; None if the job never began, or if its worker died.
    duration: float | None


def removed_jobs(fates: Iterable[Fate], cancellation: Cancellation) -> list[CancelledJob]:
    """Return the jobs that a call removed, if it read them."""
    why = {"reason": cancellation.reason, "cancelled_by": cancellation.by}
    return [CancelledJob(job=fate.job, duration=None, **why) for fate in fates if fate.job is not None]


_COLUMNS = f"ended.duration, ended.reason, ended.cancelled_by, {JOB_COLUMNS}"
_JOB = "cross join lateral (select (ended.job).*) as job"

END_CLAIMS = f"""/* gw:end-cancelled-claims */
select {_COLUMNS}
from :SCHEMA._private_end_cancelled(
    %(ids)s::bigint[], %(tokens)s::text[], true, null, null, null, {KEEPING}) as ended {_JOB}"""

END_CANCELLED_OF = f"""/* gw:end-cancelled-of */
select {_COLUMNS}
from :SCHEMA._private_end_cancelled_of(
    %(worker_ids)s::pg_catalog.text[], %(older_than)s::pg_catalog.float8, {KEEPING},
    %(now)s::pg_catalog.timestamptz) as ended {_JOB}"""


def end_claims(
    cursor: Any, claims: Sequence[HeldJob], *, schema: str, keeping: ResultKeeping = NOTHING_KEPT
) -> tuple[CancelledJob, ...]:
    """End those of the claims whose jobs were cancelled."""
    ids, tokens = [claim.id for claim in claims], [claim.token for claim in claims]
    cursor.execute(statement(END_CLAIMS, schema), {"ids": ids, "tokens": tokens, **keeping.parameters()})
    return cancelled_jobs(cursor, cursor.fetchall(), schema=schema)


def end_claims_of(
    cursor: Any,
    worker_ids: Sequence[str] | None,
    *,
    schema: str,
    older_than: float = 0.0,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> tuple[CancelledJob, ...]:
    """End the claims of dead workers on jobs that were cancelled, so that recovery does not find them.

    Without workers: the claims of workers that are not registered, and have held the jobs for ``older_than`` seconds.
    """
    held = None if worker_ids is None else list(worker_ids)
    parameters = {"worker_ids": held, "older_than": older_than, "now": now, **keeping.parameters()}
    cursor.execute(statement(END_CANCELLED_OF, schema), parameters)
    return cancelled_jobs(cursor, cursor.fetchall(), schema=schema)


def cancelled_jobs(cursor: Any, rows: Iterable[Row], *, schema: str) -> tuple[CancelledJob, ...]:
    """Return the values of rows: a duration in microseconds, the reason, who cancelled the job, and JOB_COLUMNS."""
    ended = list(rows)
    jobs = jobs_from(cursor, [row[3:] for row in ended], schema=schema)
    return tuple(
        CancelledJob(
            job=job, reason=reason, cancelled_by=by, duration=None if microseconds is None else microseconds / 1e6
        )
        for (microseconds, reason, by, *_), job in zip(ended, jobs, strict=True)
    )
