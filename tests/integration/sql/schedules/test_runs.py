"""What became of the ticks of schedules, and of items of the crontab."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_graphile_worker import conf
from django_graphile_worker.sql.schedules import from_code, runs
from django_graphile_worker.sql.schedules.firing import MAX_RUNS
from django_graphile_worker.sql.schedules.runs import RunOutcome
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.schedule_runs import make_crontab_run, make_run, make_schedule

pytestmark = pytest.mark.django_db


def test_runs__of_many_schedules_are_read_at_once() -> None:
    first, second, third = (make_schedule(name).id for name in ("first", "second", "third"))
    for minutes in (3, 2, 1):
        make_run(first, tick=minutes_ago(minutes), kind="missed", number=minutes)
    made = make_run(second, job_id=make_job(), tick=minutes_ago(5), kind="by_hand", run_by="maria")
    with CaptureQueriesContext(connection) as queries, connection.cursor() as cursor:
        found = runs.runs_of_schedules(cursor, [first, second, third], schema=_schema(), number=2)
    assert len(queries) == 1
    assert [run.number for run in found[first]] == [1, 2]
    assert {run.outcome for run in found[first]} == {RunOutcome.MISSED}
    (run,) = found[second]
    assert (run.id, run.schedule_id, run.crontab_identifier) == (made, second, None)
    assert (run.kind, run.run_by, run.outcome) == ("by_hand", "maria", RunOutcome.WAITING)
    assert timedelta(minutes=5) <= datetime.now(UTC) - run.tick < timedelta(minutes=6)
    assert datetime.now(UTC) - run.added_at < timedelta(minutes=1)
    assert found[third] == []


def test_runs__of_crontab_items_are_read_by_identifier() -> None:
    job_id = make_failed_job()
    make_crontab_run("nightly", job_id=job_id)
    make_crontab_run("hourly", kind="missed")
    with connection.cursor() as cursor:
        found = runs.runs_of_crontabs(cursor, ["nightly", "new"], schema=_schema())
    (run,) = found["nightly"]
    assert (run.crontab_identifier, run.schedule_id, run.outcome) == ("nightly", None, RunOutcome.FAILED)
    assert run.outcome.has_ended
    assert found["new"] == []


def test_running_job__has_run_since_it_was_locked() -> None:
    schedule = make_schedule().id
    make_run(schedule, job_id=make_job(locked_by="django-worker-1/1", locked_at=minutes_ago(2), attempts=1))
    with connection.cursor() as cursor:
        (run,) = runs.runs_of_schedules(cursor, [schedule], schema=_schema())[schedule]
    assert run.outcome is RunOutcome.RUNNING
    assert run.ended_at is None
    assert 120 <= (run.duration or 0.0) < 180


def test_rows_of_a_crontab_item__are_about_the_latest_fifty() -> None:
    make_crontab_run("hourly", kind="missed")
    last = MAX_RUNS + 30
    for number in range(last):
        make_crontab_run("nightly", kind="missed", number=number + 1)
    with connection.cursor() as cursor:
        found = runs.runs_of_crontabs(cursor, ["nightly", "hourly"], schema=_schema(), number=100)
    numbers = [run.number for run in found["nightly"]]
    assert MAX_RUNS <= len(numbers) < MAX_RUNS + 8
    assert numbers == list(range(last, last - len(numbers), -1))
    assert len(found["hourly"]) == 1


def _schema() -> str:
    return conf.current().schema


def test_run_by_hand__says_who_asked_for_it() -> None:
    job_id = make_job()
    with connection.cursor() as cursor:
        runs.note_by_hand(cursor, "nightly", job_id, by="maria", schema=_schema())
        (run,) = runs.runs_of_crontabs(cursor, ["nightly"], schema=_schema())["nightly"]
    assert (run.kind, run.run_by, run.job_id, run.number) == ("by_hand", "maria", job_id, 1)


def test_runs_of_forgotten_items__are_deleted() -> None:
    for name in ("known", "unknown", "old", "other"):
        make_crontab_run(name, kind="missed", added_at=minutes_ago(401 * 1440))
    make_crontab_run("known", kind="missed")
    make_crontab_run("other", kind="missed", added_at=minutes_ago(399 * 1440))
    make_crontab_run("unknown", kind="missed")
    with connection.cursor() as cursor:
        runs.forget_runs(cursor, schema=_schema())
        from_code.register(cursor, ["known", "old", "other"], schema=_schema())
        make_crontab_run("known", kind="missed")
        make_crontab_run("old", kind="missed", added_at=minutes_ago(401 * 1440))
        make_crontab_run("other", kind="missed", added_at=minutes_ago(399 * 1440))
        runs.forget_runs(cursor, schema=_schema())
        found = runs.runs_of_crontabs(cursor, ["known", "unknown", "old", "other"], schema=_schema())
    assert {name: len(each) for name, each in found.items()} == {"known": 1, "unknown": 0, "old": 0, "other": 1}
