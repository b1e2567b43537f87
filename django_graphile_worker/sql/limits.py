"""Statements of limits per key: jobs are sorted into lanes, claimed, and free their places when they end.

``ddl/tables.sql`` describes the tables. ``pick_unsorted()`` locks due jobs of limited tasks, and ``park()`` puts them
into lanes in the same transaction: there they are parked until ``claim_limited()`` takes them. ``free_places()`` frees
the places of jobs that have ended, and ``close_keys()`` closes keys because a task asked for it. ``sweep()`` and the
functions below it repair what crashes and changes leave behind. The last functions are about the numbers that operators
gave to limits, which replace those of the code and of the settings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.job_flags import expiry_in
from django_graphile_worker.limits import LimitDefinition, LimitNumbers, Rate
from django_graphile_worker.sql.claims import Claim, claims_of_rows
from django_graphile_worker.sql.codecs import boolean_array, int_array, nullable_array, nullable_text_array, text_array
from django_graphile_worker.sql.statements import Cursor, statement
from django_graphile_worker.sql.workers import wake_workers

# The numbers of all limits, made by `parameters_of`.
PARAMETERS = """%(limit_names)s::text[], %(concurrencies)s::int[], %(rate_counts)s::int[],
    %(rate_windows)s::float8[], %(bursts)s::int[]"""


def parameters_of(definitions: Iterable[LimitDefinition]) -> dict[str, str]:
    """Return the parameters of ``PARAMETERS``: an array for each number, in the order of the names."""
    known = list(definitions)
    return {
        "limit_names": text_array([each.name for each in known]),
        "concurrencies": nullable_array([each.numbers.concurrency for each in known]),
        "rate_counts": nullable_array([each.numbers.rate_count for each in known]),
        "rate_windows": nullable_array([each.numbers.rate_seconds for each in known]),
        "bursts": nullable_array([each.numbers.burst for each in known]),
    }


PICK_UNSORTED = """/* gw:unsorted */
select job_id, job_task_id, job_payload, queue_id, job_flags, job_revision, summary
from :SCHEMA._private_unsorted_jobs(
    %(task_ids)s::int[], %(now)s::timestamptz, %(clock)s::timestamptz, %(most)s::int,
    %(idle_milliseconds)s::int, %(forbidden_flags)s::text[])"""

PARK = """/* gw:park */
select parked, ready from :SCHEMA._private_park_jobs(
    %(job_ids)s::bigint[], %(job_revisions)s::int[], %(job_lanes)s::int[], %(job_expiries)s::float8[],
    %(lane_tasks)s::int[], %(lane_queues)s::int[], %(lane_flags)s::text[],
    %(key_lanes)s::int[], %(key_names)s::text[], %(key_texts)s::text[], %(key_turns)s::boolean[])"""

# Seconds since 1970. A job that expires later never does.
LATEST_EXPIRY = 1e11


class UnsortedJob(NamedTuple):
    """A due job of a limited task, whose keys are not known yet."""

    id: int
    task_id: int
    payload_text: str
    queue_id: int | None
    flags_text: str | None
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsorted:
    """The jobs of one statement."""

    jobs: list[UnsortedJob]
    # Whether there may be more that are due.
    has_more: bool
    # Whether a claim that forbids these flags may find a limited job now, without the jobs above.
    has_ready: bool
    # When the next limited job falls due or the next key opens; None if nothing is known.
    seconds_until_next: float | None


class Lane(NamedTuple):
    """What the jobs of a lane have in common."""

    task_id: int
    queue_id: int
    # The flags as JSON, or None.
    flags_text: str | None
    # The name of the limit whose keys take turns, or None.
    turn_limit: str | None
    # Pairs of the name of a limit and a key text.
    keys: tuple[tuple[str, str], ...]


class SortedJob(NamedTuple):
    """A job, and the lane that it belongs to."""

    job: UnsortedJob
    lane: Lane


def pick_unsorted(
    cursor: Any,
    *,
    schema: str,
    task_ids: Collection[int],
    max_jobs: int,
    now: datetime | None = None,
    clock: datetime | None = None,
    idle_seconds: float | None = None,
    forbidden_flags: Sequence[str] = (),
) -> Unsorted:
    """Lock and return due jobs of these tasks that are not sorted.

    The server ends a transaction that has picked jobs and is idle for ``idle_seconds``.
    """
    parameters = {
        "task_ids": int_array(task_ids),
        "now": now,
        "clock": clock,
        "most": max_jobs,
        "idle_milliseconds": None if idle_seconds is None else round(idle_seconds * 1000),
        "forbidden_flags": list(forbidden_flags) or None,
    }
    cursor.execute(statement(PICK_UNSORTED, schema), parameters)
    rows = cursor.fetchall()
    summary = rows.pop()[-1]
    return Unsorted(jobs=[UnsortedJob(*row[:-1]) for row in rows], **summary)


class Parked(NamedTuple):
    """How many jobs were parked, and how many of their lanes are ready."""

    jobs: int
    ready_lanes: int


def _own_expiry(flags_text: str | None) -> float | None:
    """Return when the job expires by its own flag, in seconds since 1970, within the times of PostgreSQL."""
    epoch = None if flags_text is None else expiry_in(flags_text)
    if epoch is None:
        return None
    return math.inf if epoch > LATEST_EXPIRY else max(epoch, 0.0)


def park(cursor: Any, jobs: Sequence[SortedJob], *, schema: str) -> Parked:
    """Put the jobs into their lanes."""
    numbers = {lane: number for number, lane in enumerate(dict.fromkeys(each.lane for each in jobs), 1)}
    keys = [
        (number, name, text, name == lane.turn_limit) for lane, number in numbers.items() for name, text in lane.keys
    ]
    parameters = {
        "job_ids": int_array([each.job.id for each in jobs]),
        "job_revisions": int_array([each.job.revision for each in jobs]),
        "job_lanes": int_array([numbers[each.lane] for each in jobs]),
        "job_expiries": nullable_array([_own_expiry(each.job.flags_text) for each in jobs]),
        "lane_tasks": int_array([lane.task_id for lane in numbers]),
        "lane_queues": int_array([lane.queue_id for lane in numbers]),
        "lane_flags": nullable_text_array([lane.flags_text for lane in numbers]),
        "key_lanes": int_array([number for number, _, _, _ in keys]),
        "key_names": text_array([name for _, name, _, _ in keys]),
        "key_texts": text_array([text for _, _, text, _ in keys]),
        "key_turns": boolean_array([takes_turns for _, _, _, takes_turns in keys]),
    }
    cursor.execute(statement(PARK, schema), parameters)
    return Parked(*cursor.fetchone())


# The columns in the order of the fields of Claim, with the summary where a claim has its token.
CLAIM_LIMITED = f"""/* gw:claim-limited */
select job_id, job_task_id, job_attempts, job_payload, queue_id, job_priority, job_run_at, job_max_attempts,
    job_key, job_revision, job_flags, job_error, job_created_at, job_updated_at, name_of_queue, summary
from :SCHEMA._private_claim_limited(
    %(token)s::text, %(task_ids)s::int[], %(expiries)s::float8[], %(other_tasks)s::int[],
    %(max_jobs)s::int, %(forbidden_flags)s::text[], %(now)s::timestamptz, %(clock)s::timestamptz, {PARAMETERS})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedClaimed:
    """The claims of one statement, in the order in which the jobs start."""

    claims: list[Claim]
    # Whether there may be more limited jobs that can be claimed now.
    has_more: bool
    # When a key opens, or a lane is to be looked at again; None if nothing is known.
    seconds_until_next: float | None
    # Some of the jobs have expired by this time of the server, in seconds since 1970; None if none has. They are not
    # counted, and must not start.
    expired_at: float | None = None


def claim_limited(
    cursor: Any,
    *,
    schema: str,
    token: str,
    expiries: Mapping[int, float | None],
    other_tasks: Sequence[int] = (),
    numbers: Mapping[str, str],
    max_jobs: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    clock: datetime | None = None,
) -> LimitedClaimed:
    """Claim up to ``max_jobs`` limited jobs that may run now.

    ``expiries`` are the ids of the limited tasks, and after how many seconds the jobs of each expire. ``other_tasks``
    are the ids of the worker's other tasks: no job of a queue is claimed before one of theirs that comes first.
    ``numbers`` are the parameters of ``parameters_of``. ``clock`` is the time of windows in a test.
    """
    cursor.execute(
        statement(CLAIM_LIMITED, schema),
        {
            "token": token,
            "task_ids": int_array(expiries),
            "expiries": nullable_array(expiries.values()),
            "other_tasks": int_array(other_tasks),
            "max_jobs": max_jobs,
            "forbidden_flags": list(forbidden_flags) if forbidden_flags else None,
            "now": now,
            "clock": clock,
            **numbers,
        },
    )
    claims, summary = claims_of_rows(cursor.fetchall(), token)
    return LimitedClaimed(claims=claims, **summary)


FREE_PLACES = """/* gw:free-places */
select :SCHEMA._private_free_places(%(ids)s::bigint[], %(tokens)s::text[], %(queue_ids)s::int[])"""

CLOSE_KEYS = """/* gw:close-keys */
select :SCHEMA._private_close_keys(
    %(names)s::text[], %(texts)s::text[], %(seconds)s::float8[], %(clock)s::timestamptz)"""


class KeyClosing(NamedTuple):
    """A key that a task closes for some seconds."""

    limit_name: str
    text: str
    seconds: float


def free_places(cursor: Any, ended: Sequence[Claim], *, schema: str, queue_ids: Sequence[int] = ()) -> int:
    """Free the places of claims that have ended; return how many lanes have become ready, also lanes of free queues."""
    cursor.execute(
        statement(FREE_PLACES, schema),
        {
            "ids": int_array([claim.id for claim in ended]),
            "tokens": text_array([claim.token for claim in ended]),
            "queue_ids": int_array(queue_ids) if queue_ids else None,
        },
    )
    (woken,) = cursor.fetchone()
    return int(woken)


def close_keys(cursor: Any, closings: Sequence[KeyClosing], *, schema: str, clock: datetime | None = None) -> None:
    """Close keys, so that no job of them starts for some seconds."""
    parameters = {
        "names": text_array([each.limit_name for each in closings]),
        "texts": text_array([each.text for each in closings]),
        "seconds": nullable_array([each.seconds for each in closings]),
        "clock": clock,
    }
    cursor.execute(statement(CLOSE_KEYS, schema), parameters)


SWEEP = f"""/* gw:sweep-limits */
select woken, next_key, next_queue
from :SCHEMA._private_sweep_limits(
    %(after_key)s::bigint, %(after_queue)s::int, %(most)s::int, %(clock)s::timestamptz, {PARAMETERS})"""

UNPARK_TASKS = "/* gw:unpark-tasks */ select :SCHEMA._private_unpark_tasks(%(task_ids)s::int[], %(most)s::int)"

FORGET_LANES = """/* gw:forget-lanes */
select :SCHEMA._private_forget_lanes(%(seconds)s::float8, %(most)s::int)"""

FORGET_KEYS = """/* gw:forget-limit-keys */
select next_key from :SCHEMA._private_forget_keys(
    %(seconds)s::float8, %(most)s::int, %(after)s::bigint, %(limit_names)s::text[], %(rate_windows)s::float8[])"""

# How many keys, and how many queues, one sweep looks at.
MAX_SWEPT = 500
# How many jobs of tasks without limits one statement finds.
MAX_UNPARKED = 1_000
# How many lanes one statement deletes, and how many keys it looks at.
MAX_FORGOTTEN = 1_000


class Swept(NamedTuple):
    """How many lanes have become ready, and the key and the queue after which the next sweep continues."""

    woken: int = 0
    # None after the last.
    next_key: int | None = None
    next_queue: int | None = None


def sweep(
    cursor: Any, *, schema: str, numbers: Mapping[str, str], after: Swept, clock: datetime | None = None
) -> Swept:
    """Free the places of claims that have ended, and make lanes ready that wait for keys with room or free queues."""
    parameters = {
        "after_key": after.next_key,
        "after_queue": after.next_queue,
        "most": MAX_SWEPT,
        "clock": clock,
        **numbers,
    }
    cursor.execute(statement(SWEEP, schema), parameters)
    return Swept(*cursor.fetchone())


def unpark_tasks(cursor: Any, task_ids: Collection[int], *, schema: str) -> int:
    """End the parking of jobs of tasks that have no limits any more; return how many were found."""
    if not task_ids:
        return 0
    cursor.execute(statement(UNPARK_TASKS, schema), {"task_ids": int_array(task_ids), "most": MAX_UNPARKED})
    (found,) = cursor.fetchone()
    return int(found)


def forget_lanes(cursor: Any, *, schema: str, seconds: float) -> bool:
    """Delete some of the lanes that have been empty for so long; return True if there may be more."""
    cursor.execute(statement(FORGET_LANES, schema), {"seconds": seconds, "most": MAX_FORGOTTEN})
    (found,) = cursor.fetchone()
    return bool(found >= MAX_FORGOTTEN)


def forget_keys(
    cursor: Any, *, schema: str, numbers: Mapping[str, str], seconds: float, after: int | None
) -> int | None:
    """Delete those of the keys behind ``after`` that nothing needs; return the key to continue behind, or None."""
    parameters = {"seconds": seconds, "most": MAX_FORGOTTEN, "after": after}
    windows = {"limit_names": numbers["limit_names"], "rate_windows": numbers["rate_windows"]}
    cursor.execute(statement(FORGET_KEYS, schema), {**parameters, **windows})
    (next_key,) = cursor.fetchone()
    return None if next_key is None else int(next_key)


READ_OVERRIDES = """/* gw:limit_overrides */
    select limit_name, concurrency, rate_count, rate_seconds, burst, changed_by, changed_at
    from :SCHEMA._private_limit_overrides"""

# The event is committed with the numbers.
STORE_OVERRIDE = """/* gw:store_limit_override */
    with stored as (
    insert into :SCHEMA._private_limit_overrides as known
        (limit_name, concurrency, rate_count, rate_seconds, burst, changed_by, changed_at)
    values (%s, %s, %s, %s, %s, %s, pg_catalog.clock_timestamp())
    on conflict (limit_name) do update
    set concurrency = excluded.concurrency, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
        burst = excluded.burst, changed_by = excluded.changed_by, changed_at = excluded.changed_at
    returning known.limit_name, known.concurrency, known.rate_count, known.rate_seconds, known.burst, known.changed_by)
    select :SCHEMA._private_add_event('limit_changed', 1, stored.limit_name, jsonb_build_object(
        'name', stored.limit_name, 'concurrency', stored.concurrency, 'rate_count', stored.rate_count,
        'rate_seconds', stored.rate_seconds, 'burst', stored.burst, 'by', nullif(stored.changed_by, '')))
    from stored"""

DELETE_OVERRIDE = """/* gw:delete_limit_override */
    with deleted as (
        delete from only :SCHEMA._private_limit_overrides as known where known.limit_name = %s
        returning known.limit_name)
    select :SCHEMA._private_add_event('limit_reset', 1, deleted.limit_name, jsonb_build_object(
        'name', deleted.limit_name, 'by', nullif(%s::text, '')))
    from deleted"""


class LimitOverride(NamedTuple):
    """The numbers of a limit as an operator stored them."""

    numbers: LimitNumbers
    changed_by: str
    changed_at: datetime


def read_overrides(cursor: Cursor, *, schema: str) -> dict[str, LimitOverride]:
    """Return the stored numbers by the name of their limit."""
    cursor.execute(statement(READ_OVERRIDES, schema))
    return {
        name: LimitOverride(_numbers(concurrency, count, seconds, burst), changed_by, changed_at)
        for name, concurrency, count, seconds, burst, changed_by, changed_at in cursor.fetchall()
    }


def store_override(cursor: Cursor, name: str, numbers: LimitNumbers, *, changed_by: str, schema: str) -> None:
    """Store the numbers of a limit, in place of the numbers that were stored for it."""
    values = [name, numbers.concurrency, numbers.rate_count, numbers.rate_seconds, numbers.burst, changed_by]
    cursor.execute(statement(STORE_OVERRIDE, schema), values)


def delete_override(cursor: Cursor, name: str, *, changed_by: str, schema: str) -> bool:
    """Delete the stored numbers of a limit; return False if there were none."""
    cursor.execute(statement(DELETE_OVERRIDE, schema), [name, changed_by])
    return cursor.fetchone() is not None


# A claim looks at a key when it opens, and makes as many of the waiting lanes ready as may start a job by the new
# numbers. Keys are locked in the order in which claims lock them.
REOPEN_LIMIT = """/* gw:reopen_limit */
    with held as materialized (
        select known.id from :SCHEMA._private_limit_keys as known
        where known.limit_name = %s and exists (
            select from :SCHEMA._private_limit_lanes as lane where lane.state = 2 and lane.blocked_by = known.id)
        order by known.id for no key update)
    update only :SCHEMA._private_limit_keys as known set opens_at = pg_catalog.clock_timestamp()
    from held where known.id = held.id"""


def reopen_limit(cursor: Cursor, name: str, *, notify: bool, schema: str) -> None:
    """Let claims look again at the keys of a limit whose numbers have changed."""
    cursor.execute(statement(REOPEN_LIMIT, schema), [name])
    if notify and cursor.rowcount > 0:
        wake_workers(cursor, 1, schema=schema)


def _numbers(concurrency: int | None, count: int | None, seconds: int | None, burst: int | None) -> LimitNumbers:
    rate = None if count is None or seconds is None else Rate(count=count, seconds=seconds)
    return LimitNumbers(concurrency=concurrency, rate=rate, burst=burst if rate is not None else None)
