"""The roster: workers, the strangers beside them, queues, and who holds what. Reads only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.reading import within_python_years as readable
from django_graphile_worker.sql.schema import statement

# The depth of a queue is counted up to here.
DEPTH_CAP = 1000

WORKERS = f"""/* gw:list-workers */
with held as (
    select holder.locked_by, sum(holder.job) as jobs, sum(1 - holder.job) as queues, min(holder.locked_at) as since
    from (
        select job.locked_by, job.locked_at, 1 as job
        from :SCHEMA._private_jobs as job where job.locked_at is not null
        union all
        select queue.locked_by, queue.locked_at, 0
        from :SCHEMA._private_job_queues as queue where queue.locked_at is not null
    ) as holder
    group by holder.locked_by
)
select coalesce(worker.id, held.locked_by, ''), worker.id is not null,
    coalesce(worker.last_heartbeat_at >= now() - interval '1 second' * %(timeout)s::float8, false),
    {readable("worker.started_at")}, {readable("worker.last_heartbeat_at")}, {readable("held.since")},
    coalesce(held.jobs, 0)::bigint, coalesce(held.queues, 0)::bigint, worker.metadata::text
from :SCHEMA._private_workers as worker
full join held on held.locked_by = worker.id
where %(worker_ids)s::text[] is null or coalesce(worker.id, held.locked_by) = any (%(worker_ids)s::text[])
order by worker.id is null, worker.started_at, coalesce(worker.id, held.locked_by)"""


class ListedWorker(NamedTuple):
    """A worker of the register, or somebody who holds jobs without being in it."""

    id: str
    is_registered: bool
    has_beaten_lately: bool
    started_at: datetime | None
    last_heartbeat_at: datetime | None
    holds_since: datetime | None
    jobs: int
    queues: int
    metadata: dict[str, Any]


def list_workers(
    cursor: Cursor, worker_ids: Sequence[str] | None = None, *, timeout: float, schema: str
) -> list[ListedWorker]:
    """Everybody in the register, and everybody who holds something; or of these only the named."""
    named = None if worker_ids is None else list(worker_ids)
    cursor.execute(statement(WORKERS, schema), {"timeout": timeout, "worker_ids": named})
    return [ListedWorker._make([*row[:-1], _metadata(row[-1])]) for row in cursor.fetchall()]


def _metadata(text: str | None) -> dict[str, Any]:
    """Anybody may have written the row: whatever is not an object tells nothing."""
    metadata = json.loads(text) if text else None
    return metadata if isinstance(metadata, dict) else {}


# Held queues first: those are what one looks for. A depth is counted task by task, as its index goes.
QUEUES = f"""/* gw:list-queues */
with chosen as materialized (
    (select queue.* from :SCHEMA._private_job_queues as queue
        where queue.locked_at is not null and (%(name)s::text is null or queue.queue_name = %(name)s::text)
        order by queue.locked_at limit %(limit)s)
    union all
    (select queue.* from :SCHEMA._private_job_queues as queue
        where not %(held_only)s and queue.locked_at is null
            and (%(name)s::text is null or queue.queue_name = %(name)s::text)
        order by queue.queue_name limit %(limit)s)
)
select chosen.queue_name, chosen.locked_by, {readable("chosen.locked_at")}, depth.jobs, {readable("depth.earliest")}
from (select * from chosen order by locked_at nulls last, queue_name limit %(limit)s) as chosen
cross join lateral (
    select count(*) as jobs, min(found.run_at) as earliest
    from (
        select job.run_at
        from :SCHEMA._private_tasks as task
        cross join lateral (
            select job.run_at from :SCHEMA._private_jobs as job
            where job.task_id = task.id and job.job_queue_id = chosen.id and job.is_available
            order by job.priority, job.run_at limit %(cap)s
        ) as job
        limit %(cap)s
    ) as found
) as depth
order by chosen.locked_at nulls last, chosen.queue_name"""


class ListedQueue(NamedTuple):
    """A queue, who has it, and how many jobs wait in it (`is_capped`: at least)."""

    queue_name: str
    locked_by: str | None
    locked_at: datetime | None
    waiting: int
    is_capped: bool
    earliest_run_at: datetime | None


def list_queues(
    cursor: Cursor, *, limit: int, schema: str, name: str | None = None, held_only: bool = False, cap: int = DEPTH_CAP
) -> list[ListedQueue]:
    """Queues, the held ones first, with the number of jobs that wait in each."""
    parameters = {"limit": limit, "name": name, "held_only": held_only, "cap": cap + 1}
    cursor.execute(statement(QUEUES, schema), parameters)
    return [
        ListedQueue(queue_name, locked_by, locked_at, min(jobs, cap), jobs > cap, earliest)
        for queue_name, locked_by, locked_at, jobs, earliest in cursor.fetchall()
    ]
