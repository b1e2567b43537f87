"""Workers that do not register: those of graphile-worker for Node.js, as far as the database shows them."""

from __future__ import annotations

from typing import Any

from django_graphile_worker.sql.inspection.lock_holders import MOST_LOCKS
from django_graphile_worker.sql.jobs import IS_LOCKED
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.sql.workers import WORKER_PREFIX

# Node's worker leaves its name in the jobs that it holds. While it waits, its session shows the text of its LISTEN,
# which no worker of this package sends.
OTHER_WORKERS = f"""/* gw:other_workers */
    select worker.name from (
        select distinct :SCHEMA._private_worker_of(job.locked_by) as name from (
            select job.locked_by from :SCHEMA._private_jobs as job where {IS_LOCKED}
            order by job.locked_at limit {MOST_LOCKS}) as job
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
