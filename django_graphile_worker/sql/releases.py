"""The end of claims: jobs that succeeded, failed or are returned, and the queues that were claimed with them.

Every statement names the claim that it ends, by the job's id and the whole ``locked_by``. A ``locked_by`` names the
worker and its claim statement and never repeats, so a statement that arrives late changes no other claim.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.cancelled_claims import (
    OnCancelled,
    ended,
    ending_parameters,
    ending_statement,
    ignore_cancelled,
)
from django_graphile_worker.sql.claims import Claim, group_by_token
from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.result_keeping import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import locked_by_worker

COMPLETE_JOBS = """/* gw:complete */
select :SCHEMA._private_complete_claims_v3(%(ids)s::bigint[], %(tokens)s::text[], %(counts)s::int[])"""

FAIL_JOBS = ending_statement(
    "fail",
    "failed.failed_id, failed.seconds_until_next",
    """:SCHEMA._private_fail_claims_v3(
    {ids}, %(tokens)s::text[], %(errors)s::text[], %(delays)s::float8[],
    %(permanent)s::boolean[], %(payloads)s::text[], %(now)s::timestamptz) as failed""",
)

RETURN_JOBS = ending_statement(
    "return",
    "returned.id, null::float8",
    ":SCHEMA._private_return_claims_v3({ids}, %(tokens)s::text[]) as returned(id)",
)

# The job is returned with the items of an array payload that are left. The attempt does not count, as for every job
# whose run the worker itself ended early.
RETURN_REMAINING = ending_statement(
    "return-remains",
    "returned.id, null::float8",
    ":SCHEMA._private_return_claims_v3({ids}, %(tokens)s::text[], %(payloads)s::text[]) as returned(id)",
)

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
select id from :SCHEMA._private_release_queues_v2(%(queue_ids)s::int[], %(tokens)s::text[]) as id"""

# The notifications wake other workers: the waiting jobs may belong to tasks that only the others run. Each queue has
# its own, because graphile-worker wakes one slot for each. PostgreSQL would merge notifications that are equal, so they
# are numbered; they say nothing about the queue, because every role may listen.
WAITING_QUEUES = """/* gw:waiting-queues */
select id, case when %(sender)s::text is not null then pg_catalog.pg_notify('jobs:insert', pg_catalog.concat(
    %(sender)s::text, '"number": ', pg_catalog.row_number() over (), ', "count": 1}')) end
from :SCHEMA._private_waiting_queues_v3(%(queue_ids)s::int[], %(now)s::timestamptz) as id"""

# In a new session, the first call of each function takes far longer than the next. The function that completes jobs
# needs a group of jobs to come to its statements; this group is empty.
REHEARSE = """/* gw:rehearse */
select
    :SCHEMA._private_complete_claims_v3('{}', '{""}', '{0}'),
    (select pg_catalog.count(*) from :SCHEMA._private_release_queues_v2('{}', '{}')),
    (select pg_catalog.count(*) from :SCHEMA._private_waiting_queues_v3('{}'))"""

# Sent over a connection of Django, in the task's own transaction: every name is qualified.
COMPLETE_IN_TRANSACTION = """/* gw:complete-atomic */
select :SCHEMA._private_complete_claim_v1(%(id)s::pg_catalog.int8, %(token)s::pg_catalog.text)"""


class Failure(Frozen):
    """How a claim failed: the error text to store, and the seconds until the next attempt (None: the back-off)."""

    claim: Claim
    error: str
    delay: float | None = None
    permanent: bool = False
    payload_text: str | None = None
    # Microseconds; None if unknown.
    duration: int | None = None


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


def complete_jobs(cursor: Any, claims: Sequence[Claim], *, schema: str) -> set[int]:
    """Delete finished jobs; return the ids of the jobs that were still claimed."""
    ids_by_token = group_by_token(claims)
    ids = list(chain.from_iterable(ids_by_token.values()))
    parameters = {
        "ids": int_array(ids),
        "tokens": text_array(ids_by_token),
        "counts": int_array(map(len, ids_by_token.values())),
    }
    cursor.execute(statement(COMPLETE_JOBS, schema), parameters)
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
    """Store errors and schedule the next attempts.

    Return the ids of the jobs that were still claimed, with the seconds until the next attempt, None if there is none.
    A job that was cancelled meanwhile ends as cancelled: ``on_cancelled`` is called for it.
    """
    parameters = _ended([failure.claim for failure in failures])
    parameters["errors"] = [failure.error for failure in failures]
    parameters["delays"] = [failure.delay for failure in failures]
    parameters["permanent"] = [failure.permanent for failure in failures]
    parameters["payloads"] = [failure.payload_text for failure in failures]
    parameters["now"] = now
    durations = [failure.duration for failure in failures]
    cursor.execute(
        statement(FAIL_JOBS, schema), {**parameters, **ending_parameters(durations=durations, keeping=keeping)}
    )
    return ended(cursor, on_cancelled)


def return_jobs(
    cursor: Any,
    claims: Sequence[Claim | HeldJob],
    *,
    schema: str,
    keeping: ResultKeeping = NOTHING_KEPT,
    on_cancelled: OnCancelled = ignore_cancelled,
) -> set[int]:
    """Return jobs to the state before their claim; the result has the ids of the jobs that were still claimed.

    A job that was cancelled meanwhile ends as cancelled: ``on_cancelled`` is called for it.
    """
    parameters = {**_ended(claims), "errors": None, "now": None}
    cursor.execute(statement(RETURN_JOBS, schema), {**parameters, **ending_parameters(keeping=keeping)})
    return set(ended(cursor, on_cancelled))


def return_remaining(
    cursor: Any,
    remaining: Sequence[tuple[Claim, str]],
    *,
    schema: str,
    keeping: ResultKeeping = NOTHING_KEPT,
    on_cancelled: OnCancelled = ignore_cancelled,
) -> set[int]:
    """Return jobs with the given texts as payloads, as ``return_jobs()`` does."""
    parameters = {**_ended([claim for claim, _ in remaining]), "errors": None, "now": None}
    parameters["payloads"] = [payload_text for _, payload_text in remaining]
    cursor.execute(statement(RETURN_REMAINING, schema), {**parameters, **ending_parameters(keeping=keeping)})
    return set(ended(cursor, on_cancelled))


def still_claimed(cursor: Any, claims: Sequence[Claim], *, schema: str) -> set[int]:
    """Return the ids of the jobs whose claims still exist; the other claims were lost."""
    cursor.execute(statement(STILL_CLAIMED, schema), _ended(claims))
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


def complete_in_transaction(cursor: Any, claim: Claim, *, schema: str) -> bool:
    """Delete a job inside the task's own transaction; return False when the claim was lost."""
    cursor.execute(statement(COMPLETE_IN_TRANSACTION, schema), {"id": claim.id, "token": claim.token})
    (is_completed,) = cursor.fetchone()
    return bool(is_completed)


def _ended(claims: Sequence[Claim | HeldJob]) -> dict[str, Any]:
    return {"ids": _ids(claims), "tokens": _tokens(claims)}


def _ids(held: Iterable[Claim | HeldJob | HeldQueue]) -> str:
    return int_array([each.id for each in held])


def _tokens(held: Iterable[Claim | HeldJob | HeldQueue]) -> str:
    return text_array([each.token for each in held])
