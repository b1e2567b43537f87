"""The end of claims: jobs that succeeded, failed, expired or are returned, and the queues that were claimed with them.

Every statement names the claim that it ends, by the job's id and the whole ``locked_by``. A ``locked_by`` names the
worker and its claim statement and never repeats, so a statement that arrives late changes no other claim.

A job may be cancelled at any moment: also while the outcome of its run waits to be released, or while its job waits for
a slot. So every statement that would let a job run again, or fail it, ends the claims of cancelled jobs as cancelled. A
job that has succeeded is deleted as always: the request came too late.

What is recorded, the result of the job and its row of history, is written in the transaction that ends the claim.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from django_graphile_worker.sql.claims import Claim, group_by_token
from django_graphile_worker.sql.codecs import (
    boolean_array,
    int_array,
    nullable_array,
    nullable_text_array,
    text_array,
)
from django_graphile_worker.sql.results import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.statements import KEEPING, statement
from django_graphile_worker.sql.workers import locked_by_worker

COMPLETE_JOBS = """/* gw:complete */
select :SCHEMA._private_complete_claims(%(ids)s::bigint[], %(tokens)s::text[], %(counts)s::int[])"""

# The others that complete jobs are also sent over a connection of Django, in the task's own transaction: every name is
# qualified.
COMPLETE_ATOMIC = """/* gw:complete-atomic */
select :SCHEMA._private_complete_claims(
    %(ids)s::pg_catalog.int8[], %(tokens)s::pg_catalog.text[], %(counts)s::pg_catalog.int4[], true)"""

COMPLETE_RECORDED = f"""/* gw:complete-recorded */
select :SCHEMA._private_complete_claims(
    %(ids)s::pg_catalog.int8[], %(tokens)s::pg_catalog.text[], %(counts)s::pg_catalog.int4[],
    %(is_patient)s::pg_catalog.bool, {KEEPING}, %(durations)s::pg_catalog.int8[], %(task_ids)s::pg_catalog.int4[],
    %(identifiers)s::pg_catalog.text[], %(agos)s::pg_catalog.int8[], %(keeps)s::pg_catalog.float8[],
    %(values)s::pg_catalog.text[], %(are_payloads_kept)s::pg_catalog.bool[],
    %(history_payloads)s::pg_catalog.text[], %(now)s::pg_catalog.timestamptz)"""

FAIL_JOBS = f"""/* gw:fail */
select id, seconds_until_next, reason, cancelled_by
from :SCHEMA._private_fail_claims(
    %(ids)s::bigint[], %(tokens)s::text[], %(errors)s::text[], %(delays)s::float8[], %(permanent)s::boolean[],
    %(payloads)s::text[], %(durations)s::bigint[], %(history_payloads)s::text[], {KEEPING}, %(agos)s::bigint[],
    %(exception_classes)s::text[], %(keeps)s::float8[], %(are_payloads_kept)s::boolean[], %(now)s::timestamptz)"""

RETURN_JOBS = f"""/* gw:return */
select id, null::float8, reason, cancelled_by
from :SCHEMA._private_return_claims(
    %(ids)s::bigint[], %(tokens)s::text[], %(payloads)s::text[], %(durations)s::bigint[], %(history_payloads)s::text[],
    {KEEPING}, %(now)s::timestamptz)"""

END_CANCELLED = f"""/* gw:end-cancelled */
select id, reason, cancelled_by
from :SCHEMA._private_end_cancelled(
    %(ids)s::bigint[], %(tokens)s::text[], false, %(durations)s::bigint[], null, %(history_payloads)s::text[],
    {KEEPING}, %(now)s::timestamptz)"""

EXPIRE = f"""/* gw:expire */
select id from :SCHEMA._private_expire_claims(
    %(ids)s::bigint[], %(tokens)s::text[], %(expiries)s::timestamptz[], {KEEPING}, %(now)s::timestamptz) as id"""

STILL_CLAIMED = """/* gw:still-claimed */
select job.id
from rows from (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::text[])) as ended(id, holder)
cross join lateral (
    select each.id from only :SCHEMA._private_jobs as each
    where each.id = ended.id and each.locked_by = ended.holder
    limit 1) as job"""

CLAIMS_OF = f"""/* gw:claims-of */
select job.id, job.locked_by, job.job_queue_id from only :SCHEMA._private_jobs as job
where {locked_by_worker("job", "= %(worker_id)s")}"""

RELEASE_QUEUES = """/* gw:release-queues */
select id from :SCHEMA._private_release_queues(%(queue_ids)s::int[], %(tokens)s::text[]) as id"""

# The notifications wake other workers: the waiting jobs may belong to tasks that only the others run. Each queue has
# its own, because graphile-worker wakes one slot for each. PostgreSQL would merge notifications that are equal, so they
# are numbered; they say nothing about the queue, because every role may listen.
WAITING_QUEUES = """/* gw:waiting-queues */
select id, case when %(sender)s::text is not null then pg_catalog.pg_notify('jobs:insert', pg_catalog.concat(
    %(sender)s::text, '"number": ', pg_catalog.row_number() over (), ', "count": 1}')) end
from :SCHEMA._private_waiting_queues(%(queue_ids)s::int[], %(now)s::timestamptz) as id"""

# In a new session, the first call of each function takes far longer than the next. The function that completes jobs
# needs a group of jobs to come to its statements; this group is empty.
REHEARSE = """/* gw:rehearse */
select
    :SCHEMA._private_complete_claims('{}', '{""}', '{0}'),
    (select pg_catalog.count(*) from :SCHEMA._private_release_queues('{}', '{}')),
    (select pg_catalog.count(*) from :SCHEMA._private_waiting_queues('{}'))"""


class KeptResults(NamedTuple):
    """The results of jobs that succeeded, as columns; in a row without a result, all but the first are null."""

    # Microseconds since the end of the job.
    agos: Sequence[int]
    # Seconds.
    keeps: Sequence[float | None]
    values: Sequence[str | None]
    are_payloads_kept: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedJobs:
    """Jobs that succeeded, and what is recorded of them; the sequences are parallel."""

    # In the order of their tokens.
    claims: Sequence[Claim]
    # Microseconds.
    durations: Sequence[int]
    # The identifiers of the tasks, by their ids in the database.
    identifiers: Mapping[int, str]
    has_history: bool
    # None if no result is kept.
    results: KeptResults | None = None
    # Payloads without secrets; None if the history has no payloads.
    history_payloads: Sequence[str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a claim failed: the error text to store, and the seconds until the next attempt (None: the back-off)."""

    claim: Claim
    error: str
    delay: float | None = None
    permanent: bool = False
    payload_text: str | None = None
    # Microseconds; None if unknown.
    duration: int | None = None
    history_payload: str | None = None
    # Microseconds since the end of the run; None if the attempt is not recorded.
    ago: int | None = None
    exception_class: str | None = None
    # Seconds for which the result is kept; None if it is not kept.
    keep: float | None = None
    keeps_payload: bool = False


class StoppedRun(NamedTuple):
    """A job that is returned, or that was cancelled: what the history has of its run, and what is left to do."""

    claim: Claim | HeldJob
    # Microseconds; None if the job never began.
    duration: int | None = None
    history_payload: str | None = None
    # The items of an array payload that are left; None for the whole payload.
    payload_text: str | None = None


class ExpiredClaim(NamedTuple):
    """A claim whose job must not be started any more, and the time by which it should have been."""

    claim: Claim
    # Seconds since 1970.
    expires_at: float


class CancelledClaim(NamedTuple):
    """A claim that ended because its job was cancelled, in the order of the columns."""

    id: int
    reason: str
    cancelled_by: str


OnCancelled = Callable[[CancelledClaim], None]


def ignore_cancelled(claim: CancelledClaim) -> None:
    """Take a claim that ended as cancelled, and do nothing."""


class HeldJob(NamedTuple):
    """A job that a worker holds according to the database."""

    id: int
    token: str
    queue_id: int | None


class HeldQueue(NamedTuple):
    """A named queue that a claim holds."""

    id: int
    token: str


def rehearse(cursor: Any, *, schema: str) -> None:
    """Have the session plan what ends most claims. Without a claim, it changes nothing."""
    cursor.execute(statement(REHEARSE, schema))


def complete_jobs(cursor: Any, claims: Sequence[Claim], *, schema: str, is_patient: bool = False) -> set[int]:
    """Delete finished jobs; return the ids of the jobs that were still claimed.

    A patient call ends one claim and waits if another transaction has locked its row. Otherwise such rows are left out.
    """
    return _complete(cursor, COMPLETE_ATOMIC if is_patient else COMPLETE_JOBS, claims, {}, schema=schema)


def complete_recorded(
    cursor: Any, completed: CompletedJobs, *, schema: str, now: datetime | None = None, is_patient: bool = False
) -> set[int]:
    """Delete finished jobs and record them, as ``complete_jobs()`` does."""
    results, payloads = completed.results, completed.history_payloads
    parameters = {
        "is_patient": is_patient,
        "durations": int_array(completed.durations),
        "task_ids": int_array(completed.identifiers),
        "identifiers": text_array(completed.identifiers.values()),
        "agos": None if results is None else int_array(results.agos),
        "keeps": None if results is None else nullable_array(results.keeps),
        "values": None if results is None else nullable_text_array(results.values),
        "are_payloads_kept": None if results is None else boolean_array(results.are_payloads_kept),
        "history_payloads": None if payloads is None else nullable_text_array(payloads),
        "now": now,
        **ResultKeeping(seconds={}, has_history=completed.has_history).parameters(),
    }
    return _complete(cursor, COMPLETE_RECORDED, completed.claims, parameters, schema=schema)


def _complete(cursor: Any, text: str, claims: Sequence[Claim], parameters: dict[str, Any], *, schema: str) -> set[int]:
    ids_by_token = group_by_token(claims)
    ids = list(chain.from_iterable(ids_by_token.values()))
    parameters["ids"] = int_array(ids)
    parameters["tokens"] = text_array(ids_by_token)
    parameters["counts"] = int_array(map(len, ids_by_token.values()))
    cursor.execute(statement(text, schema), parameters)
    (deleted,) = cursor.fetchone()
    return set(ids if deleted is None else deleted)


def fail_jobs(
    cursor: Any,
    failures: Sequence[Failure],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    on_cancelled: OnCancelled = ignore_cancelled,
) -> dict[int, float | None]:
    """Store errors and schedule the next attempts. All failures are recorded, or none.

    Return the ids of the jobs that were still claimed, with the seconds until the next attempt, None if there is none.
    A job that was cancelled meanwhile ends as cancelled: ``on_cancelled`` is called for it.
    """
    is_recorded = any(failure.ago is not None for failure in failures)
    parameters = {
        **_claims([failure.claim for failure in failures]),
        "errors": [failure.error for failure in failures],
        "delays": [failure.delay for failure in failures],
        "permanent": [failure.permanent for failure in failures],
        "payloads": [failure.payload_text for failure in failures],
        "durations": nullable_array(failure.duration for failure in failures),
        "history_payloads": nullable_text_array(failure.history_payload for failure in failures),
        "agos": nullable_array(failure.ago for failure in failures) if is_recorded else None,
        "exception_classes": [failure.exception_class for failure in failures],
        "keeps": nullable_array(failure.keep for failure in failures),
        "are_payloads_kept": boolean_array(failure.keeps_payload for failure in failures),
        "now": now,
        **keeping.parameters(),
    }
    cursor.execute(statement(FAIL_JOBS, schema), parameters)
    return _ended(cursor, on_cancelled)


def return_jobs(cursor: Any, claims: Sequence[Claim | HeldJob], *, schema: str, **options: Any) -> set[int]:
    """Return jobs that have not begun, as ``return_stopped()`` does."""
    return return_stopped(cursor, list(map(StoppedRun, claims)), schema=schema, **options)


def return_stopped(
    cursor: Any,
    runs: Sequence[StoppedRun],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    on_cancelled: OnCancelled = ignore_cancelled,
) -> set[int]:
    """Return jobs to the state before their claim, with what is left of their payloads.

    The attempt does not count, as for every job whose run the worker itself ended early; the history has those that had
    begun. The result has the ids of the jobs that were still claimed. A job that was cancelled meanwhile ends as
    cancelled: ``on_cancelled`` is called for it.
    """
    parameters = {**_runs(runs), "payloads": [run.payload_text for run in runs], "now": now, **keeping.parameters()}
    cursor.execute(statement(RETURN_JOBS, schema), parameters)
    return set(_ended(cursor, on_cancelled))


def end_cancelled(
    cursor: Any,
    runs: Sequence[StoppedRun],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> list[CancelledClaim]:
    """Delete jobs whose runs were stopped because they were cancelled; return the claims that still existed."""
    cursor.execute(statement(END_CANCELLED, schema), {**_runs(runs), "now": now, **keeping.parameters()})
    return [CancelledClaim._make(row) for row in cursor.fetchall()]


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
        **_claims([each.claim for each in expired]),
        "expiries": [datetime.fromtimestamp(each.expires_at, UTC) for each in expired],
        "now": now,
        **keeping.parameters(),
    }
    cursor.execute(statement(EXPIRE, schema), parameters)
    return {row[0] for row in cursor.fetchall()}


def _ended(cursor: Any, on_cancelled: OnCancelled) -> dict[int, float | None]:
    """Return the seconds until the next attempt by the ids of the jobs that ended, and report the cancelled claims."""
    rows = cursor.fetchall()
    for job_id, _, reason, cancelled_by in rows:
        if reason is not None:
            on_cancelled(CancelledClaim(job_id, reason, cancelled_by))
    return {row[0]: row[1] for row in rows}


def still_claimed(cursor: Any, claims: Sequence[Claim], *, schema: str) -> set[int]:
    """Return the ids of the jobs whose claims still exist; the other claims were lost."""
    cursor.execute(statement(STILL_CLAIMED, schema), _claims(claims))
    return {row[0] for row in cursor.fetchall()}


def release_queues(cursor: Any, queues: Sequence[HeldQueue], *, schema: str) -> set[int]:
    """Release queues; return the ids of the queues that were still held. Call ``waiting_queues`` after the commit."""
    # All statements that lock several queues lock them in this order, so that they cannot deadlock.
    ordered = sorted(queues)
    cursor.execute(statement(RELEASE_QUEUES, schema), {"queue_ids": _ids(ordered), "tokens": _tokens(ordered)})
    return {row[0] for row in cursor.fetchall()}


def new_sender() -> str:
    """Return how the notifications of a sender of ``waiting_queues`` begin: with a number that no other sender has."""
    # A project may seed the generator that all modules share, and then it gives all workers the same number.
    return f'{{"r": {random.SystemRandom().random()}, '


def waiting_queues(
    cursor: Any, queue_ids: Iterable[int], *, schema: str, sender: str | None, now: datetime | None = None
) -> set[int]:
    """Return the ids of the queues that are free and have a job to run, and notify workers of them.

    ``sender`` is how the notifications begin; None for no notifications.

    The caller's transaction must begin after the commit of the transaction that released the queues: a job that was
    added before that commit notified workers that could not claim it yet, and is visible only now.
    """
    parameters = {"queue_ids": int_array(queue_ids), "sender": sender, "now": now}
    cursor.execute(statement(WAITING_QUEUES, schema), parameters)
    return {row[0] for row in cursor.fetchall()}


def claims_of(cursor: Any, *, schema: str, worker_id: str) -> list[HeldJob]:
    """Return all jobs that this worker holds, by any of its claims."""
    cursor.execute(statement(CLAIMS_OF, schema), {"worker_id": worker_id})
    return [HeldJob(*row) for row in cursor.fetchall()]


def _runs(runs: Sequence[StoppedRun]) -> dict[str, Any]:
    return {
        **_claims([run.claim for run in runs]),
        "durations": nullable_array(run.duration for run in runs),
        "history_payloads": nullable_text_array(run.history_payload for run in runs),
    }


def _claims(claims: Sequence[Claim | HeldJob]) -> dict[str, Any]:
    return {"ids": _ids(claims), "tokens": _tokens(claims)}


def _ids(held: Iterable[Claim | HeldJob | HeldQueue]) -> str:
    return int_array([each.id for each in held])


def _tokens(held: Iterable[Claim | HeldJob | HeldQueue]) -> str:
    return text_array([each.token for each in held])
