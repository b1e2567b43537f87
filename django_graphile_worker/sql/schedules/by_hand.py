"""Adds a job for a schedule because a person or a program asks for it, whatever the times of the schedule are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_graphile_worker.sql.schedules.firing import MOST_RUNS, TickJob
from django_graphile_worker.sql.schema import statement

# The job and the note of its run are committed with the transaction of the caller. A schedule that is deleted at the
# same time has neither.
RUN = f"""/* gw:run-schedule */
with schedule as materialized (
    select schedule.id, schedule.task, clock.now,
        (schedule.payload || jsonb_build_object('_cron', jsonb_build_object('ts',
            to_char(clock.now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'backfilled', false)))::json
            as payload
    from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
    join only :SCHEMA._private_schedules as schedule on schedule.id = %(id)s::bigint
    for key share of schedule
), added as materialized (
    select job.id, schedule.now
    from schedule
    cross join lateral :SCHEMA.add_job(
        identifier => schedule.task, payload => schedule.payload, queue_name => %(queue_name)s::text,
        run_at => %(now)s::timestamptz, max_attempts => %(max_attempts)s::int, job_key => %(job_key)s::text,
        priority => %(priority)s::int, flags => %(flags)s::text[], job_key_mode => %(mode)s::text) as job
), noted as (
    insert into :SCHEMA._private_schedule_runs (schedule_id, tick, job_id, kind, run_by)
    select %(id)s::bigint, added.now, added.id, 'by_hand', %(by)s::text from added
), forgotten as (
    delete from only :SCHEMA._private_schedule_runs as run
    using added
    where run.schedule_id = %(id)s::bigint and run.id <= (
        select kept.id from only :SCHEMA._private_schedule_runs as kept
        where kept.schedule_id = %(id)s::bigint order by kept.id desc offset {MOST_RUNS - 1} limit 1)
)
select added.id from added"""


def run(
    cursor: Any, schedule_id: int, job: TickJob, *, by: str, schema: str, now: datetime | None = None
) -> int | None:
    """Add the job, and note who asked for it; return its id, or None if there is no such schedule."""
    parameters = {
        "id": schedule_id,
        "now": now,
        "queue_name": job.queue_name,
        "max_attempts": job.max_attempts,
        "job_key": job.job_key,
        "mode": None if job.job_key is None else job.job_key_mode or "replace",
        "priority": job.priority,
        "flags": list(job.flags),
        "by": by,
    }
    cursor.execute(statement(RUN, schema), parameters)
    row = cursor.fetchone()
    return None if row is None else int(row[0])
