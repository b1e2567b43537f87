"""Claims: the jobs that a worker has taken to run them.

A claim is identified by the job's id and its ``token``, the whole ``locked_by``: the worker's id and the number of the
claim statement. It never repeats. ``sql.releases`` ends claims.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.codecs import flags_from, int_array, int_multirange, time_reader
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import worker_of

# The columns in the order of the fields of Claim, with the summary where a claim has its token.
CLAIM_JOBS = """/* gw:claim */
select job_id, job_task_id, job_attempts, job_payload, queue_id, job_priority, job_run_at, job_max_attempts,
    job_key, job_revision, job_flags, job_error, job_created_at, job_updated_at, name_of_queue, summary
from :SCHEMA._private_claim_jobs_v6(
    %(token)s::text, %(task_ids)s::int[], %(task_ranges)s::int4multirange,
    %(max_jobs)s::int, %(max_queues)s::int, %(max_per_queue)s::int,
    %(free_slots)s::int, %(max_bytes)s::bigint, %(max_steps)s::int,
    %(forbidden_flags)s::text[], %(now)s::timestamptz,
    %(floor_priorities)s::int[], %(floor_run_ats)s::float8[], %(floor_ids)s::bigint[],
    %(floor_queued_run_ats)s::float8[], %(floor_ends)s::float8[], %(floor_end_ids)s::bigint[],
    %(floor_queued_ends)s::float8[], %(floor_queued_end_ids)s::bigint[], %(walk)s::json,
    %(limited_tasks)s::int[], %(limited_shapes)s::int[])"""

# How many steps a claim may walk over held queues and forbidden flags: they take some milliseconds.
MAX_STEPS = 300
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


class Floor(NamedTuple):
    """A place on a priority before which a claim does not look; the times are seconds since the epoch."""

    priority: int
    # Of jobs without a queue: those that come after a due time and an id.
    run_at: float
    id: int
    # Of jobs in queues: those that are due from this time on.
    queued_run_at: float


class End(NamedTuple):
    """A place on a priority up to which a claim looks; the times are seconds since the epoch."""

    priority: int
    run_at: float
    id: int
    queued_run_at: float
    queued_id: int


class Claimed(Frozen):
    """The claims of one statement, in the order in which the jobs start, and when the next job falls due."""

    claims: list[Claim]
    # None if no job is scheduled, or if the claim has not read everything.
    seconds_until_next: float | None
    # Whether there may be more jobs that can be claimed now.
    has_more: bool
    # Whether the payloads are too large to claim as many jobs as requested.
    is_heavy: bool = False
    # Whether jobs may be left that only a walk finds, because the claim was not allowed to walk.
    is_hidden: bool = False
    # Where the next claim continues the walk over held queues and forbidden flags.
    walk: Any = None
    # The priorities on which the claim looked, and the due time of the first job in a queue that it found on each.
    levels: Sequence[int] = ()
    queued_floors: Sequence[float | str | None] = ()
    # The time up to which it looked, in seconds since the epoch by the server's clock.
    looked_at: float = 0.0
    # How many pages of the table it read before its jobs: many, if the entries of deleted jobs are in the way. None if
    # the server does not count them (track_counts).
    pages: int | None = 0


def claim_jobs(
    cursor: Any,
    *,
    schema: str,
    token: str,
    task_ids: Sequence[int],
    max_jobs: int,
    max_queues: int,
    max_per_queue: int,
    free_slots: int = 0,
    max_bytes: int = UNLIMITED_BYTES,
    max_steps: int = MAX_STEPS,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    floors: Sequence[Floor] = (),
    ends: Sequence[End] = (),
    walk: Any = None,
    limited_shapes: Mapping[int, int] | None = None,
) -> Claimed:
    """Claim up to ``max_jobs`` runnable jobs, of at most ``max_queues`` queues up to ``max_per_queue`` jobs each.

    The payloads of jobs beyond ``free_slots`` have at most ``max_bytes`` together. ``floors``, in the order of
    their priorities, spare a claim the entries of what earlier claims took. With ``ends``, one for each floor, the
    claim looks on the priorities of the floors only, at jobs up to the ends; the id of a floor is that of jobs in
    queues, too. ``walk`` is what the last claim returned. ``limited_shapes`` are the ids of the worker's limited tasks
    with the number of their limits: no job of a queue is claimed before a limited job that comes first.
    """
    cursor.execute(
        statement(CLAIM_JOBS, schema),
        {
            "token": token,
            **_known(tuple(task_ids)),
            "max_jobs": max_jobs,
            "max_queues": max_queues,
            "max_per_queue": max_per_queue,
            "free_slots": free_slots,
            "max_bytes": max_bytes,
            "max_steps": max_steps,
            "forbidden_flags": list(forbidden_flags) if forbidden_flags else None,
            "now": now,
            **_floors(floors, ends),
            "walk": None if walk is None else json.dumps(walk),
            "limited_tasks": int_array(limited_shapes) if limited_shapes else None,
            "limited_shapes": int_array(limited_shapes.values()) if limited_shapes else None,
        },
    )
    claims, summary = claims_of_rows(cursor.fetchall(), token)
    return Claimed(claims=claims, **summary)


def claims_of_rows(rows: list[tuple[Any, ...]], token: str) -> tuple[list[Claim], dict[str, Any]]:
    """Return the claims and the summary in the rows of a claim statement."""
    summary = rows.pop()[_SUMMARY]
    return _in_order(rows, token), summary


@lru_cache(maxsize=8)
def _known(task_ids: tuple[int, ...]) -> dict[str, str]:
    """Return the parameters that name the tasks, written once: lists take longer to convert than all other values."""
    return {"task_ids": int_array(task_ids), "task_ranges": int_multirange(task_ids)}


def _floors(floors: Sequence[Floor], ends: Sequence[End]) -> dict[str, str | None]:
    return {
        "floor_priorities": _array([floor.priority for floor in floors]),
        "floor_run_ats": _array([floor.run_at for floor in floors]),
        "floor_ids": _array([floor.id for floor in floors]),
        "floor_queued_run_ats": _array([floor.queued_run_at for floor in floors]),
        "floor_ends": _array([end.run_at for end in ends]),
        "floor_end_ids": _array([end.id for end in ends]),
        "floor_queued_ends": _array([end.queued_run_at for end in ends]),
        "floor_queued_end_ids": _array([end.queued_id for end in ends]),
    }


def _array(numbers: Sequence[float]) -> str | None:
    return "{" + ",".join(map(str, numbers)) + "}" if numbers else None


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
