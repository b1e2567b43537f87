"""Runs of items of the crontab that no tick adds, and items that are forgotten."""

from __future__ import annotations

import pytest
from django.db import connection

from django_graphile_worker import conf
from django_graphile_worker.sql.cron import crontabs
from django_graphile_worker.sql.schedules import crontab_runs, runs
from tests.support.factories import make_job, minutes_ago
from tests.support.schedule_runs import make_crontab_run

pytestmark = pytest.mark.django_db


def test_run_by_hand__says_who_asked_for_it() -> None:
    job_id = make_job()
    with connection.cursor() as cursor:
        crontab_runs.note_by_hand(cursor, "nightly", job_id, by="maria", schema=_schema())
        (run,) = runs.runs_of_crontabs(cursor, ["nightly"], schema=_schema())["nightly"]
    assert (run.kind, run.run_by, run.job_id, run.number) == ("by_hand", "maria", job_id, 1)


def test_runs_of_forgotten_items__are_deleted() -> None:
    for name in ("known", "unknown", "old", "other"):
        make_crontab_run(name, kind="missed", added_at=minutes_ago(401 * 1440))
    make_crontab_run("known", kind="missed")
    make_crontab_run("other", kind="missed", added_at=minutes_ago(399 * 1440))
    make_crontab_run("unknown", kind="missed")
    with connection.cursor() as cursor:
        crontab_runs.forget(cursor, schema=_schema())
        crontabs.register(cursor, ["known", "old", "other"], schema=_schema())
        make_crontab_run("known", kind="missed")
        make_crontab_run("old", kind="missed", added_at=minutes_ago(401 * 1440))
        make_crontab_run("other", kind="missed", added_at=minutes_ago(399 * 1440))
        crontab_runs.forget(cursor, schema=_schema())
        found = runs.runs_of_crontabs(cursor, ["known", "unknown", "old", "other"], schema=_schema())
    assert {name: len(each) for name, each in found.items()} == {"known": 1, "unknown": 0, "old": 0, "other": 1}


def _schema() -> str:
    return conf.current().schema
