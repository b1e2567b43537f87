"""The end of claims whose jobs were cancelled meanwhile.

The request to stop a job may be committed at any moment: also while the outcome of its run waits to be released, or
while its job waits for a slot. So every statement that would let a job run again, or fail it, looks for requests first
and ends these claims as cancelled. It locks the rows of the jobs before it looks: a request is written under the same
lock, so none can be committed between the look and the end of the other claims. A job that has succeeded is deleted as
always: the request came too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.sql.codecs import int_array, nullable_array, nullable_text_array, text_array
from django_graphile_worker.sql.result_keeping import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.claims import Claim

# The class of exception that results name for a job that was cancelled.
CANCELLED = "django_graphile_worker.exceptions.JobCancelledError"

_CALL = f""":SCHEMA._private_end_cancelled_v1(
        {{ids}}, %(tokens)s::text[], {{is_requested}}, %(run_times)s::bigint[], %(errors)s::text[],
        %(cancelled_payloads)s::text[], '{CANCELLED}', %(kept_tasks)s::text[], %(task_keeps)s::float8[],
        %(default_keep)s::float8, %(is_history_kept)s::boolean, %(now)s::timestamptz)"""

END_CANCELLED = f"""/* gw:end-cancelled */
select ended.id, ended.reason, ended.cancelled_by
from {_CALL.format(ids="%(ids)s::bigint[]", is_requested="false")} as ended"""


def ending_statement(tag: str, columns: str, call: str) -> str:
    """Return a statement that ends the claims of cancelled jobs, and then calls a function that ends the others.

    ``columns`` are the id and the seconds until the next attempt. ``call`` has {ids} for the ids of the claims: the
    function depends on them, so that it runs last. Rows of cancelled jobs have the reason, and who cancelled them.
    """
    end_cancelled = _CALL.format(ids="locked.ids", is_requested="true")
    ids = "case when ahead.number >= 0 then ahead.ids end"
    return f"""/* gw:{tag} */
with locked as materialized (
    select :SCHEMA._private_lock_claims_v1(%(ids)s::bigint[], %(tokens)s::text[]) as ids
), cancelled as materialized (
    select ended.id, ended.reason, ended.cancelled_by from locked cross join lateral {end_cancelled} as ended
), ahead as materialized (
    select locked.ids, (select count(*) from cancelled) as number from locked
)
select {columns}, null::text, null::text from ahead cross join lateral {call.format(ids=ids)}
union all
select cancelled.id, null::float8, cancelled.reason, cancelled.cancelled_by from cancelled"""


class CancelledClaim(NamedTuple):
    """A claim that ended because its job was cancelled, in the order of the columns."""

    id: int
    reason: str
    cancelled_by: str


OnCancelled = Callable[[CancelledClaim], None]


def ignore_cancelled(claim: CancelledClaim) -> None:
    """Take a claim that ended as cancelled, and do nothing."""


class StoppedRun(NamedTuple):
    """The run of a cancelled job: how long it took in microseconds, None if it never began, and its payload."""

    claim: Claim
    duration: int | None
    history_payload: str | None = None


def ending_parameters(
    *,
    durations: Iterable[int | None] | None = None,
    history_payloads: Iterable[str | None] | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> dict[str, Any]:
    """Return the parameters of ``ending_statement()`` beside the claims, their errors and the time."""
    return {
        "run_times": None if durations is None else nullable_array(durations),
        "cancelled_payloads": None if history_payloads is None else nullable_text_array(history_payloads),
        "kept_tasks": list(keeping.seconds),
        "task_keeps": nullable_array(keeping.seconds.values()),
        "default_keep": keeping.default,
        "is_history_kept": keeping.has_history,
    }


def end_cancelled(
    cursor: Any,
    runs: Sequence[StoppedRun],
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> list[CancelledClaim]:
    """Delete jobs whose runs were stopped because they were cancelled; return the claims that still existed."""
    parameters = {
        "ids": int_array(run.claim.id for run in runs),
        "tokens": text_array(run.claim.token for run in runs),
        "errors": None,
        "now": now,
        **ending_parameters(
            durations=[run.duration for run in runs],
            history_payloads=[run.history_payload for run in runs],
            keeping=keeping,
        ),
    }
    cursor.execute(statement(END_CANCELLED, schema), parameters)
    return [CancelledClaim._make(row) for row in cursor.fetchall()]


def ended(cursor: Any, on_cancelled: OnCancelled) -> dict[int, float | None]:
    """Return the seconds until the next attempt by the ids of the jobs that ended, and report the cancelled claims."""
    rows = cursor.fetchall()
    for job_id, _, reason, cancelled_by in rows:
        if reason is not None:
            on_cancelled(CancelledClaim(job_id, reason, cancelled_by))
    return {row[0]: row[1] for row in rows}
