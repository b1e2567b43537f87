"""The claim of the few jobs that an idle worker was notified of, where every hundredth of a millisecond counts.

Mostly there are few jobs in all, and all due jobs can run at once. Then one look-up and one update are the whole claim.
If there is more to decide (a queue, more due jobs than free slots, many other jobs), this statement claims nothing, and
the worker uses ``claims.claim_jobs``. The worker's part, and the figures, are in ``worker.fetching.fast_path``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django_graphile_worker.sql.claims import Claim, in_order
from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.statements import statement

if TYPE_CHECKING:

    class Rows(Protocol):
        """The rows of the result; each value is the bytes that the server sent."""

        @property
        def ntuples(self) -> int: ...

        def get_value(self, row_number: int, column_number: int) -> bytes | None: ...

    Execute = Callable[[Sequence[bytes | None]], Rows]

# The columns of the result, in order; the last is the seconds until the next job falls due.
COLUMNS = (
    "id",
    "task_id",
    "attempts",
    "payload",
    "priority",
    "run_at",
    "max_attempts",
    "key",
    "revision",
    "flags",
    "last_error",
    "created_at",
    "updated_at",
    "seconds_until_next",
)

# Parameters are numbered, as libpq requires: the statement does not pass through a driver. If a job was changed since
# the look-up, the update checks it again; the check is in a "case", so that the planner uses no index for it.
FAST_CLAIM = """/* gw:fast_claim */
with first as materialized (
    select job.ctid as tid, job.job_queue_id is not null as is_queued, job.run_at,
        job.task_id = any ($2::int[]) as is_known,
        job.run_at <= coalesce($5::timestamptz, now()) and job.task_id = any ($2::int[])
            and ($4::text[] is null or (job.flags ?| $4::text[]) is not true) as is_due
    from only :SCHEMA._private_jobs as job
    where job.is_available
    order by job.priority, job.run_at
    limit 50
), locked as materialized (
    select due.ctid as tid from only :SCHEMA._private_jobs as due
    where due.ctid = any (array(
        select first.tid from first
        where first.is_due and (
            select count(*) < 50 and count(*) filter (where is_due) <= $3::int
                and not bool_or(is_due and is_queued)
            from first)
    ))
    and case when due.is_available and due.job_queue_id is null
        then due.run_at <= coalesce($5::timestamptz, now()) end
    for update skip locked
)
update only :SCHEMA._private_jobs as job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select locked.tid from locked))
returning job.id, job.task_id, job.attempts, job.payload::text, job.priority,
    date_part('epoch', job.run_at), job.max_attempts, job.key, job.revision, job.flags::text,
    job.last_error, date_part('epoch', job.created_at),
    date_part('epoch', job.updated_at), (
        select least(
            date_part('epoch', min(first.run_at) filter (
                where first.is_known and first.run_at > coalesce($5::timestamptz, now())))
                - date_part('epoch', coalesce($5::timestamptz, clock_timestamp())),
            -- Nobody announces that a transaction let go of a row.
            case when count(*) filter (where first.is_due) > (select count(*) from locked) then 0.1 end)
        from first
    )"""

# Settings that leave a single plan, whatever the statistics are: the index in order. It is planned once. Numbers
# have all their digits, whatever the role says: times are read from them.
PLANNER = {
    "extra_float_digits": "1",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}


def fast_claim_statement(schema: str) -> str:
    return statement(FAST_CLAIM, schema)


class FastClaimed(NamedTuple):
    """The claimed jobs in the order of their start, and the seconds until the next job falls due."""

    claims: list[Claim]
    seconds_until_next: float | None


NOTHING = FastClaimed([], None)


def claim_few(
    execute: Execute,
    *,
    token: str,
    task_ids: bytes,
    max_jobs: int,
    forbidden_flags: Sequence[str] = (),
    now: datetime | None = None,
) -> FastClaimed:
    """Claim all due jobs, if they are at most ``max_jobs`` and the look-up finds all of them; else claim nothing."""
    rows = execute(
        (
            token.encode(),
            task_ids,
            b"%d" % max_jobs,
            text_array(forbidden_flags).encode() if forbidden_flags else None,
            now.isoformat().encode() if now else None,
        )
    )
    count = rows.ntuples
    if count == 0:
        return NOTHING
    found = [_claim(rows, number, token) for number in range(count)]
    if count > 1:
        found.sort(key=in_order)
    seconds = rows.get_value(0, _SECONDS)
    return FastClaimed(found, None if seconds is None else float(seconds))


_SECONDS = COLUMNS.index("seconds_until_next")


def _claim(rows: Rows, number: int, token: str) -> Claim:
    value: Callable[[int, int], Any] = rows.get_value
    (
        job_id,
        task_id,
        attempts,
        payload,
        priority,
        run_at,
        max_attempts,
        key,
        revision,
        flags,
        last_error,
        created_at,
        updated_at,
    ) = (value(number, column) for column in range(_SECONDS))
    return Claim(
        id=int(job_id),
        task_id=int(task_id),
        attempts=int(attempts),
        payload_text=payload.decode(),
        queue_id=None,
        priority=int(priority),
        run_at_epoch=float(run_at),
        max_attempts=int(max_attempts),
        key=None if key is None else key.decode(),
        revision=int(revision),
        flags_text=None if flags is None else flags.decode(),
        last_error=None if last_error is None else last_error.decode(),
        created_at_epoch=float(created_at),
        updated_at_epoch=float(updated_at),
        queue_name=None,
        token=token,
    )
