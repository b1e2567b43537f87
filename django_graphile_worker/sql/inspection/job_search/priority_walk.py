"""The walk to all available jobs by their priorities, whatever their tasks: shorter than a walk in a list's order."""

from __future__ import annotations

from django_graphile_worker.sql.inspection.job_search.criteria import CONDITIONS, Criteria
from django_graphile_worker.sql.inspection.job_search.level_walks import LIMITS
from django_graphile_worker.sql.inspection.job_search.orders import Order, Walk
from django_graphile_worker.sql.inspection.job_search.row_conditions import where_in_order


def walk_by_priority(criteria: Criteria, *, columns: str = "job.id, job.run_at") -> Walk:
    """Return the walk to all ready or waiting jobs, whatever their task, for counting them.

    It reads the one index that has the available jobs of all tasks together. The ids are not in that index, so jobs
    that are due at the same time have no order.
    """
    clauses = where_in_order(criteria)
    order = Order(columns=("run_at",))
    conditions = ["job.priority = level.priority", CONDITIONS[criteria.state], clauses.text()]
    ctes = """level (priority) as (
        (select job.priority from :SCHEMA._private_jobs as job where job.is_available order by job.priority limit 1)
        union all
        select (
            select job.priority from :SCHEMA._private_jobs as job
            where job.is_available and job.priority > level.priority order by job.priority limit 1)
        from level where level.priority is not null),
    range as materialized (select * from level where priority is not null limit %(most_levels)s)"""
    body = f"""select found.* from range as level cross join lateral (
        select {columns} from :SCHEMA._private_jobs as job
        where {" and ".join(conditions)} order by {order.by("job")} limit %(most)s) as found"""
    return Walk(ctes=ctes, body=body, parameters=clauses.parameters | LIMITS, covers_names=True)
