"""The oldest ready job that no pause keeps from starting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection.job_search.counts import OldestReady
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.index_walks import walk
from django_graphile_worker.sql.inspection.job_search.level_walks import PARTS
from django_graphile_worker.sql.jobs import IS_READY
from django_graphile_worker.sql.statements import statement

# No index passes over the jobs of a paused queue or flag. So many jobs of a task and priority are examined at most: a
# job behind more paused jobs than that is not found.
MOST_EXAMINED = 10_000

_PAUSED_IDS = """paused_task as materialized (
    select task.id from :SCHEMA._private_tasks as task where task.identifier = any (%(paused_tasks)s::text[])),
paused_queue as materialized (
    select queue.id from :SCHEMA._private_job_queues as queue
    where queue.queue_name = any (%(paused_queues)s::text[]))"""


def _oldest_of_part(part: int) -> str:
    """Return the select of the oldest job of each task and priority; each part of the jobs has an index of its own."""
    return f"""select found.run_at, found.id, range.task_id from range cross join lateral (
        select examined.run_at, examined.id from (
            select job.run_at, job.id, job.job_queue_id, job.flags from :SCHEMA._private_jobs as job
            where {PARTS[part]} and {IS_READY} and job.task_id = range.task_id and job.priority = range.priority
            order by job.priority, job.run_at, job.id limit {MOST_EXAMINED}) as examined
        where (examined.job_queue_id is null
                or examined.job_queue_id not in (select paused_queue.id from paused_queue))
            and (examined.flags ?| %(paused_flags)s::text[]) is not true
        order by examined.run_at, examined.id limit 1) as found
    where range.part = {part} and range.task_id not in (select paused_task.id from paused_task)"""


def oldest_unpaused(
    cursor: Any, pauses: Sequence[Pause], *, schema: str, tasks: tuple[str, ...] = ()
) -> OldestReady | None:
    """Return the job that has been ready for the longest time, of all jobs that are not paused."""
    way = walk(Criteria(state=State.READY, tasks=tasks))
    text = f"""/* gw:oldest-unpaused */
    with recursive {way.ctes}, {_PAUSED_IDS}
    select {readable("oldest.run_at")}, oldest.id, coalesce((
        select task.identifier from :SCHEMA._private_tasks as task where task.id = oldest.task_id), '')
    from ({" union all ".join(map(_oldest_of_part, PARTS))}) as oldest
    order by oldest.run_at, oldest.id limit 1"""
    paused = {f"paused_{kind}s": [each.name for each in pauses if each.kind is kind] for kind in PauseKind}
    cursor.execute(statement(text, schema), way.parameters | paused)
    row = cursor.fetchone()
    return None if row is None else OldestReady._make(row)
