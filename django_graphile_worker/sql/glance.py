"""Taking the few jobs that an idle worker is told of, where every hundredth of a millisecond counts.

Mostly there are few jobs in all, and those that are due can all be run at once. Then
one look at them and one update is the whole claim. Whenever there is more to weigh up
(a queue, more jobs than free slots, a crowd of others) this takes nothing, and
``claims.claim_jobs`` is the one to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django_graphile_worker.sql.arrays import text_array
from django_graphile_worker.sql.claims import Claim, in_order
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from typing import Protocol

    class Rows(Protocol):
        """What comes back, value by value, as the server wrote it."""

        @property
        def ntuples(self) -> int: ...

        def get_value(self, row_number: int, column_number: int) -> bytes | None: ...

    Execute = Callable[[Sequence[bytes | None]], Rows]

# Parameters are numbered: this goes to the server without a driver in between.
GLANCE = """/* gw:glance */
with first as materialized (
    select job.ctid as tid, job.job_queue_id is not null as is_queued,
        job.run_at <= coalesce($5::timestamptz, now()) and job.task_id = any ($2::int[])
            and ($4::text[] is null or (job.flags ?| $4::text[]) is not true) as is_due
    from :SCHEMA._private_jobs as job
    where job.is_available
    order by job.priority, job.run_at
    limit 50
)
update :SCHEMA._private_jobs as job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(
    select due.ctid from :SCHEMA._private_jobs as due
    where due.is_available and due.ctid = any (array(
        select first.tid from first
        where first.is_due and (
            select count(*) < 50 and count(*) filter (where is_due) <= $3::int and not bool_or(is_due and is_queued)
            from first)
    ))
    for update skip locked
))
returning job.id, job.task_id, job.attempts, job.payload::text, job.priority, date_part('epoch', job.run_at),
    job.max_attempts, job.key, job.revision, job.flags::text, job.last_error,
    date_part('epoch', job.created_at), date_part('epoch', job.updated_at)"""

# One right plan, whatever the statistics say: the index in order. Planned once.
PLANNER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}


def glance_statement(schema: str) -> str:
    return statement(GLANCE, schema)


def take_few(
    execute: Execute,
    *,
    holder: str,
    task_ids: bytes,
    max_jobs: int,
    forbidden_flags: Sequence[str] = (),
    now: datetime | None = None,
) -> list[Claim]:
    """Everything that is due, first things first, if that is at most ``max_jobs`` and easily seen; else nothing."""
    rows = execute(
        (
            holder.encode(),
            task_ids,
            b"%d" % max_jobs,
            text_array(forbidden_flags).encode() if forbidden_flags else None,
            now.isoformat().encode() if now else None,
        )
    )
    found = [_claim(rows, number, holder) for number in range(rows.ntuples)]
    if len(found) > 1:
        found.sort(key=in_order)
    return found


def _claim(rows: Rows, number: int, holder: str) -> Claim:
    value: Callable[[int, int], Any] = rows.get_value
    key, flags, error = value(number, 7), value(number, 9), value(number, 10)
    return Claim(
        int(value(number, 0)),
        int(value(number, 1)),
        int(value(number, 2)),
        value(number, 3).decode(),
        None,
        int(value(number, 4)),
        float(value(number, 5)),
        int(value(number, 6)),
        None if key is None else key.decode(),
        int(value(number, 8)),
        None if flags is None else flags.decode(),
        None if error is None else error.decode(),
        float(value(number, 11)),
        float(value(number, 12)),
        None,
        holder,
    )
