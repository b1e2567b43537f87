"""The end of claims of which something is recorded: the result of the job, its row of history, or both.

The statements are those of ``sql.releases``, and write the records from the rows that they end: no record without the
end of its attempt, and no end without its record. Durations and the time since the end are microseconds, measured by
the worker; the database subtracts them from its own time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from django_graphile_worker.sql.codecs import (
    boolean_array,
    int_array,
    nullable_array,
    nullable_text_array,
    text_array,
)
from django_graphile_worker.sql.releases import Failure
from django_graphile_worker.sql.result_keeping import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.schema import statement

# Also sent over a connection of Django, in the task's own transaction: every name is qualified.
COMPLETE_JOBS = """/* gw:complete-recorded */
select :SCHEMA._private_complete_recorded_v1(
    %(ids)s::bigint[], %(tokens)s::text[], %(counts)s::int[], %(agos)s::bigint[], %(durations)s::bigint[],
    %(task_ids)s::int[], %(identifiers)s::text[], %(keeps)s::float8[], %(values)s::text[],
    %(are_payloads_kept)s::boolean[], %(has_history)s::boolean, %(history_payloads)s::text[], %(is_patient)s::boolean,
    %(now)s::timestamptz)"""

FAIL_JOBS = ending_statement(
    "fail-recorded",
    "failed.failed_id, failed.seconds_until_next",
    """:SCHEMA._private_fail_recorded_v1(
    {ids}, %(tokens)s::text[], %(errors)s::text[], %(delays)s::float8[], %(permanent)s::boolean[],
    %(payloads)s::text[], %(agos)s::bigint[], %(durations)s::bigint[], %(exception_classes)s::text[],
    %(keeps)s::float8[], %(are_payloads_kept)s::boolean[], %(has_history)s::boolean, %(history_payloads)s::text[],
    %(now)s::timestamptz) as failed""",
)

RETURN_JOBS = ending_statement(
    "return-recorded",
    "returned.id, null::float8",
    """:SCHEMA._private_return_recorded_v1(
    {ids}, %(tokens)s::text[], %(payloads)s::text[], %(have_begun)s::boolean[], %(durations)s::bigint[],
    %(history_payloads)s::text[], %(now)s::timestamptz) as returned(id)""",
)


class KeptResults(NamedTuple):
    """The results of jobs that succeeded, as columns; in a row without a result, all but the first are null."""

    # Since the end of the job.
    agos: Sequence[int]
    # Seconds.
    keeps: Sequence[float | None]
    values: Sequence[str | None]
    are_payloads_kept: Sequence[bool]


class CompletedJobs(Frozen):
    """Jobs that succeeded, in the order of the tokens of their claims; the other sequences are parallel."""

    claims: Sequence[Claim]
    durations: Sequence[int]
    # The identifiers of the tasks, by their ids in the database.
    identifiers: Mapping[int, str]
    has_history: bool
    # None if no result is kept.
    results: KeptResults | None = None
    # Payloads without secrets; None if the history has no payloads.
    history_payloads: Sequence[str | None] | None = None


class Attempt(NamedTuple):
    """What is recorded of an attempt that failed."""

    ago: int
    duration: int
    exception_class: str | None
    # Seconds; None if the result is not kept.
    keep: float | None
    keeps_payload: bool
    has_history: bool
    history_payload: str | None


class ReturnedJob(NamedTuple):
    """A job that is returned: what is left of its payload if that has changed, and what the history tells of it."""

    claim: Claim
    payload_text: str | None
    has_begun: bool
    duration: int
    history_payload: str | None


def complete_jobs(
    cursor: Any, completed: CompletedJobs, *, schema: str, now: datetime | None = None, is_patient: bool = False
) -> set[int]:
    """Delete finished jobs and record them; return the ids of the jobs that were still claimed.

    A patient call waits for a row that another transaction has locked; otherwise such a row is left out.
    """
    ids_by_token = group_by_token(completed.claims)
    ids = list(chain.from_iterable(ids_by_token.values()))
    parameters = {
        "ids": int_array(ids),
        "tokens": text_array(ids_by_token),
        "counts": int_array(map(len, ids_by_token.values())),
        "durations": int_array(completed.durations),
        "history_payloads": _texts(completed.history_payloads),
        "is_patient": is_patient,
        "now": now,
        **_tasks(completed),
        **_results(completed.results),
    }
    cursor.execute(statement(COMPLETE_JOBS, schema), parameters)
    (deleted,) = cursor.fetchone()
    return set(ids if deleted is None else deleted)


def _tasks(completed: CompletedJobs) -> dict[str, Any]:
    return {
        "task_ids": int_array(completed.identifiers),
        "identifiers": text_array(completed.identifiers.values()),
        "has_history": completed.has_history,
    }


def _results(results: KeptResults | None) -> dict[str, str | None]:
    if results is None:
        return dict.fromkeys(KeptResults._fields)
    return {
        "agos": int_array(results.agos),
        "keeps": nullable_array(results.keeps),
        "values": nullable_text_array(results.values),
        "are_payloads_kept": boolean_array(results.are_payloads_kept),
    }


def fail_jobs(
    cursor: Any,
    failures: Sequence[tuple[Failure, Attempt]],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    on_cancelled: OnCancelled = ignore_cancelled,
) -> dict[int, float | None]:
    """Store errors, schedule the next attempts, and record them.

    Return the ids of the jobs that were still claimed, with the seconds until the next attempt, None if there is none.
    A job that was cancelled meanwhile ends as cancelled: ``on_cancelled`` is called for it.
    """
    attempts = [attempt for _, attempt in failures]
    parameters = {
        "ids": int_array(failure.claim.id for failure, _ in failures),
        "tokens": text_array(failure.claim.token for failure, _ in failures),
        "errors": [failure.error for failure, _ in failures],
        "delays": [failure.delay for failure, _ in failures],
        "permanent": [failure.permanent for failure, _ in failures],
        "payloads": [failure.payload_text for failure, _ in failures],
        "agos": int_array(attempt.ago for attempt in attempts),
        "durations": int_array(attempt.duration for attempt in attempts),
        "exception_classes": [attempt.exception_class for attempt in attempts],
        "keeps": nullable_array(attempt.keep for attempt in attempts),
        "are_payloads_kept": boolean_array(attempt.keeps_payload for attempt in attempts),
        "has_history": any(attempt.has_history for attempt in attempts),
        "history_payloads": nullable_text_array(attempt.history_payload for attempt in attempts),
        "now": now,
        **ending_parameters(
            durations=[attempt.duration for attempt in attempts],
            history_payloads=[attempt.history_payload for attempt in attempts],
            keeping=keeping,
        ),
    }
    cursor.execute(statement(FAIL_JOBS, schema), parameters)
    return ended(cursor, on_cancelled)


def return_jobs(
    cursor: Any,
    returned: Sequence[ReturnedJob],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    on_cancelled: OnCancelled = ignore_cancelled,
) -> set[int]:
    """Return jobs, and add those that had begun to the history; the result has the ids of those still claimed.

    A job that was cancelled meanwhile ends as cancelled: ``on_cancelled`` is called for it.
    """
    parameters = {
        "ids": int_array(each.claim.id for each in returned),
        "tokens": text_array(each.claim.token for each in returned),
        "payloads": nullable_text_array(each.payload_text for each in returned),
        "have_begun": boolean_array(each.has_begun for each in returned),
        "durations": int_array(each.duration for each in returned),
        "history_payloads": nullable_text_array(each.history_payload for each in returned),
        "errors": None,
        "now": now,
        **ending_parameters(
            durations=[each.duration if each.has_begun else None for each in returned],
            history_payloads=[each.history_payload for each in returned],
            keeping=keeping,
        ),
    }
    cursor.execute(statement(RETURN_JOBS, schema), parameters)
    return set(ended(cursor, on_cancelled))


def _texts(texts: Sequence[str | None] | None) -> str | None:
    return None if texts is None else nullable_text_array(texts)
