"""Lists of jobs for people. Reads only, and never more than it shows needs.

A table of ten million rows is no place to look around in: every list here goes
along an index, a limited way on each priority level or in each task, and takes
the best of what it found. Only a list that has no index to go along (all jobs
of a task at once) is put together from those that have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django_graphile_worker.sql.jobs import Cursor, flags_from
from django_graphile_worker.sql.reading import within_python_years as readable
from django_graphile_worker.sql.schema import statement

# In the order in which a job goes through them, as far as it must.
STATES = ("running", "ready", "scheduled", "retrying", "failed")
LONGEST_ERROR = 500

STATE = """case
        when job.locked_at is not null then 'running'
        when job.attempts >= job.max_attempts then 'failed'
        when job.run_at <= now() then 'ready'
        when job.attempts > 0 then 'retrying'
        else 'scheduled' end"""

_COLUMNS = f"""
    job.id, {STATE}, coalesce(task.identifier, ''), queue.queue_name, job.priority, {readable("job.run_at")},
    job.attempts, job.max_attempts, job.key, job.flags::text, {readable("job.locked_at")}, job.locked_by,
    left(job.last_error, {LONGEST_ERROR}), {readable("job.created_at")}, {readable("job.updated_at")}"""

_NAMES = """
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id"""

# Steps from one priority to the next, so that what lies between costs nothing.
LEVELS = """level (priority) as (
    (select job.priority from :SCHEMA._private_jobs as job where job.is_available order by job.priority limit 1)
    union all
    select (
        select job.priority from :SCHEMA._private_jobs as job
        where job.is_available and job.priority > level.priority
        order by job.priority limit 1)
    from level where level.priority is not null
)"""

_DUE = "job.run_at <= now()"
_PLANNED = "job.run_at > now() and job.attempts = 0"


def _waiting(condition: str, place: str, task: str = "%(task_id)s") -> str:
    """Available jobs of one priority level, soonest first; `place` chooses the index that knows them."""
    return f"""(
        select job.id, job.priority, job.run_at from :SCHEMA._private_jobs as job
        where job.is_available and job.priority = level.priority and {condition} and {place.format(task=task)}
        order by job.run_at limit %(limit)s)"""


# Which part of the waiting jobs to look at; the conditions are those of the partial indexes.
_ANYWHERE = "true"
_OF_TASK = (
    "job.task_id = {task} and job.job_queue_id is null and job.flags is null",
    "job.task_id = {task} and job.job_queue_id is null and job.flags is not null",
    "job.task_id = {task} and job.job_queue_id is not null",
)
_OF_QUEUE = "job.task_id = {task} and job.job_queue_id = %(queue_id)s"
_CHOSEN_TASKS = """(
        select task.id from :SCHEMA._private_tasks as task
        where %(task_id)s::int is null or task.id = %(task_id)s::int)"""


def _sources(condition: str) -> dict[str, str]:
    of_task = " union all ".join(_waiting(condition, place) for place in _OF_TASK)
    return {
        "any": f"lateral {_waiting(condition, _ANYWHERE)} as found",
        "task": f"lateral ({of_task}) as found",
        "queue": f"{_CHOSEN_TASKS} as task cross join lateral {_waiting(condition, _OF_QUEUE, 'task.id')} as found",
    }


def _by_level(condition: str, order: str) -> dict[str, str]:
    """The ids of waiting jobs, however they are narrowed down."""
    return {
        narrowed: f"""select found.id from level cross join {source}
        where level.priority is not null order by {order} limit %(limit)s"""
        for narrowed, source in _sources(condition).items()
    }


def _by_task(condition: str, order: str) -> str:
    """The ids of jobs that have failed before, task by task, as their index goes."""
    return f"""select found.id from {_CHOSEN_TASKS} as task cross join lateral (
            select job.id, job.run_at from :SCHEMA._private_jobs as job
            where job.task_id = task.id and job.locked_at is null and job.attempts > 0 and {condition}
                and (%(queue_id)s::int is null or job.job_queue_id = %(queue_id)s::int)
            order by {order.format(job="job")} limit %(limit)s
        ) as found
        order by {order.format(job="found")} limit %(limit)s"""


_RUNNING = """select job.id from :SCHEMA._private_jobs as job
        where job.locked_at is not null
            and (%(task_id)s::int is null or job.task_id = %(task_id)s::int)
            and (%(queue_id)s::int is null or job.job_queue_id = %(queue_id)s::int)
        order by job.locked_at, job.id limit %(limit)s"""
_NEWEST = "select job.id from :SCHEMA._private_jobs as job order by job.id desc limit %(limit)s"


def _list(tag: str, chosen: str, order: str, levels: str = "") -> str:
    return f"""/* gw:list-{tag} */
with {"recursive " + levels + "," if levels else ""} chosen as materialized (
        {chosen}
)
select {_COLUMNS}
from chosen join :SCHEMA._private_jobs as job on job.id = chosen.id {_NAMES}
order by {order}"""


_READY = _by_level(_DUE, "found.priority, found.run_at, found.id")
_SCHEDULED = _by_level(_PLANNED, "found.run_at, found.id")
_RETRYING = _by_task("job.is_available and job.run_at > now()", "{job}.run_at, {job}.id")
_FAILED = _by_task("not job.is_available", "{job}.run_at desc, {job}.id desc")

_LISTS = {
    ("all", "any"): _list("all", _NEWEST, "job.id desc"),
    ("show", "any"): _list("job", "select %(job_id)s::bigint as id", "job.id"),
}
for _narrowed in ("any", "task", "queue"):
    _LISTS |= {
        ("running", _narrowed): _list("running", _RUNNING, "job.locked_at, job.id"),
        ("ready", _narrowed): _list("ready", _READY[_narrowed], "job.priority, job.run_at, job.id", LEVELS),
        ("scheduled", _narrowed): _list("scheduled", _SCHEDULED[_narrowed], "job.run_at, job.id", LEVELS),
        ("retrying", _narrowed): _list("retrying", _RETRYING, "job.run_at, job.id"),
        ("failed", _narrowed): _list("failed", _FAILED, "job.run_at desc, job.id desc"),
    }


class ListedJob(NamedTuple):
    """A line of a list: everything but the payload, which may be large."""

    id: int
    state: str
    task_identifier: str
    queue_name: str | None
    priority: int
    run_at: datetime
    attempts: int
    max_attempts: int
    key: str | None
    flags: frozenset[str]
    locked_at: datetime | None
    locked_by: str | None
    last_error: str | None
    created_at: datetime
    updated_at: datetime


class Narrowing(NamedTuple):
    """Which jobs a list is about; None is no limitation."""

    task_id: int | None = None
    queue_id: int | None = None

    @property
    def source(self) -> str:
        if self.queue_id is not None:
            return "queue"
        return "any" if self.task_id is None else "task"


def list_jobs(cursor: Cursor, state: str, narrowing: Narrowing, *, limit: int, schema: str) -> list[ListedJob]:
    """Jobs of one state, or of ``all``: the newest, or when narrowed down one state after the other."""
    if (state, narrowing.source) in _LISTS:
        return _listed(cursor, state, narrowing, limit, schema)
    found: list[ListedJob] = []
    for each in STATES:
        if len(found) < limit:
            found += _listed(cursor, each, narrowing, limit - len(found), schema)
    return found


def _listed(cursor: Cursor, state: str, narrowing: Narrowing, limit: int, schema: str) -> list[ListedJob]:
    parameters = {**narrowing._asdict(), "limit": limit}
    cursor.execute(statement(_LISTS[state, narrowing.source], schema), parameters)
    return _jobs(cursor.fetchall())


def _jobs(rows: Sequence[tuple[object, ...]]) -> list[ListedJob]:
    return [job._replace(flags=flags_from(job.flags)) for job in map(ListedJob._make, rows)]  # type: ignore[arg-type]


class ShownJob(NamedTuple):
    """What is known of one job."""

    job: ListedJob
    payload_text: str
    last_error: str | None
    revision: int
    recoveries: int
    queue_locked_by: str | None
    queue_locked_at: datetime | None
    live_workers: int


SHOW = f"""/* gw:show-job */
select job.payload::text, job.last_error, job.revision,
    coalesce((
        select known.recoveries from :SCHEMA._private_job_recoveries as known where known.job_id = job.id), 0),
    queue.locked_by, {readable("queue.locked_at")},
    (
        select count(*) from :SCHEMA._private_workers as worker
        where worker.metadata -> 'tasks' ? task.identifier
            and worker.last_heartbeat_at >= now() - interval '1 second' * %(timeout)s::float8)
from :SCHEMA._private_jobs as job {_NAMES}
where job.id = %(job_id)s"""


def show_job(cursor: Cursor, job_id: int, *, timeout: float, schema: str) -> ShownJob | None:
    """Everything about one job, and how many workers that beat within `timeout` seconds know its task."""
    parameters = {"job_id": job_id, "timeout": timeout}
    cursor.execute(statement(_LISTS["show", "any"], schema), parameters)
    jobs = _jobs(cursor.fetchall())
    cursor.execute(statement(SHOW, schema), parameters)
    details = cursor.fetchone()
    return ShownJob(jobs[0], *details) if jobs and details else None


JOB_STATES = f"""/* gw:job-states */
select job.id, {STATE} from :SCHEMA._private_jobs as job where job.id = any (%(job_ids)s::bigint[])"""


def job_states(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> dict[int, str]:
    """The states of these jobs; those that are gone are left out."""
    cursor.execute(statement(JOB_STATES, schema), {"job_ids": list(job_ids)})
    return dict(cursor.fetchall())


_NAMED = {
    "task": ("_private_tasks", "identifier"),
    "queue": ("_private_job_queues", "queue_name"),
}
FIND_NAME = {
    kind: f"/* gw:find-{kind} */ select id from :SCHEMA.{table} where {column} = %(name)s"
    for kind, (table, column) in _NAMED.items()
}
SOME_NAMES = {
    kind: f"/* gw:{kind}-names */ select {column} from :SCHEMA.{table} order by id desc limit 1000"
    for kind, (table, column) in _NAMED.items()
}


def find_name(cursor: Cursor, kind: str, name: str, *, schema: str) -> int | None:
    """The id of a task or a queue; None for a name that no job has had."""
    cursor.execute(statement(FIND_NAME[kind], schema), {"name": name})
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def some_names(cursor: Cursor, kind: str, *, schema: str) -> list[str]:
    """Names of tasks or queues, for suggestions."""
    cursor.execute(statement(SOME_NAMES[kind], schema))
    return [row[0] for row in cursor.fetchall()]


# Every statement here has one right plan: along an index, row by row. Where statistics are old, or the table
# small, the planner may think of reading it all instead.
PLANNING = dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off")

CHANGE_SETTINGS = """/* gw:settings */
select name, current_setting(name), set_config(name, value, true)
from unnest(%(names)s::text[], %(values)s::text[]) as change (name, value)"""


def change_settings(cursor: Cursor, changes: Mapping[str, str]) -> dict[str, str]:
    """Change settings for this transaction; what they were before."""
    cursor.execute(CHANGE_SETTINGS, {"names": list(changes), "values": list(changes.values())})
    return {name: before for name, before, _ in cursor.fetchall()}


def settings_for_looking(seconds: float) -> dict[str, str]:
    """No statement may take longer, and none may read a whole table."""
    return {**PLANNING, "statement_timeout": f"{max(1, round(seconds * 1000))}ms"}
