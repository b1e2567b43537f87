"""``schedules show`` and ``next``."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from django_graphile_worker.models import Schedule
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


def test_show__has_the_definition_the_next_times_and_the_last_runs() -> None:
    operate(
        "schedules", "add", "nightly", "send_report", "{tenant: 7}", "--cron", "0 4 * * *", "--missed-within", "2d",
        "--by", "maria",
    )  # fmt: skip
    told = operate("schedules", "show", "nightly")
    for text in ('payload    {"tenant": 7}', "missed     all within 2d", "by maria"):
        assert text in told.out
    assert told.out.count(" 04:00:00 (") == 5
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


def test_next__shows_times_across_a_time_change() -> None:
    operate("schedules", "add", "nightly", "send_report", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin")
    lines = operate("schedules", "next", "nightly", "--after", "2083-03-27", "--number", "3").out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "2083-03-27 02:30:00+01:00",
        "2083-03-28 03:00:00+02:00",
        "2083-03-29 02:30:00+02:00",
    ]
    assert operate("schedules", "next", "nightly", "--after", "2083-03-27", "--json").json[0] == (
        "2083-03-27T01:30:00+00:00"
    )


def test_next__says_that_a_schedule_does_not_fire() -> None:
    operate("schedules", "add", "nightly", "send_report", "--cron", "@daily", "--ends-at", "2083-01-01")
    assert operate("schedules", "next", "nightly", "--after", "2083-01-01").err == "nightly does not fire any more.\n"
    operate("schedules", "pause", "nightly")
    assert operate("schedules", "next", "nightly").err == "nightly is paused: it does not fire.\n"
    operate("schedules", "disable", "nightly")
    assert operate("schedules", "next", "nightly").err == "nightly is disabled: it does not fire.\n"
    with pytest.raises(CommandError, match="--after: expected 'now'"):
        operate("schedules", "next", "nightly", "--after", "later")


def test_next__without_a_name_shows_the_earliest_schedules() -> None:
    assert operate("schedules", "next").err == "No schedule will fire.\n"
    for name, interval in (("later", "2h"), ("sooner", "1h"), ("off", "1m")):
        operate("schedules", "add", name, "send_report", "--every", interval)
    operate("schedules", "disable", "off")
    assert [each["name"] for each in operate("schedules", "next", "--json").json] == ["sooner", "later"]
    assert operate("schedules", "next", "--number", "1").out.split()[-2:] == ["sooner", "send_report"]
