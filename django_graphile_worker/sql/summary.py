"""The queue in a few numbers, none of which takes long: nothing is counted beyond a cap."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_graphile_worker.sql.inspection import LEVELS
from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.reading import within_python_years as readable
from django_graphile_worker.sql.schema import statement

# Nobody acts differently on eleven thousand than on ten.
CAP = 10_000

COUNT_READY = f"""/* gw:count-ready */
with recursive {LEVELS}
select count(*), {readable("min(found.run_at)")}
from level cross join lateral (
    select job.run_at from :SCHEMA._private_jobs as job
    where job.is_available and job.priority = level.priority and job.run_at <= now()
    order by job.run_at limit %(limit)s
) as found
where level.priority is not null"""

COUNT_SCHEDULED = f"""/* gw:count-scheduled */
with recursive {LEVELS}
select count(*), {readable("min(found.run_at)")}
from level cross join lateral (
    select job.run_at from :SCHEMA._private_jobs as job
    where job.is_available and job.priority = level.priority and job.run_at > now() and job.attempts = 0
    order by job.run_at limit %(limit)s
) as found
where level.priority is not null"""


def _count_failed_before(tag: str, condition: str) -> str:
    return f"""/* gw:count-{tag} */
select count(*), {readable("min(found.run_at)")}
from :SCHEMA._private_tasks as task cross join lateral (
    select job.run_at from :SCHEMA._private_jobs as job
    where job.task_id = task.id and job.locked_at is null and job.attempts > 0 and {condition}
    order by job.run_at limit %(limit)s
) as found"""


COUNT_RETRYING = _count_failed_before("retrying", "job.is_available and job.run_at > now()")
COUNT_FAILED = _count_failed_before("failed", "not job.is_available")

COUNT_RUNNING = f"""/* gw:count-running */
select count(*), {readable("min(found.locked_at)")}
from (
    select job.locked_at from :SCHEMA._private_jobs as job
    where job.locked_at is not null
    order by job.locked_at limit %(limit)s
) as found"""

COUNTS = {
    "ready": COUNT_READY,
    "scheduled": COUNT_SCHEDULED,
    "running": COUNT_RUNNING,
    "retrying": COUNT_RETRYING,
    "failed": COUNT_FAILED,
}


class Count(NamedTuple):
    """How many jobs are in a state, and the earliest of their times (running: when they were taken)."""

    number: int
    is_capped: bool
    earliest: datetime | None


def count_jobs(cursor: Cursor, state: str, *, schema: str, cap: int = CAP) -> Count:
    """Count jobs of a state, up to the cap."""
    cursor.execute(statement(COUNTS[state], schema), {"limit": cap + 1})
    number, earliest = cursor.fetchone()
    return Count(min(number, cap), number > cap, earliest)
