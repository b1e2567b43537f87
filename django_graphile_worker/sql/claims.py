"""Claims: the jobs that a worker has taken to run them.

A claim is identified by the job's id and its ``token``, the whole ``locked_by``: the worker's id and the number of the
claim statement. It never repeats. ``sql.releases`` ends claims.

``claim_jobs()`` claims any number of jobs. ``claim_few()`` is for the few jobs that an idle worker was notified of,
where every hundredth of a millisecond counts. Mostly there are few jobs in all, and all due jobs can run at once. Then
one look-up and one update are the whole claim. If there is more to decide (a queue, more due jobs than free slots, many
other jobs), its statement claims nothing, and the worker uses ``claim_jobs()``. The worker's part, and the figures, are
in ``worker.fetching.claimer``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.codecs import flags_from, int_array, text_array, time_reader
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.sql.workers import worker_of

# The columns in the order of the fields of Claim, with the summary where a claim has its token.
CLAIM_JOBS = """/* gw:claim */
select job_id, job_task_id, job_attempts, job_payload, queue_id, job_priority, job_run_at, job_max_attempts,
    job_key, job_revision, job_flags, job_error, job_created_at, job_updated_at, name_of_queue, summary
from :SCHEMA._private_claim_jobs(
    %(token)s::text, %(task_ids)s::int[], %(max_jobs)s::int, %(max_per_queue)s::int, %(max_bytes)s::bigint,
    %(forbidden_flags)s::text[], %(limited_tasks)s::int[], %(now)s::timestamptz, %(behind)s::json,
    %(freed_queues)s::int[])"""

UNLIMITED_BYTES = 2**62


class Claim(NamedTuple):
    """A claimed job, as its row came: nothing in it is decoded yet.

    A payload or a date that Python cannot read must fail its own job and no other, so the slot that runs the job
    decodes it.
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
    # The value of locked_by while this claim stands: the worker's id and the number of the claim statement.
    token: str

    @property
    def worker_id(self) -> str:
        return worker_of(self.token)

    def to_job(self, *, task_identifier: str, payload: Any, locked_at_epoch: float) -> Job:
        """Return the job as tasks and signals see it."""
        read = time_reader()
        return Job.of_checked_values(
            {
                "id": self.id,
                "task_identifier": task_identifier,
                "payload": payload,
                "queue_name": self.queue_name,
                "priority": self.priority,
                "run_at": read(self.run_at_epoch),
                "attempts": self.attempts,
                "max_attempts": self.max_attempts,
                "last_error": self.last_error,
                "created_at": read(self.created_at_epoch),
                "updated_at": read(self.updated_at_epoch),
                "key": self.key,
                "locked_at": read(locked_at_epoch),
                "locked_by": self.worker_id,
                "revision": self.revision,
                "flags": flags_from(self.flags_text),
            }
        )


# By position, as access by name costs twice as much.
_id, _token = map(itemgetter, map(Claim._fields.index, ("id", "token")))
_SUMMARY = Claim._fields.index("token")
_place_in_row = itemgetter(*map(Claim._fields.index, ("priority", "run_at_epoch", "id")))


class Continuation(NamedTuple):
    """Where a claim goes on."""

    # Behind which job of a priority, and behind which of those in queues; the last is where the claim has stopped.
    places: Sequence[Mapping[str, Any]] = ()
    # Behind which queue steps over held queues go on; 0 for the first. None: no steps, however many queues are held.
    queue: int | None = None
    # On priorities below this one that have no place, a claim goes on at this due time, in the server's notation.
    seen_priority: int = -32768
    seen_until: str | None = None
    # Whether the claims of a pass look behind the first jobs in queues.
    sees_queues: bool = False


# The start of the backlog.
START = Continuation(queue=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The claims of one statement, in the order in which the jobs start, and when the next job falls due."""

    claims: list[Claim]
    # None if no job is scheduled, or if the claim has not read everything.
    seconds_until_next: float | None
    # Whether there may be more jobs that can be claimed now.
    has_more: bool
    # Whether it has ended before it saw everything, though it had room for more jobs: the next claim goes on behind.
    is_cut: bool = False
    # Whether other transactions have locked jobs or queues. Nobody announces that they let go of them.
    is_waiting: bool = False
    # Where the next claim can go on.
    continuation: Continuation = START
    # Those of the freed queues that have a due job, of which none was claimed.
    freed_queues: Sequence[int] = ()
    # How long the server took.
    seconds: float = 0.0
    # Whether a slot must take a waiting job before more can be claimed.
    waits_for_slot: bool = False


def claim_jobs(
    cursor: Any,
    *,
    schema: str,
    token: str,
    task_ids: Sequence[int],
    max_jobs: int,
    max_per_queue: int,
    max_bytes: int = UNLIMITED_BYTES,
    forbidden_flags: Sequence[str] | None = None,
    limited_tasks: Collection[int] | None = None,
    now: datetime | None = None,
    behind: Continuation = START,
    freed_queues: Collection[int] = (),
) -> Claimed:
    """Claim up to ``max_jobs`` runnable jobs, of each queue up to ``max_per_queue``.

    Their payloads have at most ``max_bytes`` together, but for the first job. ``limited_tasks`` are the ids of the
    worker's limited tasks: no job of a queue is claimed before a limited job that comes first. ``behind`` is the
    continuation of an earlier claim; by default the claim begins at the start of the backlog. Jobs of ``freed_queues``
    are found wherever they stand.
    """
    cursor.execute(
        statement(CLAIM_JOBS, schema),
        {
            "token": token,
            "task_ids": _known(tuple(task_ids)),
            "max_jobs": max_jobs,
            "max_per_queue": max_per_queue,
            "max_bytes": max_bytes,
            "forbidden_flags": list(forbidden_flags) if forbidden_flags else None,
            "limited_tasks": int_array(limited_tasks) if limited_tasks else None,
            "now": now,
            "behind": json.dumps(behind._asdict()),
            "freed_queues": int_array(freed_queues) if freed_queues else None,
        },
    )
    claims, summary = claims_of_rows(cursor.fetchall(), token)
    return Claimed(
        claims=claims,
        seconds_until_next=summary["seconds_until_next"],
        has_more=summary["has_more"],
        is_cut=summary["is_cut"],
        is_waiting=summary["is_waiting"],
        continuation=Continuation(**summary["continuation"]),
        freed_queues=summary["freed_queues"],
        seconds=summary["seconds"],
    )


def claims_of_rows(rows: list[tuple[Any, ...]], token: str) -> tuple[list[Claim], dict[str, Any]]:
    """Return the claims and the summary in the rows of a claim statement."""
    summary = rows.pop()[_SUMMARY]
    return _in_order(rows, token), summary


@lru_cache(maxsize=8)
def _known(task_ids: tuple[int, ...]) -> str:
    """Return the parameter that names the tasks, written once: a list takes longer to convert than all other values."""
    return int_array(task_ids)


def _in_order(rows: list[tuple[Any, ...]], token: str) -> list[Claim]:
    """Return the rows of the statement as claims, in the order in which the jobs start.

    The constructor of tuples and positions instead of names, because this runs for every job.
    """
    rows.sort(key=_place_in_row)
    new = tuple.__new__
    return [new(Claim, (*row[:_SUMMARY], token)) for row in rows]


def group_by_token(claims: Iterable[Claim]) -> dict[str, list[int]]:
    """Return the ids of the jobs by the token of their claim. Mostly there are few tokens: one for each statement."""
    ids_by_token: dict[str, list[int]] = {}
    for token, group in groupby(claims, _token):
        ids_by_token.setdefault(token, []).extend(map(_id, group))
    return ids_by_token


def in_order(claim: Claim) -> tuple[int, float, int]:
    """Return the sort key of the order in which jobs start."""
    return (claim.priority, claim.run_at_epoch, claim.id)


if TYPE_CHECKING:

    class Rows(Protocol):
        """The rows of the result; each value is the bytes that the server sent."""

        @property
        def ntuples(self) -> int: ...

        def get_value(self, row_number: int, column_number: int) -> bytes | None: ...

    Execute = Callable[[Sequence[bytes | None]], Rows]

# The columns of the result, in order; the last is the seconds until the next job falls due.
FAST_COLUMNS = (
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
FAST_PLANNER = {
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


NOTHING_CLAIMED = FastClaimed([], None)


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
        return NOTHING_CLAIMED
    found = [_fast_claim(rows, number, token) for number in range(count)]
    if count > 1:
        found.sort(key=in_order)
    seconds = rows.get_value(0, _SECONDS)
    return FastClaimed(found, None if seconds is None else float(seconds))


_SECONDS = FAST_COLUMNS.index("seconds_until_next")


def _fast_claim(rows: Rows, number: int, token: str) -> Claim:
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
