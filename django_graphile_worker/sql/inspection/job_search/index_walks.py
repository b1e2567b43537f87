"""Walks along indexes: find jobs in the order of a page, without reading other jobs.

A walk reads the index that has the jobs in the order in which they are shown, from
the place where the page begins, and ends after as many rows as the page needs. If
no single index has that order, the walk reads rows from each range that has it
(each task, each level of priority), and sorts these rows. So a page costs the same
with a hundred jobs as with ten million.
"""

from __future__ import annotations

import re
from typing import Any

from django_graphile_worker.sql.conditions import IS_AVAILABLE_IN_QUEUE, NOT_TRIED
from django_graphile_worker.sql.inspection.job_search.criteria import CONDITIONS, Criteria, State
from django_graphile_worker.sql.inspection.job_search.orders import Order, Walk, order_of
from django_graphile_worker.sql.inspection.job_search.range_bounds import Body, bounded
from django_graphile_worker.sql.inspection.job_search.row_conditions import (
    Clauses,
    where_grouped,
    where_in_order,
    where_looked_at,
    where_matched,
    where_named,
)
from django_graphile_worker.sql.inspection.job_search.walk_choice import (
    AVAILABLE,
    MOST_QUEUES,
    has_few_queues,
    has_flags,
    is_possible,
    member_in,
    walkable_group,
)
from django_graphile_worker.sql.parked_jobs import TRUE_RUN_AT_OF_JOB

# Three indexes hold the available jobs, each index the jobs of one kind. The first column of each index is the task.
PARTS = {
    1: "job.is_available and job.job_queue_id is null and job.flags is null",
    2: "job.is_available and job.job_queue_id is null and job.flags is not null",
    3: IS_AVAILABLE_IN_QUEUE,
}
# Usually few tasks and few priorities are in use. These limits only keep a page fast if a program has filled the tables
# with names.
MOST_TASKS = 2_000
MOST_LEVELS = 5_000
LIMITS = {"most_tasks": MOST_TASKS, "most_levels": MOST_LEVELS}


TASKS = """task as materialized (
    select id from :SCHEMA._private_tasks
    where (%(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]))
        and (%(excluded_tasks)s::text[] is null or not identifier = any (%(excluded_tasks)s::text[]))
    order by id limit %(most_tasks)s)"""

QUEUES = f"""queue as materialized (
    select id from :SCHEMA._private_job_queues where queue_name = any (%(queues)s::text[]) order by id
    limit {MOST_QUEUES})"""


def walk(criteria: Criteria, order: Order | None = None, *, has_place: bool = False, is_bounded: bool = False) -> Walk:
    """Return the walk to the jobs of a state, in the order of the state or in the reverse order.

    A bounded walk has only the first jobs of all ranges together, up to its limit, and some more.
    """
    order = order or order_of(criteria)
    if not is_possible(criteria, criteria.state):
        return _nowhere(criteria, order)
    if not criteria.ids and not criteria.keys and criteria.state is not State.RUNNING:
        number = walkable_group(criteria, order)
        if number is not None:
            return _by_group(criteria, order, number, has_place=has_place, is_bounded=is_bounded)
    is_any = criteria.state is State.ANY or criteria.ids or criteria.keys
    # No index has the times of jobs in any state, so the walk may as well compare their true times.
    clauses = where_in_order(criteria, run_at=TRUE_RUN_AT_OF_JOB if is_any else "job.run_at")
    conditions = [CONDITIONS[criteria.state], clauses.text()]
    if has_place:
        conditions += [order.after("job"), *_bounds_of_place(criteria, order)]
    if criteria.state in AVAILABLE and not is_any:
        return _along_levels(criteria, order, conditions, clauses.parameters, is_bounded=is_bounded)
    return _alone(criteria, order, conditions, clauses.parameters, has_place=has_place)


def _along_levels(
    criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any], *, is_bounded: bool
) -> Walk:
    """Return the walk to available jobs, whose indexes have a range for each task and level of priority."""
    parameters = parameters | LIMITS | _tasks(criteria)
    is_by_queue = has_few_queues(criteria)
    ctes, body = _by_queue(order, conditions) if is_by_queue else _by_level(criteria, order, conditions)
    if is_by_queue:
        parameters["queues"] = list(criteria.queues)
    if is_bounded:
        further, text = bounded(body, order)
        ctes = f"{ctes}, {further}"
    else:
        text = body("%(most)s", "", [])
    covers_names = not criteria.error_names and (is_by_queue or not criteria.queues)
    return Walk(ctes=ctes, body=text, parameters=parameters, covers_names=covers_names)


def _alone(
    criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any], *, has_place: bool
) -> Walk:
    """Return the walk by the names of the criteria themselves, without those of the groups."""
    if criteria.ids or criteria.keys:
        return _straight(criteria, order, conditions, parameters)
    if criteria.state is State.LIMITED:
        return _parked(criteria, order, has_place=has_place)
    if criteria.state in (State.RETRYING, State.FAILED, State.FAILING):
        return _by_task(criteria, order, conditions, parameters | LIMITS | _tasks(criteria))
    if criteria.state is State.RUNNING:
        return _running(criteria, order, conditions, parameters)
    return _plain(order, conditions, parameters)


def _tasks(criteria: Criteria) -> dict[str, Any]:
    """Return the parameters of TASKS."""
    return {"tasks": list(criteria.tasks) or None, "excluded_tasks": list(criteria.excluded_tasks) or None}


def looked_at_by(criteria: Criteria, order: Order | None = None) -> Clauses:
    """Return the conditions that the walk does not meet, so that the row of each job must be read."""
    clauses = where_looked_at(criteria)
    way = walk(criteria, order)
    if not way.covers_names:
        clauses.add_all(where_named(criteria))
    if not way.covers_groups:
        clauses.add_all(where_matched(criteria))
        clauses.add_all(where_grouped(criteria, without=way.covered_groups))
    return clauses


def _nowhere(criteria: Criteria, order: Order) -> Walk:
    """Return the walk of criteria that no job of the state can meet."""
    body = _select(order, ["false"])
    return Walk(ctes="", body=body, parameters={}, covers_names=True, covers_groups=True)


def _by_group(criteria: Criteria, order: Order, number: int, *, has_place: bool, is_bounded: bool) -> Walk:
    """Walk to the jobs of each member of a group. A job that several members have is found once."""
    members = [member_in(criteria, each) for each in criteria.any_of[number] if is_possible(each, criteria.state)]
    if not members:
        return _nowhere(criteria, order)
    bodies: list[str] = []
    parameters: dict[str, Any] = {}
    for place, member in enumerate(members):
        way = walk(member, order, has_place=has_place, is_bounded=is_bounded)
        own = {name: value for name, value in way.parameters.items() if name not in LIMITS}
        body = f"select * from ({f'with recursive {way.ctes}' if way.ctes else ''} {way.body}) as member_{place}"
        bodies.append(renamed(body, own, f"walk_{place}_"))
        parameters |= {f"walk_{place}_{name}": value for name, value in own.items()} | LIMITS
    is_covered = all(looked_at_by(each, order).conditions in ([], [NOT_TRIED]) for each in members)
    return Walk(
        ctes="",
        body=" union ".join(bodies),
        parameters=parameters,
        covers_names=not any(where_named(criteria).conditions),
        covered_groups=(number,) if is_covered else (),
    )


def renamed(text: str, parameters: dict[str, Any], prefix: str) -> str:
    """Return the text with a prefix before the names of these parameters."""
    return re.sub(r"%\((\w+)\)s", lambda found: f"%({prefix}{found[1]})s" if found[1] in parameters else found[0], text)


def _bounds_of_place(criteria: Criteria, order: Order) -> list[str]:
    """Return the bounds of a walk by level: the rest of the level where the last page ended, and all later levels."""
    if "priority" not in order.columns or criteria.ids or criteria.keys:
        return []
    beginning = "infinity" if order.is_descending else "-infinity"
    return [
        f"range.priority {order.operator}= %(after_priority)s",
        (
            f"job.run_at {order.operator}= case when range.priority = %(after_priority)s"
            f" then %(after_run_at)s::timestamptz else '{beginning}' end"
        ),
    ]


def _select(order: Order, conditions: list[str], limit: str = "%(most)s") -> str:
    """Return the select of one range, always with its order: the order makes the planner choose the index."""
    columns = ", ".join(f"job.{column}" for column in order.columns)
    return f"""
        select {columns} from :SCHEMA._private_jobs as job
        where {" and ".join(conditions)} order by {order.by("job")} limit {limit}"""


def _straight(criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any]) -> Walk:
    """Look up each id or key; otherwise the planner could read along the primary key until it finds them."""
    ids = "job.id = any (%(ids)s::bigint[])"
    keys = "job.key = any (%(keys)s::text[])"
    named = [condition for condition, given in ((ids, criteria.ids), (keys, criteria.keys)) if given]
    parameters = parameters | {"ids": list(criteria.ids), "keys": list(criteria.keys)}
    looked_up = f"select job.* from :SCHEMA._private_jobs as job where {' and '.join(named)} offset 0"
    columns = ", ".join(f"job.{column}" for column in order.columns)
    body = f"""
        select {columns} from ({looked_up}) as job
        where {" and ".join(conditions)} order by {order.by("job")} limit %(most)s"""
    return Walk(ctes="", body=body, parameters=parameters, covers_names=False)


def _plain(order: Order, conditions: list[str], parameters: dict[str, Any]) -> Walk:
    """Walk along the primary key."""
    return Walk(ctes="", body=_select(order, conditions), parameters=parameters, covers_names=False)


def _running(criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any]) -> Walk:
    """Walk along the index of locked jobs. They are few: the slots of the workers and the jobs that they prefetched."""
    clauses = where_named(criteria)
    clauses.add_all(where_matched(criteria))
    clauses.add_all(where_grouped(criteria))
    body = _select(order, [*conditions, *clauses.conditions])
    return Walk(ctes="", body=body, parameters=parameters | clauses.parameters, covers_names=True, covers_groups=True)


def _parked(criteria: Criteria, order: Order, *, has_place: bool) -> Walk:
    """Walk to the jobs that wait for a limit, along the table that has them. Each task has a range of its index."""
    clauses = where_in_order(criteria, run_at="parked.run_at")
    has_tasks = bool(criteria.tasks or criteria.excluded_tasks)
    conditions = ["parked.task_id = task.id"] if has_tasks else []
    if has_place:
        conditions.append(f"parked.job_id {order.operator} %(after_id)s::bigint")
    conditions += [CONDITIONS[State.LIMITED], clauses.text()]
    direction = " desc" if order.is_descending else ""
    body = f"""select found.id from {"task cross join lateral" if has_tasks else ""} (
        select job.id from :SCHEMA._private_limited_jobs as parked
        cross join lateral (
            select * from :SCHEMA._private_jobs as job where job.id = parked.job_id offset 0) as job
        where {" and ".join(conditions)} order by parked.job_id{direction} limit %(most)s) as found"""
    parameters = clauses.parameters | LIMITS | _tasks(criteria)
    covers_names = not criteria.queues and not criteria.error_names
    return Walk(ctes=TASKS if has_tasks else "", body=body, parameters=parameters, covers_names=covers_names)


def _by_task(criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any]) -> Walk:
    """Walk to failed jobs, which have an index of their own. Its first column is the task: one range for each task."""
    ranges = "task"
    conditions = ["job.task_id = task.id", *conditions]
    if criteria.state is State.FAILING:
        # The index has two halves, the jobs to retry and the permanently failed jobs; each half is in order.
        ranges += " cross join unnest(array[true, false]) as half(is_available)"
        conditions.append("job.is_available = half.is_available")
    if criteria.error_names:
        ranges += " cross join unnest(%(error_names)s::text[]) as error(name)"
        conditions.append(":SCHEMA._private_error_name(job.last_error) = error.name")
        parameters = parameters | {"error_names": list(criteria.error_names)}
    body = f"""
        select found.* from {ranges}
        cross join lateral ({_select(order, conditions)}) as found"""
    return Walk(ctes=TASKS, body=body, parameters=parameters, covers_names=not criteria.queues)


def _by_level(criteria: Criteria, order: Order, conditions: list[str]) -> tuple[str, Body]:
    """Walk to available jobs: on each level of priority, every task has its own range of an index."""
    # A job with flags is in the second part, or it has a queue.
    parts = {part: condition for part, condition in PARTS.items() if part != 1 or not has_flags(criteria)}
    first = " union all ".join(
        f"select {part}, task.id, ({_next_level(condition, 'task.id')}) from task" for part, condition in parts.items()
    )
    next_levels = " ".join(
        f"when {part} then ({_next_level(condition, 'level.task_id', above='level.priority')})"
        for part, condition in parts.items()
    )
    ctes = f"""{TASKS},
    level (part, task_id, priority) as (
        {first}
        union all
        select level.part, level.task_id, (case level.part {next_levels} end)::smallint
        from level where level.priority is not null),
    range as materialized (select * from level where priority is not null limit %(most_levels)s)"""
    range_conditions = ["job.task_id = range.task_id", "job.priority = range.priority", *conditions]

    def body(limit: str, joined: str, further: list[str]) -> str:
        return " union all ".join(
            f"""select found.* from range {joined} cross join lateral (
            {_select(order, [condition, *range_conditions, *further], limit)}) as found where range.part = {part}"""
            for part, condition in parts.items()
        )

    return ctes, body


def _next_level(condition: str, task_id: str, *, above: str | None = None, queue_id: str | None = None) -> str:
    further = f"and job.priority > {above}" if above else ""
    queue = f"and job.job_queue_id = {queue_id}" if queue_id else ""
    return f"""select job.priority from :SCHEMA._private_jobs as job
            where job.task_id = {task_id} {queue} and {condition} {further}
            order by job.priority, job.run_at, job.id limit 1"""


def _by_queue(order: Order, conditions: list[str]) -> tuple[str, Body]:
    """Walk to available jobs of some queues: each task has a range for each queue and level."""
    queued = PARTS[3]
    ctes = f"""{TASKS}, {QUEUES},
    level (task_id, queue_id, priority) as (
        select task.id, queue.id, ({_next_level(queued, "task.id", queue_id="queue.id")}) from task cross join queue
        union all
        select level.task_id, level.queue_id, (
            {_next_level(queued, "level.task_id", above="level.priority", queue_id="level.queue_id")})
        from level where level.priority is not null),
    range as materialized (select * from level where priority is not null limit %(most_levels)s)"""
    range_conditions = [
        queued,
        "job.task_id = range.task_id",
        "job.job_queue_id = range.queue_id",
        "job.priority = range.priority",
        *conditions,
    ]

    def body(limit: str, joined: str, further: list[str]) -> str:
        return f"""select found.* from range {joined}
        cross join lateral ({_select(order, [*range_conditions, *further], limit)}) as found"""

    return ctes, body
