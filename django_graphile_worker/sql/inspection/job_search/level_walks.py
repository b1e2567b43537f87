"""Walks to available jobs: their indexes have a range for each task and level of priority.

The parts of a walk that other walks have, too, are here as well.
"""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria
from django_graphile_worker.sql.inspection.job_search.orders import Order, Walk
from django_graphile_worker.sql.inspection.job_search.range_bounds import Body, bounded
from django_graphile_worker.sql.inspection.job_search.walk_choice import MOST_QUEUES, has_few_queues
from django_graphile_worker.sql.jobs import IS_AVAILABLE_IN_QUEUE

# Two indexes hold the available jobs, one of them those in queues. The first column of each index is the task.
PARTS = {
    1: "job.is_available and job.job_queue_id is null",
    2: "job.is_available and job.job_queue_id > 0",
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


def walk_along_levels(
    criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any], *, is_bounded: bool
) -> Walk:
    """Return the walk to available jobs, whose indexes have a range for each task and level of priority."""
    parameters = parameters | LIMITS | tasks_of(criteria)
    is_by_queue = has_few_queues(criteria)
    ctes, body = _by_queue(order, conditions) if is_by_queue else _by_level(order, conditions)
    if is_by_queue:
        parameters["queues"] = list(criteria.queues)
    if is_bounded:
        further, text = bounded(body, order)
        ctes = f"{ctes}, {further}"
    else:
        text = body("%(most)s", "", [])
    covers_names = not criteria.error_names and (is_by_queue or not criteria.queues)
    return Walk(ctes=ctes, body=text, parameters=parameters, covers_names=covers_names)


def tasks_of(criteria: Criteria) -> dict[str, Any]:
    """Return the parameters of TASKS."""
    return {"tasks": list(criteria.tasks) or None, "excluded_tasks": list(criteria.excluded_tasks) or None}


def select_range(order: Order, conditions: list[str], limit: str = "%(most)s") -> str:
    """Return the select of one range, always with its order: the order makes the planner choose the index."""
    columns = ", ".join(f"job.{column}" for column in order.columns)
    return f"""
        select {columns} from :SCHEMA._private_jobs as job
        where {" and ".join(conditions)} order by {order.by("job")} limit {limit}"""


def _by_level(order: Order, conditions: list[str]) -> tuple[str, Body]:
    """Walk to available jobs: on each level of priority, every task has its own range of an index."""
    first = " union all ".join(
        f"select {part}, task.id, ({_next_level(condition, 'task.id')}) from task" for part, condition in PARTS.items()
    )
    next_levels = " ".join(
        f"when {part} then ({_next_level(condition, 'level.task_id', above='level.priority')})"
        for part, condition in PARTS.items()
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
            {select_range(order, [condition, *range_conditions, *further], limit)}) as found
            where range.part = {part}"""
            for part, condition in PARTS.items()
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
    queued = IS_AVAILABLE_IN_QUEUE
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
        cross join lateral ({select_range(order, [*range_conditions, *further], limit)}) as found"""

    return ctes, body
