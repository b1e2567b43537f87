"""Schedules, and items of the crontab, that need attention."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import conf
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules import listing
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.schedule_runs import make_crontab_run, make_run, make_schedule

pytestmark = pytest.mark.django_db


def test_failing__is_a_schedule_whose_last_run_failed_or_is_tried_again() -> None:
    failed = _schedule_with("failed", make_failed_job())
    _schedule_with("succeeded", _ended_job(1))
    _schedule_with("recovered", make_failed_job(), _ended_job(1))
    again = _schedule_with("failing and running", _ended_job(2), make_job(), make_job())
    _schedule_with("running", _ended_job(1), make_job())
    retried = _schedule_with("retried", _ended_job(1), make_job(attempts=3, last_error="It broke."))
    first = _schedule_with(
        "running after a failure", make_job(attempts=2, last_error="It broke."), make_job(attempts=1)
    )
    _schedule_with("succeeded beside a retry", make_job(attempts=3, last_error="It broke."), _ended_job(1))
    _schedule_with("unknown", 404)
    _schedule_with("new")
    disabled = _schedule_with("disabled", make_failed_job())
    _update("_private_schedules", disabled, is_enabled=False)
    with connection.cursor() as cursor:
        assert listing.counts(cursor, schema=_schema()).failing == 4
        every = Schedule.objects.values_list("pk", flat=True)
        assert listing.failing_ids(cursor, every, schema=_schema()) == {failed, again, retried, first}


def test_failing__is_an_item_of_the_crontab_whose_last_ended_run_failed() -> None:
    make_crontab_run("nightly", job_id=make_failed_job())
    make_crontab_run("nightly", job_id=make_job())
    make_crontab_run("nightly", kind="missed")
    make_crontab_run("hourly", job_id=_ended_job(1))
    make_crontab_run("forgotten", job_id=make_failed_job())
    make_crontab_run("daily", job_id=_ended_job(1))
    make_crontab_run("daily", job_id=make_job(attempts=1, last_error="It broke."))
    with connection.cursor() as cursor:
        assert listing.failing_crontabs(cursor, ["daily", "hourly", "nightly", "new"], schema=_schema()) == [
            "daily",
            "nightly",
        ]


def test_counts__say_how_many_need_attention() -> None:
    _schedule_with("failed", make_failed_job())
    make_crontab_run("nightly", job_id=make_failed_job())
    make_crontab_run("hourly", kind="missed")
    make_crontab_run("daily", kind="missed", added_at=minutes_ago(25 * 60))
    _schedule_with("missed", last_missed_at=minutes_ago(23 * 60))
    _schedule_with("missed long ago", last_missed_at=minutes_ago(25 * 60))
    _schedule_with("late", next_at=minutes_ago(2))
    _schedule_with("due", next_at=minutes_ago(0.5))
    _schedule_with("never computed", next_at="-infinity", changed_at=minutes_ago(2))
    _schedule_with("just changed", next_at="-infinity")
    with connection.cursor() as cursor:
        found = listing.counts(cursor, schema=_schema(), crontab_identifiers=["nightly", "hourly", "daily"])
    assert found == listing.Counts(failing=2, missed=2, late=2)


def _schedule_with(name: str, *job_ids: int, **columns: Any) -> int:
    """Return the id of a schedule with runs of these jobs, the oldest first."""
    schedule = make_schedule(name, is_enabled=True)
    for job_id in job_ids:
        make_run(schedule.id, job_id=job_id)
    values = {"next_at": minutes_ago(-60), **columns}
    if job_ids:
        values["last_job_id"] = job_ids[-1]
    _update("_private_schedules", schedule.id, **values)
    return schedule.id


def _ended_job(status: int) -> int:
    """Return the id of a job that has ended, and whose result is kept."""
    job_id = make_job()
    with connection.cursor() as cursor:
        cursor.execute(f'delete from "{_schema()}"._private_jobs where id = %s', [job_id])
        cursor.execute(
            f'insert into "{_schema()}"._private_results (job_id, task_identifier, status, added_at, expires_at)'
            " values (%s, 'task', %s, now(), now())",
            [job_id, status],
        )
    return job_id


def _update(table: str, row_id: int, **columns: Any) -> None:
    values = ", ".join(f'"{name}" = %({name})s' for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(f'update "{_schema()}".{table} set {values} where id = %(id)s', {**columns, "id": row_id})


def _schema() -> str:
    return conf.current().schema
