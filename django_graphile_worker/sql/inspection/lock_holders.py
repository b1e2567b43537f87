"""Who holds jobs and queues: registered workers, and those that never said who they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import is_lease_over

MOST_WORKERS = 500
MOST_LOCKS = 20_000

HOLDERS = f"""/* gw:holders */
with job_lock as materialized (
    select :SCHEMA._private_worker_of(locked_by) as worker_id, locked_at
    from :SCHEMA._private_jobs where locked_at is not null
        and (%(names)s::text[] is null or :SCHEMA._private_worker_of(locked_by) = any (%(names)s::text[]))
    order by locked_at limit %(most_locks)s),
queue_lock as materialized (
    select :SCHEMA._private_worker_of(locked_by) as worker_id, locked_at
    from :SCHEMA._private_job_queues where locked_at is not null
        and (%(names)s::text[] is null or :SCHEMA._private_worker_of(locked_by) = any (%(names)s::text[]))
    order by locked_at limit %(most_locks)s),
lock as (
    select worker_id, count(*) filter (where is_job) as jobs, count(*) filter (where not is_job) as queues,
        min(locked_at) as oldest_lock
    from (select worker_id, locked_at, true as is_job from job_lock
        union all select worker_id, locked_at, false from queue_lock) as each
    group by worker_id),
worker as (
    select id, started_at, last_heartbeat_at, metadata, timeout_seconds from :SCHEMA._private_workers
    where %(names)s::text[] is null or id = any (%(names)s::text[])
    order by last_heartbeat_at desc limit {MOST_WORKERS})
select coalesce(worker.id, lock.worker_id, ''), {readable("worker.started_at")}, {readable("worker.last_heartbeat_at")},
    extract(epoch from now() - worker.last_heartbeat_at)::float8, worker.metadata::text,
    coalesce(lock.jobs, 0), coalesce(lock.queues, 0), {readable("lock.oldest_lock")},
    extract(epoch from now() - lock.oldest_lock)::float8, worker.timeout_seconds
from worker full join lock on lock.worker_id = worker.id
order by worker.started_at desc nulls last, 1
limit {2 * MOST_WORKERS}"""


class Holder(NamedTuple):
    """A worker, or a name that locks are held under; without `started_at` it is only that."""

    id: str
    started_at: Any
    last_heartbeat_at: Any
    silent_seconds: float | None
    metadata_text: str | None
    jobs: int
    queues: int
    oldest_lock: Any
    oldest_lock_seconds: float | None
    # After which silence it promised to be dead; None where it promised nothing.
    timeout_seconds: float | None = None

    @property
    def is_registered(self) -> bool:
        return self.started_at is not None

    @property
    def metadata(self) -> dict[str, Any]:
        """What a worker says of itself. Anybody may have written it: whatever is not an object tells nothing."""
        metadata = json.loads(self.metadata_text) if self.metadata_text else None
        return metadata if isinstance(metadata, dict) else {}

    def is_alive(self, timeout: float) -> bool:
        """Has it beaten within what it promised, or within ``timeout`` seconds where it promised nothing?"""
        promised = timeout if self.timeout_seconds is None else self.timeout_seconds
        return self.silent_seconds is not None and not is_lease_over(self.silent_seconds, promised)


def holders(
    cursor: Any, names: Sequence[str] | None = None, *, schema: str, most_locks: int = MOST_LOCKS
) -> list[Holder]:
    """Everybody who is registered or holds something; or of these only the named."""
    named = None if names is None else list(names)
    cursor.execute(statement(HOLDERS, schema), {"names": named, "most_locks": most_locks})
    return [Holder._make(row) for row in cursor.fetchall()]


HELD = f"""/* gw:held */
select 'job', job.id::text, task.identifier, {readable("job.locked_at")}
from :SCHEMA._private_jobs as job left join :SCHEMA._private_tasks as task on task.id = job.task_id
where job.locked_at is not null and :SCHEMA._private_worker_of(job.locked_by) = %(holder)s
union all
select 'queue', queue.id::text, queue.queue_name, {readable("queue.locked_at")}
from :SCHEMA._private_job_queues as queue
where queue.locked_at is not null and :SCHEMA._private_worker_of(queue.locked_by) = %(holder)s
limit %(most)s"""


class Held(NamedTuple):
    """A job (with its task) or a queue in somebody's hand."""

    kind: str
    id: str
    name: str
    since: Any


def held_by(cursor: Any, holder: str, *, schema: str, most: int = 200) -> list[Held]:
    """What somebody holds."""
    cursor.execute(statement(HELD, schema), {"holder": holder, "most": most})
    return [Held._make(row) for row in cursor.fetchall()]
