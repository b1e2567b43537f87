"""Sorting: due jobs of limited tasks are put into lanes, and parked until a claim of limited jobs takes them.

``pick_unsorted()`` locks the jobs. ``park()`` must follow in the same transaction.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.expiry import expiry_in
from django_graphile_worker.sql.codecs import boolean_array, int_array, nullable_array, nullable_text_array, text_array
from django_graphile_worker.sql.schema import statement

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
    most: int,
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
        "most": most,
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
