"""Schedules and their runs, written directly to the tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connection

from django_graphile_worker import add_job, conf
from django_graphile_worker.job_flags import schedule_flag
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules import runs
from tests.support.factories import minutes_ago

KEEP = timedelta(days=1)


def make_schedule(name: str = "report", task: str = "report", **values: Any) -> Schedule:
    """Insert a schedule that no worker fires, because it is disabled unless the values say otherwise."""
    made = Schedule(name=name, task=task, **{"cron": "0 * * * *", "is_enabled": False, **values})
    made.save_base(force_insert=True)
    made.refresh_from_db()
    return made


def make_run(schedule_id: int, *, job_id: int | None = None, kind: str = "on_time", **columns: Any) -> int:
    """Insert the row of a run as the statement that fires does."""
    row = {"tick": minutes_ago(0), "schedule_id": schedule_id, "job_id": job_id, "kind": kind, **columns}
    return _insert_run(row)


def make_crontab_run(identifier: str, *, job_id: int | None = None, kind: str = "on_time", **columns: Any) -> int:
    """Insert the row of a run of an item of the crontab."""
    row = {"tick": minutes_ago(0), "crontab_identifier": identifier, "job_id": job_id, "kind": kind, **columns}
    return _insert_run(row)


def _insert_run(row: dict[str, Any]) -> int:
    names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    with connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{conf.current().schema}"._private_schedule_runs ({names}) values ({values}) returning id',
            row,
        )
        return int(cursor.fetchone()[0])


def fire(schedule: Schedule, payload: Any = None, *, keep: timedelta = KEEP, **options: Any) -> int:
    """Add the job of a run, and the row of the run; return the id of the job."""
    flags = [*options.pop("flags", ()), schedule_flag(schedule.id, keep)]
    job = add_job(schedule.task, payload or {}, flags=flags, **options)
    make_run(schedule.id, job_id=job.id)
    return job.id


def runs_of(schedule: Schedule, number: int = 20) -> list[runs.Run]:
    """Return the last runs of a schedule, the latest first."""
    with connection.cursor() as cursor:
        return runs.runs_of_schedules(cursor, [schedule.id], schema=conf.current().schema, number=number)[schedule.id]
