"""Lists of jobs by state, task and queue: the ids of a page, their rows, and how many there are.

Each list is read along an index that exists for the claim: a range of it for each task and each level of priority,
and of each range no more rows than the list shows. So a page costs the same with a hundred jobs and with ten million.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from django_graphile_worker.jobs import attempts_made
from django_graphile_worker.sql import jobs
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.jobs import IS_DUE, JOIN_PARKED, TRUE_RUN_AT
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.statements import statement

# A count ends here: "5,000+".
MAX_COUNTED = 5_000


class State(StrEnum):
    """The state of a job. Each job is in exactly one of the first six; the others combine them."""

    READY = "ready"
    # Due, and waits for a limit: `sql.jobs.JOIN_PARKED`.
    LIMITED = "limited"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"
    # Scheduled or retrying.
    WAITING = "waiting"
    # Failed at least once and not running: the jobs of an error group.
    FAILING = "failing"
    ANY = "all"


# Each job is in one of these states, which are in the order in which a list shows them.
STATES = (State.RUNNING, State.READY, State.LIMITED, State.SCHEDULED, State.RETRYING, State.FAILED)


class HasState(Protocol):
    """The attributes that determine a job's state."""

    @property
    def locked_at(self) -> Any: ...
    @property
    def is_available(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    @property
    def is_limited(self) -> bool: ...
    @property
    def attempts(self) -> int: ...


def state_of(job: HasState) -> State:
    """Return the state of a job, one of ``STATES``."""
    if job.locked_at is not None:
        return State.RUNNING
    if not job.is_available:
        return State.FAILED
    if job.is_limited:
        return State.LIMITED
    if job.is_due:
        return State.READY
    return State.RETRYING if job.attempts else State.SCHEDULED


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery:
    """A statement that selects the ids of the jobs that a user may see, with its positional parameters."""

    text: str
    parameters: tuple[Any, ...]

    def named(self) -> tuple[str, dict[str, Any]]:
        """Return the statement with named parameters, so that it fits anywhere into a larger statement."""
        names = (f"restriction_{number}" for number in range(len(self.parameters)))
        text = re.sub("%[%s]", lambda found: "%%" if found[0] == "%%" else f"%({next(names)})s", self.text)
        return text, {f"restriction_{number}": value for number, value in enumerate(self.parameters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Which jobs a list has: those in a state, and of any of the tasks and any of the queues, if some are given."""

    state: State = State.ANY
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    # The names of the last errors; only for jobs that have failed.
    error_names: tuple[str, ...] = ()


EVERYTHING = Criteria()

_ERROR_NAME = ":SCHEMA._private_error_name(job.last_error)"
_TASKS = "any (array(select id from chosen_task))"
_CHOSEN_QUEUES = "select id from :SCHEMA._private_job_queues where queue_name = any (%(queues)s::text[])"
_QUEUES = f"any (array({_CHOSEN_QUEUES}))"
# Parked jobs, which wait for a limit, are at the end of all times. Without limits, a job there waits like any other.
END_OF_WAITING = """/* gw:end-of-waiting */
select case when exists (select from :SCHEMA._private_limited_jobs)
    then '294276-12-31 23:59:59+00' else 'infinity' end"""
_IS_WAITING = "job.is_available and job.run_at > now() and job.run_at <= %(end_of_waiting)s::timestamptz"
# The states that wait for a time, each with its condition on a job that is available.
_AVAILABLE = {
    State.READY: IS_DUE,
    State.SCHEDULED: f"{_IS_WAITING} and {jobs.NOT_TRIED}",
    State.WAITING: _IS_WAITING,
}
# Two indexes have the available jobs of each task, one of them those in queues.
AVAILABLE_OF_TASK = (
    "job.is_available and job.job_queue_id is null",
    "job.is_available and job.job_queue_id > 0",
)
_ALL_TASKS = "(select null::int as id)"
# The states of jobs that have failed, each with its condition, and whether the latest failure comes first.
_FAILED = {
    State.RETRYING: (f"{jobs.HAS_FAILED} and {_IS_WAITING}", False),
    State.FAILED: (jobs.IS_PERMANENTLY_FAILED, True),
    # Those that have attempts left, whether they are due again or not.
    State.FAILING: (f"{jobs.HAS_FAILED} and job.is_available", False),
}
# The parts of a list that has jobs in several states.
_PARTS = {
    State.ANY: (State.RUNNING, State.READY, State.LIMITED, State.WAITING, State.FAILED),
    State.FAILING: (State.FAILED, State.FAILING),
}


def _selected(columns: str, conditions: Sequence[str], order: str) -> str:
    return f"""select job.id, {columns} from :SCHEMA._private_jobs as job
        where {" and ".join(conditions)} order by {order} limit %(most)s::bigint"""


def _epoch(column: str) -> str:
    # Exact to the microsecond, and for infinite times.
    return f"extract(epoch from {column})::float8"


def _filters(criteria: Criteria) -> list[str]:
    of_tasks = [f"job.task_id = {_TASKS}"] if criteria.tasks else []
    return of_tasks + ([f"job.job_queue_id = {_QUEUES}"] if criteria.queues else [])


def _available(state: State, criteria: Criteria) -> str:
    """Select the jobs that wait: of each level of priority no more than the list shows."""
    condition = _AVAILABLE[state]
    columns = f"{'job.priority' if state is State.READY else '0'} as level, {_epoch('job.run_at')} as moment"
    if criteria.queues:
        return _by_level_of_queues(columns, condition, criteria)
    if criteria.tasks:
        return " union all ".join(
            f"({_by_level(columns, [kind, 'job.task_id = task.id'], condition, 'chosen_task')})"
            for kind in AVAILABLE_OF_TASK
        )
    return _by_level(columns, ["job.is_available"], condition, _ALL_TASKS)


def _by_level(columns: str, common: list[str], condition: str, tasks: str) -> str:
    """Select from one range of an index for each task and each priority that its jobs have."""
    following = f"select job.priority from :SCHEMA._private_jobs as job where {' and '.join(common)}"
    order = "order by job.priority limit 1"
    # The index of graphile-worker does not have the id.
    by_time = "job.run_at" if tasks == _ALL_TASKS else "job.run_at, job.id"
    in_level = _selected(columns, [*common, "job.priority = task.priority", condition], by_time)
    return f"""
        with recursive level (id, priority) as (
            select task.id, job.priority from {tasks} as task cross join lateral ({following} {order}) as job
            union all
            select task.id, job.priority from level as task
            cross join lateral ({following} and job.priority > task.priority {order}) as job)
        select found.* from level as task cross join lateral ({in_level}) as found"""


def _by_level_of_queues(columns: str, condition: str, criteria: Criteria) -> str:
    """Select from one range of the index of queues for each queue, task and priority that jobs have."""
    common = "job.is_available and job.job_queue_id = queue.id"
    following = f"select job.task_id, job.priority from :SCHEMA._private_jobs as job where {common}"
    order = "order by job.task_id, job.priority limit 1"
    of_tasks = f"where queue.task_id = {_TASKS}" if criteria.tasks else ""
    of_level = ["job.task_id = queue.task_id", "job.priority = queue.priority", condition]
    in_level = _selected(columns, [common, *of_level], "job.run_at, job.id")
    return f"""
        with recursive level (id, task_id, priority) as (
            select queue.id, job.* from ({_CHOSEN_QUEUES}) as queue cross join lateral ({following} {order}) as job
            union all
            select queue.id, job.* from level as queue cross join lateral (
                {following} and (job.task_id, job.priority) > (queue.task_id, queue.priority) {order}) as job)
        select found.* from level as queue cross join lateral ({in_level}) as found {of_tasks}"""


def _failed(state: State, criteria: Criteria) -> str:
    """Select the jobs that have failed: of each task, or of each of its errors, no more than the list shows."""
    condition, is_latest_first = _FAILED[state]
    is_latest_first = is_latest_first or bool(criteria.error_names)
    column, sign, direction = ("job.updated_at", "-", " desc") if is_latest_first else ("job.run_at", "", "")
    columns, order = f"0 as level, {sign}{_epoch(column)} as moment", f"{column}{direction}, job.id{direction}"
    if criteria.queues and not criteria.error_names:
        of_tasks = _filters(replace(criteria, queues=()))
        each = _selected(columns, ["job.job_queue_id = queue.id", condition, *of_tasks], order)
        return f"select found.* from ({_CHOSEN_QUEUES}) as queue cross join lateral ({each}) as found"
    conditions = [condition, "job.task_id = task.id"]
    if criteria.queues:
        conditions.append(f"job.job_queue_id = {_QUEUES}")
    errors = ""
    if criteria.error_names:
        conditions.append(f"{_ERROR_NAME} = error.name")
        errors = "cross join unnest(%(error_names)s::text[]) as error (name)"
    each = _selected(columns, conditions, order)
    return f"select found.* from chosen_task as task {errors} cross join lateral ({each}) as found"


def _part(state: State, criteria: Criteria) -> str:
    """Select the jobs of a state with ``id``, ``level`` and ``moment``, which order them."""
    if state in _AVAILABLE:
        return _available(state, criteria)
    if state in _FAILED:
        return _failed(state, criteria)
    if state is State.RUNNING:
        columns = f"0 as level, {_epoch('job.locked_at')} as moment"
        return _selected(columns, [jobs.IS_LOCKED, *_filters(criteria)], "job.locked_at, job.id")
    # Each row is read by its id, whatever the planner believes.
    conditions = " and ".join(["job.id = parked.job_id", jobs.IS_PARKED, *_filters(criteria)])
    return f"""select job.id, 0 as level, 0::float8 as moment from :SCHEMA._private_limited_jobs as parked
        cross join lateral (select job.id from :SCHEMA._private_jobs as job where {conditions} offset 0) as job
        order by parked.job_id limit %(most)s::bigint"""


def _list(criteria: Criteria) -> str:
    """Select the jobs of a list with ``part``, ``level``, ``moment`` and ``id``, which order them."""
    if criteria.state is State.ANY and criteria == EVERYTHING:
        # The list of all jobs has the newest first; that of all states of a task or a queue is by state.
        newest = _selected("0 as level, -job.id::float8 as moment", ["true"], "job.id desc")
        return f"select 0 as part, found.*, 0 as place from ({newest}) as found"
    # A job that runs again has no error, as long as it has not failed again.
    state = State.FAILING if criteria.state is State.ANY and criteria.error_names else criteria.state
    # Jobs that are due at the same time keep the order in which their index has them: then no page repeats a job.
    return " union all ".join(
        f"(select {number} as part, found.*, row_number() over () as place from ({_part(part, criteria)}) as found)"
        for number, part in enumerate(_PARTS.get(state, (state,)))
    )


def _with_tasks(criteria: Criteria) -> str:
    condition = "where identifier = any (%(tasks)s::text[])" if criteria.tasks else ""
    return f"with chosen_task as materialized (select id from :SCHEMA._private_tasks {condition})"


def _parameters(cursor: Any, criteria: Criteria, text: str, schema: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {name: list(getattr(criteria, name)) for name in ("tasks", "queues", "error_names")}
    if "%(end_of_waiting)s" in text:
        # A statement of its own: the planner has to know the end to know how few jobs a range has.
        cursor.execute(statement(END_OF_WAITING, schema))
        parameters["end_of_waiting"] = cursor.fetchone()[0]
    return parameters


def job_ids(cursor: Any, criteria: Criteria, *, schema: str, limit: int, offset: int = 0) -> list[int]:
    """Return the ids of a page of a list, in its order."""
    text = f"""/* gw:job-ids */
    {_with_tasks(criteria)}
    select id from ({_list(criteria)}) as found order by part, level, moment, place
    offset %(offset)s::bigint limit %(limit)s::bigint"""
    parameters = _parameters(cursor, criteria, text, schema) | {
        "most": offset + limit,
        "offset": offset,
        "limit": limit,
    }
    cursor.execute(statement(text, schema), parameters)
    return [row[0] for row in cursor.fetchall()]


def all_job_ids(cursor: Any, criteria: Criteria, *, schema: str) -> list[int]:
    """Return the ids of all jobs of a list, in its order, from one snapshot."""
    return job_ids(cursor, criteria, schema=schema, limit=2**62)


# For readers to whom errors are redacted: in a part of an error, the name of a secret may be cut off.
LONG_ERRORS = """/* gw:long-errors */
select job.id, pg_catalog."left"(job.last_error, 20000)
from only :SCHEMA._private_jobs as job where job.id = any (%(ids)s::bigint[])"""


def long_errors(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the errors of jobs, longer than they are shown."""
    cursor.execute(statement(LONG_ERRORS, schema), {"ids": list(ids)})
    return dict(cursor.fetchall())


class Count(NamedTuple):
    """A number of jobs, and whether there are more than were counted."""

    number: int
    is_more: bool = False


def count_states(
    cursor: Any, criteria: Criteria, *, schema: str, most: int = MAX_COUNTED, states: Sequence[State] = STATES
) -> dict[State, Count]:
    """Return how many jobs of each state meet the criteria, whatever their state; no count goes beyond ``most``."""
    lists = [_list(replace(criteria, state=state)) for state in states]
    counts = [f"(select count(*) from (select from ({each}) as found limit %(most)s) as job)" for each in lists]
    text = f"/* gw:count-states */ {_with_tasks(criteria)} select {', '.join(counts)}"
    cursor.execute(statement(text, schema), _parameters(cursor, criteria, text, schema) | {"most": most + 1})
    return {
        state: Count(min(number, most), is_more=number > most)
        for state, number in zip(states, cursor.fetchone(), strict=True)
    }


class OldestReady(NamedTuple):
    """The available job that has been due for the longest time."""

    run_at: Any
    id: int
    task_identifier: str


def oldest_ready(cursor: Any, *, schema: str, tasks: tuple[str, ...] = ()) -> OldestReady | None:
    """Return the job that has been ready for the longest time, of all tasks or of these."""
    criteria = Criteria(state=State.READY, tasks=tasks)
    # The first job of each level is its oldest. Its row is read by the id, whatever the planner believes.
    text = f"""/* gw:oldest-ready */
    {_with_tasks(criteria)}
    select {readable("job.run_at")}, job.id, coalesce(task.identifier, '')
    from (select found.id from ({_list(criteria)}) as found order by found.moment, found.id limit 1) as oldest
    cross join lateral (select * from :SCHEMA._private_jobs as job where job.id = oldest.id offset 0) as job
    left join :SCHEMA._private_tasks as task on task.id = job.task_id"""
    cursor.execute(statement(text, schema), _parameters(cursor, criteria, text, schema) | {"most": 1})
    row = cursor.fetchone()
    return None if row is None else OldestReady._make(row)


EARLIEST_FAILED = f"""select {readable("min(found.updated_at)")} from chosen_task as task
cross join lateral (select job.updated_at from :SCHEMA._private_jobs as job
    where {jobs.IS_PERMANENTLY_FAILED} and job.task_id = task.id
    order by job.updated_at, job.id limit 1) as found"""


def earliest(cursor: Any, state: State, *, schema: str, tasks: tuple[str, ...] = ()) -> Any:
    """Return the earliest time of the jobs in a state: when they were locked, have failed, or are due."""
    criteria = Criteria(state=state, tasks=tasks)
    if state is State.READY:
        oldest = oldest_ready(cursor, schema=schema, tasks=tasks)
        return oldest and oldest.run_at
    if state is State.FAILED:
        text = f"/* gw:earliest-failed */ {_with_tasks(criteria)} {EARLIEST_FAILED}"
        cursor.execute(statement(text, schema), {"tasks": list(tasks)})
        return cursor.fetchone()[0]
    found = rows(cursor, job_ids(cursor, criteria, schema=schema, limit=1), schema=schema)
    return found[0].moment if found else None


# What a list reads of an error: the worker writes the number of attempts near its beginning, an operator at its end.
ENDS_OF_ERROR = r"""case when pg_catalog.length(job.last_error) <= 700 then job.last_error
    else pg_catalog."left"(job.last_error, 500) || E'\n' || pg_catalog."right"(job.last_error, 200) end"""

# For conditions that Django composes: expressions over a column, for which COLUMN stands.
IS_AMONG = "COLUMN = any (%s::bigint[])"
HAS_FLAG = "coalesce(COLUMN ? %s::text, false)"
IS_PARKED = "exists (select from :SCHEMA._private_limited_jobs as parked where parked.job_id = COLUMN)"
NAME_OF_ERROR = ":SCHEMA._private_error_name(COLUMN)"
# The number of attempts that a list shows: `attempts.attempts_made`. The first part is greedy: it is the last remark.
ATTEMPTS_IN_ERROR = rf"""pg_catalog.substring({ENDS_OF_ERROR.replace("job.last_error", "COLUMN")},
    '(?:^|.*\n)Not tried again after attempt ([0-9]{{1,5}}) of [0-9]{{1,5}}\.(?:\n|$)')::int"""
# A value of type json may contain escapes for which its operators raise an error, which would end the search: NUL, and
# halves of surrogate pairs. The expression removes escaped backslashes, which may precede a harmless "u", and whole
# pairs; then it searches for such escapes.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
VALUE_IN_PAYLOAD = rf"""coalesce(case when case when pg_catalog.strpos(COLUMN::text, '\u') = 0 then true
    else not pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(COLUMN::text, '\\\\', '', 'g'), '{_PAIR}', '', 'g') ~ '\\u(0000|[dD][89a-fA-F])'
    end then COLUMN #>> %s::text[] end, '')"""
# Larger payloads, in bytes as stored, are not searched: a look at many thousand jobs must end in time.
TEXT_OF_PAYLOAD = f"case when pg_column_size(COLUMN) <= {256 * 1024} then lower(COLUMN::text) else '' end"


def written_forms(text: str) -> list[str]:
    """Return the texts, in lower case, that JSON can have for a text: as it is, or with the escapes of a string.

    Escapes have no lower case, so a letter that is written as an escape may be meant in lower or in upper case.
    """
    cases = (text, text.lower(), text.upper(), text.capitalize())
    escaped = [json.dumps(each, ensure_ascii=is_ascii)[1:-1] for each in cases for is_ascii in (True, False)]
    return list(dict.fromkeys(form.lower() for form in (text, *escaped)))


# A job waits for the key that blocks its lane, or has a place of a key.
JOBS_OF_LIMIT_KEY = """/* gw:jobs-of-limit-key */
select parked.job_id from :SCHEMA._private_limit_keys as known
join :SCHEMA._private_limit_lanes as lane on lane.blocked_by = known.id and lane.state = 2
join :SCHEMA._private_limited_jobs as parked on parked.lane_id = lane.id
where known.key_text = %(key)s::text
union
select place.job_id from :SCHEMA._private_limit_keys as known
join :SCHEMA._private_limit_places as place on place.key_id = known.id
where known.key_text = %(key)s::text
limit %(most)s::int"""
MAX_OF_LIMIT_KEY = 10_000


def jobs_of_limit_key(cursor: Any, key: str, *, schema: str) -> list[int]:
    """Return the ids of jobs that wait for a key of a limit, or have a place of it."""
    cursor.execute(statement(JOBS_OF_LIMIT_KEY, schema), {"key": key, "most": MAX_OF_LIMIT_KEY})
    return [row[0] for row in cursor.fetchall()]


class JobRow(NamedTuple):
    """A job as a list shows it: without its payload, and with the beginning of its error."""

    id: int
    task_identifier: str | None
    queue_name: str | None
    priority: int
    run_at: Any
    attempts: int
    max_attempts: int
    created_at: Any
    updated_at: Any
    key: str | None
    locked_at: Any
    locked_by: str | None
    flags_text: str | None
    error: str | None
    is_available: bool
    is_due: bool
    # What the running attempt has reported.
    done: float | None = None
    total: float | None = None
    message: str | None = None
    is_limited: bool = False
    progress_at: Any = None

    @property
    def state(self) -> State:
        return state_of(self)

    @property
    def progress(self) -> Progress | None:
        """How far the running attempt has got; None if it has reported nothing."""
        if self.done is None:
            return None
        return Progress(done=self.done, total=self.total, message=self.message or "", updated_at=self.progress_at)

    @property
    def attempts_made(self) -> int:
        """The number of real attempts: in the column, a job without further attempts has used up all of them."""
        return attempts_made(self.attempts, self.max_attempts, self.error)

    @property
    def moment(self) -> Any:
        """The time that matters in its state: when it was locked, when it permanently failed, or when it is due."""
        if self.state is State.RUNNING:
            return self.locked_at
        return self.updated_at if self.state is State.FAILED else self.run_at


ROWS = f"""/* gw:job-rows */
select job.id, task.identifier, queue.queue_name, job.priority, {readable(TRUE_RUN_AT)}, job.attempts,
    job.max_attempts, {readable("job.created_at")}, {readable("job.updated_at")}, job.key,
    {readable("job.locked_at")}, :SCHEMA._private_worker_of(job.locked_by), left(job.flags::text, 20000),
    {ENDS_OF_ERROR}, job.is_available, {IS_DUE}, progress.done, progress.total, progress.message,
    parked.job_id is not null, {readable("progress.updated_at")}
from :SCHEMA._private_jobs as job
{JOIN_PARKED}
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
left join :SCHEMA._private_progress as progress
    on progress.job_id = job.id and progress.attempt >= job.attempts and job.locked_at is not null
where job.id = any (%(ids)s::bigint[])"""


def rows(cursor: Any, ids: Sequence[int], *, schema: str) -> list[JobRow]:
    """Return the rows of these jobs, in the order of the ids, without jobs that no longer exist."""
    cursor.execute(statement(ROWS, schema), {"ids": list(ids)})
    found = {row[0]: JobRow._make(row) for row in cursor.fetchall()}
    return [found[job_id] for job_id in ids if job_id in found]


class Listed(NamedTuple):
    """The first jobs of a list, and whether there are more."""

    rows: list[JobRow]
    has_more: bool


def list_jobs(cursor: Any, criteria: Criteria, *, schema: str, limit: int) -> Listed:
    """Return the first jobs of a list."""
    ids = job_ids(cursor, criteria, schema=schema, limit=limit + 1)
    return Listed(rows(cursor, ids[:limit], schema=schema), has_more=len(ids) > limit)
