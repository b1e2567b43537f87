"""``schedules show``."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from django_graphile_worker.models import Schedule
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


def test_show__has_the_definition_the_next_times_and_the_last_runs() -> None:
    operate(
        "schedules", "set", "nightly", "task=send_report", "payload={tenant: 7}", "cron=0 4 * * *", "missed_within=2d",
        "--by", "maria",
    )  # fmt: skip
    told = operate("schedules", "show", "nightly")
    for text in ('payload    {"tenant": 7}', "missed     all within 2d", "by maria"):
        assert text in told.out
    assert told.out.count(" 04:00:00+00:00 (") == 5
    assert told.err == "It has not run yet.\n"
    schedule_id = Schedule.objects.get().pk
    for kind, number in (("missed", 3), ("overlap", 1)):
        execute(
            "insert into {schema}._private_schedule_runs (schedule_id, tick, kind, number) values (%s, now(), %s, %s)",
            [schedule_id, kind, number],
        )
    told = operate("schedules", "show", "nightly")
    lines = [line.split() for line in told.out.splitlines()]
    assert ["overlap", "-", "-", "-", "-"] in [line[-5:] for line in lines]
    assert " missed x 3 " in told.out
    (latest, _) = operate("schedules", "show", "nightly", "--json").json["runs"]
    assert (latest["kind"], latest["number"], latest["job_id"]) == ("overlap", 1, None)


def test_show__has_times_across_a_time_change() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=30 2 * * *", "time_zone=Europe/Berlin")
    lines = operate("schedules", "show", "nightly", "--after", "2083-03-27", "--next", "3").out.splitlines()
    assert [line.partition(" (")[0].removeprefix("  next").strip() for line in lines[-3:]] == [
        "2083-03-27 02:30:00+01:00",
        "2083-03-28 03:00:00+02:00",
        "2083-03-29 02:30:00+02:00",
    ]
    told = operate("schedules", "show", "nightly", "--after", "2083-03-27", "--json").json
    assert told["next"][0] == "2083-03-27T01:30:00+00:00"


def test_show__says_that_a_schedule_does_not_fire() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=@daily", "ends_at=2083-01-01")
    assert "It does not fire any more." in operate("schedules", "show", "nightly", "--after", "2083-01-01").err
    operate("schedules", "set", "nightly", "is_enabled=false")
    told = operate("schedules", "show", "nightly")
    assert "disabled" in told.out
    assert "It does not fire.\n" in told.err
    with pytest.raises(CommandError, match="--after: expected 'now'"):
        operate("schedules", "show", "nightly", "--after", "later")
