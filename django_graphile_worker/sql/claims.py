"""Claims and their ends: taking jobs, and letting go of them.

A claim is known by three things, the job's id, its holder and the attempt it
began. Every statement that ends one states all three, so a worker that lost a
claim changes nothing. ``attempts`` alone changes under a running job: when it is
cancelled it goes to ``max_attempts``, with ``updated_at`` past ``locked_at``.
That is still the same claim, and the fence knows it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.arrays import int_array
from django_graphile_worker.sql.reading import time_reader
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.values import Value

CLAIM_JOBS = """/* gw:claim */
select * from :SCHEMA._private_claim_jobs(
    %(holder)s::text, %(task_ids)s::int[], %(max_jobs)s::int, %(max_queues)s::int, %(stretch)s::int,
    %(forbidden_flags)s::text[], %(now)s::timestamptz,
    %(resume_priority)s::int, %(resume_run_at)s::float8, %(resume_id)s::bigint)"""

COMPLETE_JOBS = """/* gw:complete */
select * from :SCHEMA._private_complete_claims(%(holder)s::text, %(ids)s::bigint[], %(attempts)s::smallint[])"""

FAIL_JOBS = """/* gw:fail */
select * from :SCHEMA._private_fail_claims(
    %(holder)s::text, %(ids)s::bigint[], %(attempts)s::smallint[], %(errors)s::text[], %(delays)s::float8[],
    %(permanent)s::boolean[], %(payloads)s::text[], %(now)s::timestamptz)"""

RETURN_JOBS = """/* gw:return */
select * from :SCHEMA._private_return_claims(%(holder)s::text, %(ids)s::bigint[], %(attempts)s::smallint[])"""

STILL_CLAIMED = """/* gw:still-claimed */
select job.id
from unnest(%(ids)s::bigint[], %(attempts)s::smallint[]) as ended(id, attempts)
join :SCHEMA._private_jobs as job on job.id = ended.id
where job.locked_by = %(holder)s and (
    job.attempts = ended.attempts
    or (job.attempts = job.max_attempts and job.updated_at > job.locked_at))"""

CLAIMS_OF = """/* gw:claims-of */
select id, attempts, job_queue_id from :SCHEMA._private_jobs where locked_at is not null and locked_by = %(holder)s"""

# Whoever waits for the queue hears of it when there is something left to run. A
# holder that cannot tell whether it let go already must not do so under jobs that
# it has claimed since.
RELEASE_QUEUES = """/* gw:release-queues */
with freed as (
    update :SCHEMA._private_job_queues as queue
    set locked_by = null, locked_at = null
    where id = any (%(queue_ids)s::int[]) and locked_by = %(holder)s
        and not (%(unless_in_use)s and exists (
            select from :SCHEMA._private_jobs as job
            where job.locked_at is not null and job.locked_by = %(holder)s and job.job_queue_id = queue.id))
    returning id
), waiting as (
    select freed.id from freed
    where exists (
        select from :SCHEMA._private_tasks as task
        cross join lateral (
            select from :SCHEMA._private_jobs as job
            where job.task_id = task.id and job.job_queue_id = freed.id and job.is_available
                and job.run_at <= coalesce(%(now)s::timestamptz, now())
            limit 1) as job)
)
select id, case when %(notify)s then pg_notify(
    'jobs:insert', json_build_object('r', random(), 'count', 1)::text) end
from waiting"""

# Written without the fence's time rule touching it: the delete belongs to the
# task's own transaction and ends exactly the claim that began it.
COMPLETE_IN_TRANSACTION = """/* gw:complete-atomic */
delete from :SCHEMA._private_jobs
where id = %(id)s and locked_by = %(holder)s and (
    attempts = %(attempts)s or (attempts = max_attempts and updated_at > locked_at))"""


class Claim(NamedTuple):
    """A job in a worker's hand, as the row came: nothing in it is decoded yet.

    A payload or a date that Python cannot read must fail its own job and no
    other, so that work is left to the one who runs it.
    """

    id: int
    task_id: int
    attempts: int
    payload_text: str
    queue_id: int | None
    priority: int
    run_at_epoch: float
    max_attempts: int
    key: str | None
    revision: int
    flags_text: str | None
    last_error: str | None
    created_at_epoch: float
    updated_at_epoch: float
    queue_name: str | None

    def to_job(self, *, task_identifier: str, payload: Any, locked_by: str, locked_at_epoch: float) -> Job:
        """The job as people see it."""
        read = time_reader()
        return Job(
            id=self.id,
            task_identifier=task_identifier,
            payload=payload,
            queue_name=self.queue_name,
            priority=self.priority,
            run_at=read(self.run_at_epoch),
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            last_error=self.last_error,
            created_at=read(self.created_at_epoch),
            updated_at=read(self.updated_at_epoch),
            key=self.key,
            locked_at=read(locked_at_epoch),
            locked_by=locked_by,
            revision=self.revision,
            flags=_to_flags(self.flags_text),
        )


class Claimed(Value):
    """What a claim brought, first things first, and when the next job falls due."""

    claims: list[Claim]
    # None when nothing is scheduled, or the claim was full.
    seconds_until_next: float | None
    was_full: bool


def claim_jobs(
    cursor: Any,
    *,
    schema: str,
    holder: str,
    task_ids: Sequence[int],
    max_jobs: int,
    max_queues: int,
    stretch: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    resume_after: Claim | None = None,
) -> Claimed:
    """Take up to ``max_jobs`` runnable jobs, and of at most ``max_queues`` queues a stretch each.

    ``resume_after`` spares a claim the walk over what earlier ones took: on that
    job's priority only what comes behind it is looked at.
    """
    cursor.execute(
        statement(CLAIM_JOBS, schema),
        {
            "holder": holder,
            # As text: dumping a list costs more than all the rest together.
            "task_ids": int_array(task_ids),
            "max_jobs": max_jobs,
            "max_queues": max_queues,
            "stretch": stretch,
            "forbidden_flags": list(forbidden_flags) if forbidden_flags else None,
            "now": now,
            "resume_priority": resume_after and resume_after.priority,
            "resume_run_at": resume_after and resume_after.run_at_epoch,
            "resume_id": resume_after and resume_after.id,
        },
    )
    rows = cursor.fetchall()
    seconds_until_next = None
    was_full = True
    if rows and rows[-1][0] is None:
        seconds_until_next = rows.pop()[6]
        was_full = False
    claims = [Claim._make(row) for row in rows]
    claims.sort(key=in_order)
    return Claimed(claims=claims, seconds_until_next=seconds_until_next, was_full=was_full)


def complete_jobs(cursor: Any, claims: Sequence[Claim], *, schema: str, holder: str) -> set[int]:
    """Delete finished jobs; the ids of those that really went."""
    cursor.execute(statement(COMPLETE_JOBS, schema), _ended(claims, holder))
    return {row[0] for row in cursor.fetchall()}


class Failure(Value):
    """How a claim failed: the text to keep, and when to try again (None: the usual back-off)."""

    claim: Claim
    error: str
    delay: float | None = None
    permanent: bool = False
    payload_text: str | None = None


def fail_jobs(
    cursor: Any, failures: Sequence[Failure], *, schema: str, holder: str, now: datetime | None = None
) -> dict[int, float | None]:
    """Store errors and plan the next attempts; those still ours, with the seconds until then."""
    parameters = _ended([failure.claim for failure in failures], holder)
    parameters["errors"] = [failure.error for failure in failures]
    parameters["delays"] = [failure.delay for failure in failures]
    parameters["permanent"] = [failure.permanent for failure in failures]
    parameters["payloads"] = [failure.payload_text for failure in failures]
    parameters["now"] = now
    cursor.execute(statement(FAIL_JOBS, schema), parameters)
    return dict(cursor.fetchall())


def return_jobs(cursor: Any, claims: Sequence[Claim | HeldJob], *, schema: str, holder: str) -> set[int]:
    """Give jobs back as if they had never been claimed; the ids of those that were still ours."""
    cursor.execute(statement(RETURN_JOBS, schema), _ended(claims, holder))
    return {row[0] for row in cursor.fetchall()}


def still_claimed(cursor: Any, claims: Sequence[Claim], *, schema: str, holder: str) -> set[int]:
    """Which of these claims stand: the others were lost."""
    cursor.execute(statement(STILL_CLAIMED, schema), _ended(claims, holder))
    return {row[0] for row in cursor.fetchall()}


def release_queues(
    cursor: Any,
    queue_ids: Sequence[int],
    *,
    schema: str,
    holder: str,
    notify: bool,
    unless_in_use: bool = False,
    now: datetime | None = None,
) -> set[int]:
    """Let go of queues; the ids of those that still have something to run."""
    parameters = {"queue_ids": list(queue_ids), "holder": holder, "notify": notify, "now": now}
    cursor.execute(statement(RELEASE_QUEUES, schema), parameters | {"unless_in_use": unless_in_use})
    return {row[0] for row in cursor.fetchall()}


class HeldJob(Value):
    """A job that the database says a worker has."""

    id: int
    attempts: int
    queue_id: int | None


def claims_of(cursor: Any, *, schema: str, holder: str) -> list[HeldJob]:
    """Everything that this holder has claimed."""
    cursor.execute(statement(CLAIMS_OF, schema), {"holder": holder})
    return [
        HeldJob(id=job_id, attempts=attempts, queue_id=queue_id) for job_id, attempts, queue_id in cursor.fetchall()
    ]


def complete_in_transaction(cursor: Any, claim: Claim, *, schema: str, holder: str) -> bool:
    """Delete a job inside the task's own transaction; False when the claim was lost."""
    cursor.execute(
        statement(COMPLETE_IN_TRANSACTION, schema),
        {"id": claim.id, "holder": holder, "attempts": claim.attempts},
    )
    return bool(cursor.rowcount == 1)


def _ended(claims: Sequence[Claim | HeldJob], holder: str) -> dict[str, Any]:
    return {
        "holder": holder,
        "ids": int_array(claim.id for claim in claims),
        "attempts": int_array(claim.attempts for claim in claims),
    }


def in_order(claim: Claim) -> tuple[int, float, int]:
    """First things first."""
    return (claim.priority, claim.run_at_epoch, claim.id)


def _to_flags(text: str | None) -> frozenset[str]:
    if not text:
        return frozenset()
    return frozenset(json.loads(text))
