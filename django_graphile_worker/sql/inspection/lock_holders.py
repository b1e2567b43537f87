"""Workers and what they hold: registered workers, other holders of locks, and their jobs and queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import json_object
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection.job_list import Subquery
from django_graphile_worker.sql.jobs import IS_LOCKED
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.sql.workers import RUST_TIMEOUT, WORKER_PREFIX, is_lease_over, locked_by_worker
from django_graphile_worker.versions import release_of

MAX_WORKERS = 500
MAX_LOCKS = 20_000

HOLDERS = f"""/* gw:holders */
with job_lock as materialized (
    select :SCHEMA._private_worker_of(locked_by) as worker_id, locked_at
    from :SCHEMA._private_jobs where locked_at is not null
        and (%(names)s::text[] is null or :SCHEMA._private_worker_of(locked_by) = any (%(names)s::text[]))
    order by locked_at limit %(most_locks)s),
queue_lock as materialized (
    select :SCHEMA._private_worker_of(locked_by) as worker_id, locked_at
    -- The locks of pauses have no end.
    from :SCHEMA._private_job_queues where locked_at < 'infinity'
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
    order by last_heartbeat_at desc limit {MAX_WORKERS})
select coalesce(worker.id, lock.worker_id, ''), {readable("worker.started_at")}, {readable("worker.last_heartbeat_at")},
    extract(epoch from now() - worker.last_heartbeat_at)::float8, worker.metadata::text,
    coalesce(lock.jobs, 0), coalesce(lock.queues, 0), {readable("lock.oldest_lock")},
    extract(epoch from now() - lock.oldest_lock)::float8, worker.timeout_seconds
from worker full join lock on lock.worker_id = worker.id
order by worker.started_at desc nulls last, 1
limit {2 * MAX_WORKERS}"""


class Holder(NamedTuple):
    """A registered worker, or (without ``started_at``) a name in ``locked_by`` that no registered worker has."""

    id: str
    started_at: Any
    last_heartbeat_at: Any
    silent_seconds: float | None
    metadata_text: str | None
    jobs: int
    queues: int
    oldest_lock: Any
    oldest_lock_seconds: float | None
    # The seconds without a heartbeat after which the worker counts as dead; None if its row does not state them.
    timeout_seconds: float | None = None

    @property
    def is_registered(self) -> bool:
        return self.started_at is not None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the worker; empty if the column does not hold an object, as any program can write it."""
        return json_object(self.metadata_text)

    @property
    def host(self) -> str:
        """The host of the worker, or its id if it has registered no host."""
        host = self.metadata.get("host")
        return host if isinstance(host, str) and host else str(self.id)

    @property
    def host_and_pid(self) -> str:
        pid = self.metadata.get("pid")
        return self.host if pid is None else f"{self.host} (pid {pid})"

    @property
    def listens(self) -> bool:
        """Whether the worker is to listen; an earlier version does not state that."""
        return self.metadata.get("listens") is not False

    @property
    def only_polls(self) -> bool:
        """Whether no notification reaches the worker, by its settings or not."""
        return self.metadata.get("is_listening") is False

    @property
    def version(self) -> str:
        """The version of this package that the worker has registered; empty for workers of other programs."""
        version = self.metadata.get("version")
        return version if isinstance(version, str) and release_of(version) else ""

    @property
    def tasks(self) -> list[str]:
        """The tasks that the worker has registered."""
        tasks = self.metadata.get("tasks")
        return [task for task in tasks if isinstance(task, str)] if isinstance(tasks, list) else []

    @property
    def forbidden_flags(self) -> frozenset[str]:
        """The flags of jobs that the worker does not run, as far as it has registered them."""
        flags = self.metadata.get("forbidden_flags")
        return frozenset(flag for flag in flags if isinstance(flag, str)) if isinstance(flags, list) else frozenset()

    @property
    def slots(self) -> int | None:
        """How many jobs the worker runs at the same time; None if it does not state that."""
        concurrency = self.metadata.get("concurrency")
        return concurrency if isinstance(concurrency, int) and concurrency > 0 else None

    @property
    def slots_in_use(self) -> int:
        """How many jobs run. A worker may hold more jobs than it has slots: the others wait inside it."""
        return self.jobs if self.slots is None else min(self.jobs, self.slots)

    def is_alive(self, timeout: float) -> bool:
        """Return True if its last heartbeat is younger than its own timeout.

        A worker that states none, as those of graphile_worker for Rust, has ``timeout``, and five minutes at least.
        """
        limit = max(timeout, RUST_TIMEOUT) if self.timeout_seconds is None else self.timeout_seconds
        return self.silent_seconds is not None and not is_lease_over(self.silent_seconds, limit)


class Slots(NamedTuple):
    """How many live workers there are, and how many of their slots run a job."""

    workers: int
    in_use: int
    total: int

    @property
    def are_all_busy(self) -> bool:
        return 0 < self.total <= self.in_use


def slots_of(holders: Iterable[Holder], timeout: float, *, task: str | None = None) -> Slots:
    """Return the slots of all live workers, or of those that run a task; of those that start jobs and have a number."""
    alive = [each for each in holders if each.is_alive(timeout) and (task is None or task in each.tasks)]
    counted = _with_slots(alive, timeout)
    return Slots(len(alive), sum(each.slots_in_use for each in counted), sum(each.slots or 0 for each in counted))


def versions_of(holders: Iterable[Holder], timeout: float) -> dict[str, int]:
    """Return how many live workers there are of each version of this package, the oldest version first."""
    found = Counter(each.version for each in holders if each.version and each.is_alive(timeout))
    return {version: found[version] for version in sorted(found, key=lambda each: (release_of(each), each))}


def _with_slots(holders: Iterable[Holder], timeout: float) -> list[Holder]:
    """Return the live workers that start jobs and have a number of slots."""
    return [
        each
        for each in holders
        if each.is_alive(timeout) and each.slots is not None and not each.metadata.get("is_stopping")
    ]


def holders(
    cursor: Any, names: Sequence[str] | None = None, *, schema: str, most_locks: int = MAX_LOCKS
) -> list[Holder]:
    """Return all registered workers and holders of locks, or the holders with these names."""
    named = None if names is None else list(names)
    cursor.execute(statement(HOLDERS, schema), {"names": named, "most_locks": most_locks})
    return [Holder._make(row) for row in cursor.fetchall()]


# A worker may hold more jobs than it has slots: those that it has held for longest run.
RUNNING = f"""/* gw:running-tasks */
with held as materialized (
    select job.id, job.task_id, job.locked_at, :SCHEMA._private_worker_of(job.locked_by) as worker_id
    from :SCHEMA._private_jobs as job where {IS_LOCKED} order by job.locked_at limit {MAX_LOCKS}),
placed as (
    select held.*, row_number() over (partition by held.worker_id order by held.locked_at, held.id) as place from held)
select task.identifier, count(*), count(known.id),
    (extract(epoch from now()) - extract(epoch from max(placed.locked_at)))::float8
from placed
join :SCHEMA._private_tasks as task on task.id = placed.task_id
left join unnest(%(workers)s::text[], %(slots)s::int[]) as known (id, slots) on known.id = placed.worker_id
where placed.place <= coalesce(known.slots, {MAX_LOCKS})
group by task.identifier"""


class RunningTask(NamedTuple):
    """A task whose jobs run: how many, how many of them in slots of live workers, and for how long the last of them."""

    task_identifier: str
    number: int
    in_slots: int
    seconds: float


def running_tasks(cursor: Any, holders: Iterable[Holder], timeout: float, *, schema: str) -> list[RunningTask]:
    """Return the tasks whose jobs run, given all holders of locks."""
    slots = {each.id: each.slots for each in _with_slots(holders, timeout)}
    cursor.execute(statement(RUNNING, schema), {"workers": list(slots), "slots": list(slots.values())})
    return [RunningTask._make(row) for row in cursor.fetchall()]


HELD = f"""/* gw:held */
select 'job', job.id::text, task.identifier, {readable("job.locked_at")}
from :SCHEMA._private_jobs as job left join :SCHEMA._private_tasks as task on task.id = job.task_id
where {locked_by_worker("job", "= %(holder)s")}
union all
select 'queue', queue.id::text, queue.queue_name, {readable("queue.locked_at")}
from :SCHEMA._private_job_queues as queue
where {locked_by_worker("queue", "= %(holder)s")}
limit %(most)s"""


class Held(NamedTuple):
    """A job (with the name of its task) or a queue that is locked."""

    kind: str
    id: str
    name: str
    since: Any


def held_by(cursor: Any, holder: str, *, schema: str, most: int = 200) -> list[Held]:
    """Return the jobs and queues that a worker holds."""
    cursor.execute(statement(HELD, schema), {"holder": holder, "most": most})
    return [Held._make(row) for row in cursor.fetchall()]


# The names and the progress are read only for the jobs that are shown.
HELD_JOBS = f"""/* gw:held-jobs */
with held as materialized (
    select job.id, job.task_id, job.attempts, job.locked_at, :SCHEMA._private_worker_of(job.locked_by) as worker_id
    from :SCHEMA._private_jobs as job where {IS_LOCKED} and {{visible}}
    order by job.locked_at limit {MAX_LOCKS}),
numbered as (
    select held.*, row_number() over (partition by held.worker_id order by held.locked_at, held.id) as number
    from held)
select numbered.worker_id, numbered.id, task.identifier, {readable("numbered.locked_at")},
    progress.done, progress.total, progress.message, {readable("progress.updated_at")}
from numbered
left join :SCHEMA._private_tasks as task on task.id = numbered.task_id
left join :SCHEMA._private_progress as progress
    on progress.job_id = numbered.id and progress.attempt >= numbered.attempts
where numbered.number <= %(most)s::int
order by numbered.locked_at, numbered.id"""


class HeldJob(NamedTuple):
    """A job that a worker holds."""

    worker_id: str
    id: int
    task_identifier: str | None
    locked_at: Any
    done: float | None
    total: float | None
    message: str | None
    progress_at: Any

    @property
    def progress(self) -> Progress | None:
        """How far the attempt has got; None if it has reported nothing."""
        if self.done is None:
            return None
        return Progress(done=self.done, total=self.total, message=self.message or "", updated_at=self.progress_at)


def held_jobs(cursor: Any, *, schema: str, most: int, within: Subquery | None = None) -> dict[str, list[HeldJob]]:
    """Return the jobs that each worker holds, up to ``most`` of each, longest held first; ``within`` restricts them."""
    condition, parameters = ("true", {}) if within is None else within.named()
    visible = condition if within is None else f"job.id in ({condition})"
    cursor.execute(statement(HELD_JOBS.format(visible=visible), schema), {"most": most, **parameters})
    by_worker: dict[str, list[HeldJob]] = {}
    for row in cursor.fetchall():
        job = HeldJob._make(row)
        by_worker.setdefault(job.worker_id or "", []).append(job)
    return by_worker


# Node's worker leaves its name in the jobs that it holds. While it waits, its session shows the text of its LISTEN,
# which no worker of this package sends.
OTHER_WORKERS = f"""/* gw:other_workers */
    select worker.name from (
        select distinct :SCHEMA._private_worker_of(job.locked_by) as name from (
            select job.locked_by from :SCHEMA._private_jobs as job where {IS_LOCKED}
            order by job.locked_at limit {MAX_LOCKS}) as job
        union all
        select 'session ' || activity.pid::text from pg_catalog.pg_stat_activity as activity
        where activity.datname = pg_catalog.current_database()
            and activity.query like 'LISTEN "jobs:insert"; LISTEN "worker:migrate"%%'
    ) as worker
    where worker.name not like '{WORKER_PREFIX}%%'
        and not exists (select from :SCHEMA._private_workers as known where known.id = worker.name)
    order by worker.name limit 5"""


def other_workers(cursor: Any, *, schema: str) -> list[str]:
    """Return up to five workers that are not registered: the holders of jobs, and sessions of graphile-worker."""
    cursor.execute(statement(OTHER_WORKERS, schema))
    return [name for (name,) in cursor.fetchall()]
