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

from django_graphile_worker.sql.inspection.job_search.criteria import CONDITIONS, Criteria, State
from django_graphile_worker.sql.inspection.job_search.level_walks import (
    LIMITS,
    TASKS,
    select_range,
    tasks_of,
    walk_along_levels,
)
from django_graphile_worker.sql.inspection.job_search.orders import Order, Walk, order_of
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
    is_possible,
    member_in,
    walkable_group,
)
from django_graphile_worker.sql.jobs import NOT_TRIED, TRUE_RUN_AT_OF_JOB


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
        return walk_along_levels(criteria, order, conditions, clauses.parameters, is_bounded=is_bounded)
    return _alone(criteria, order, conditions, clauses.parameters, has_place=has_place)


def _alone(
    criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any], *, has_place: bool
) -> Walk:
    """Return the walk by the names of the criteria themselves, without those of the groups."""
    if criteria.ids or criteria.keys:
        return _straight(criteria, order, conditions, parameters)
    if criteria.state is State.LIMITED:
        return _parked(criteria, order, has_place=has_place)
    if criteria.state in (State.RETRYING, State.FAILED, State.FAILING):
        return _by_task(criteria, order, conditions, parameters | LIMITS | tasks_of(criteria))
    if criteria.state is State.RUNNING:
        return _running(criteria, order, conditions, parameters)
    return _plain(order, conditions, parameters)


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
    body = select_range(order, ["false"])
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
    return Walk(ctes="", body=select_range(order, conditions), parameters=parameters, covers_names=False)


def _running(criteria: Criteria, order: Order, conditions: list[str], parameters: dict[str, Any]) -> Walk:
    """Walk along the index of locked jobs. They are few: the slots of the workers and the jobs that they prefetched."""
    clauses = where_named(criteria)
    clauses.add_all(where_matched(criteria))
    clauses.add_all(where_grouped(criteria))
    body = select_range(order, [*conditions, *clauses.conditions])
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
    parameters = clauses.parameters | LIMITS | tasks_of(criteria)
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
        cross join lateral ({select_range(order, conditions)}) as found"""
    return Walk(ctes=TASKS, body=body, parameters=parameters, covers_names=not criteria.queues)
