"""The keys at their limit: which lanes wait for them, since when, and which jobs have their places."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import statement

# How many of the lanes and jobs that wait for a key, and of the jobs that run, are looked at.
MAX_LANES = 200
MAX_COUNTED = 1_000
MAX_SHOWN = 5

# The index of blocked lanes begins with the key: each step goes to the next key, however many lanes wait for it.
_NEXT_KEY = """select lane.blocked_by from :SCHEMA._private_limit_lanes as lane
        where lane.state = 2 and lane.blocked_by > {after}
        order by lane.blocked_by, lane.task_id, lane.priority, lane.turn, lane.id limit 1"""

BLOCKING = f"""waiting (id, number) as (
    (select next.blocked_by, 1 from ({_NEXT_KEY.format(after="%(after)s::bigint")}) as next)
    union all
    select next.blocked_by, waiting.number + 1 from waiting
    cross join lateral ({_NEXT_KEY.format(after="waiting.id")}) as next
    where waiting.number < %(limit)s::int)"""

# A key that is looked up by its text may have no jobs that wait.
NAMED = """waiting (id, number) as (
    select known.id, 1 from :SCHEMA._private_limit_keys as known
    where known.limit_name = any (%(names)s::text[]) and known.key_text = %(text)s limit %(limit)s)"""

_KEYS = f"""
select known.id, known.limit_name, known.key_text,
    case when known.closed_until > now() then {readable("known.closed_until")} end,
    {readable("known.opens_at")}, lanes.number, {readable("lanes.blocked_at")}, jobs.number, {readable("jobs.run_at")},
    lanes.tasks::text, running.number, running.jobs::text
from waiting
join :SCHEMA._private_limit_keys as known on known.id = waiting.id
cross join lateral (
    select count(*) as number, min(lane.blocked_at) as blocked_at, array_agg(lane.id) as ids,
        json_agg(distinct lane.task_identifier) as tasks
    from (
        select lane.id, lane.blocked_at, (
            select task.identifier from :SCHEMA._private_tasks as task where task.id = lane.task_id) as task_identifier
        from :SCHEMA._private_limit_lanes as lane
        where lane.state = 2 and lane.blocked_by = known.id
        order by lane.task_id, lane.priority, lane.turn, lane.id limit {MAX_LANES}) as lane) as lanes
cross join lateral (
    select count(*) as number, min(job.run_at) as run_at
    from (
        select parked.run_at from unnest(lanes.ids) as lane(id)
        cross join lateral (
            select parked.run_at from :SCHEMA._private_limited_jobs as parked where parked.lane_id = lane.id
            order by parked.priority, parked.run_at, parked.job_id limit {MAX_COUNTED + 1}) as parked
        limit {MAX_COUNTED + 1}) as job) as jobs
cross join lateral (
    -- A place counts only while its job is claimed with the same token.
    select count(*) as number, json_agg(json_build_object(
        'id', place.job_id, 'task', place.task_identifier, 'since', extract(epoch from place.taken_at))
        order by place.taken_at) filter (where place.place <= {MAX_SHOWN}) as jobs
    from (
        select place.job_id, place.taken_at, row_number() over () as place, (
            select task.identifier from :SCHEMA._private_tasks as task where task.id = job.task_id) as task_identifier
        from :SCHEMA._private_limit_places as place
        join :SCHEMA._private_jobs as job on job.id = place.job_id and job.locked_by = place.token
        where place.key_id = known.id limit {MAX_COUNTED + 1}) as place) as running
order by waiting.id"""

WAITING_KEYS = f"/* gw:limited-keys */ with recursive {BLOCKING}{_KEYS}"
NAMED_KEYS = f"/* gw:limited-key */ with {NAMED}{_KEYS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that has a place of a key, and since when, in seconds since 1970."""

    id: int
    task: str | None
    since: float


class LimitedKey(NamedTuple):
    """A key; numbers are at most one more than what is looked at."""

    id: int
    limit_name: str
    key_text: str
    # A task has closed it until then.
    closed_until: Any
    # When the window of its rate allows the next start.
    opens_at: Any
    lanes: int
    # Since when a lane waits for it.
    blocked_at: Any
    waiting: int
    # The due time of the oldest job that waits.
    oldest_run_at: Any
    tasks_text: str | None
    running: int
    running_text: str | None

    @property
    def tasks(self) -> list[str]:
        """The tasks whose jobs wait."""
        return [task for task in json.loads(self.tasks_text or "[]") if task]

    @property
    def running_jobs(self) -> list[RunningJob]:
        """Some of the jobs that run."""
        return [RunningJob(**each) for each in json.loads(self.running_text or "[]")]


def waiting_keys(cursor: Any, *, schema: str, limit: int, after: int = 0) -> list[LimitedKey]:
    """Return the keys that jobs wait for, in the order of their ids, after an id."""
    cursor.execute(statement(WAITING_KEYS, schema), {"after": after, "limit": limit})
    return [LimitedKey._make(row) for row in cursor.fetchall()]


def named_keys(cursor: Any, text: str, names: Sequence[str], *, schema: str, limit: int) -> list[LimitedKey]:
    """Return the keys with this text, of limits with these names."""
    cursor.execute(statement(NAMED_KEYS, schema), {"text": text, "names": list(names), "limit": limit})
    return [LimitedKey._make(row) for row in cursor.fetchall()]
