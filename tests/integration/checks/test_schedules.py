"""The checks of the schedules in a database."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import task
from django_graphile_worker.models import Schedule
from tests.integration.checks.conftest import found
from tests.support.rows import in_quotes

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def report() -> None:
    task("report")(lambda payload: None)
    names = ("nightly", "weekly", "monthly")
    Schedule.objects.bulk_create([Schedule(name=name, task="report", cron="0 4 * * *") for name in names])


def test_schedules_that_can_fire() -> None:
    assert found(databases=["default"]) == []


def test_task_that_is_gone__is_named_once_with_a_suggestion() -> None:
    Schedule.objects.exclude(name="nightly").update(task="reprot")
    (warning,) = found(databases=["default"])
    assert warning.id == "graphile_worker.W011"
    assert warning.msg.startswith(
        "The schedule 'monthly' and 1 more in the database 'default': expected a task of this"
    )
    assert "'report'" in str(warning.hint)
    Schedule.objects.update(is_enabled=False)
    assert found(databases=["default"]) == []


def test_times_that_cannot_be_read() -> None:
    Schedule.objects.filter(name="nightly").update(cron="61 4 * * *")
    Schedule.objects.filter(name="weekly").update(time_zone="Europe/Berln", cron=None, interval="10")
    zone, line = sorted(found(databases=["default"]), key=lambda message: message.msg, reverse=True)
    assert {zone.id, line.id} == {"graphile_worker.W012"}
    assert "'weekly'" in zone.msg
    assert "Europe/Berlin" in zone.msg
    assert "61" in line.msg


def test_name_of_a_crontab_item__of_this_project_or_of_another(configure: Any, worker_schema: str) -> None:
    configure(CRONTAB="0 4 * * * report ?id=nightly")
    with connection.cursor() as cursor:
        table = f"{in_quotes(worker_schema)}._private_known_crontabs"
        cursor.execute(f"insert into {table} (identifier, known_since) values ('weekly', now())")
    (warning,) = found(databases=["default"])
    assert warning.id == "graphile_worker.W013"
    assert "got 'nightly', 'weekly'. Both fire" in warning.msg
