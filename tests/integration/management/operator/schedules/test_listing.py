"""``schedules list`` and ``show``."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.core.management.base import CommandError
from django.utils import timezone

from django_graphile_worker.models import Schedule
from tests.integration.management.operator.schedules.conftest import make
from tests.support.factories import make_job
from tests.support.operating import execute, operate
from tests.support.schedule_rows import make_run

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def _names(*arguments: str) -> list[str]:
    return [each["name"] for each in operate("schedules", "list", *arguments, "--json").json["schedules"]]


def test_list__shows_schedules_and_the_recurring_tasks_of_the_code() -> None:
    make()
    for arguments in (("schedules",), ("schedules", "list")):
        lines = [line.split() for line in operate(*arguments).out.splitlines()]
        assert [(line[0], line[1], line[-1]) for line in lines] == [
            ("NAME", "TASK", "FROM"),
            ("nightly", "send_report", "database"),
            ("prune", "prune", "code"),
        ]
    told = operate("schedules", "--json").json
    assert len(told["schedules"][0]["next"]) == 5
    assert told["code"][0]["identifier"] == "prune"
    assert told["schedules"][0]["is_from_code"] is False
    Schedule.objects.update(is_from_code=True)
    assert [line.split()[-1] for line in operate("schedules").out.splitlines()] == ["FROM", "code", "code"]


def test_list__filters_by_task_and_state() -> None:
    make("a")
    make("b", task="sync_stock").pause()
    make("c", is_enabled=False)
    make("d", cron=None, run_at=timezone.now() + HOUR)
    execute("update {schema}._private_schedules set next_at = 'infinity' where name = 'd'")
    assert _names() == ["a", "b", "c", "d"]
    assert _names("--task", "send_report") == ["a", "c", "d"]
    states = ("enabled", "paused", "disabled", "ended", "missed", "late")
    assert [_names("--state", state) for state in states] == [["a"], ["b"], ["c"], ["d"], [], []]
    execute("update {schema}._private_schedules set next_at = now() - interval '1 hour', last_missed_at = now()")
    assert _names("--state", "late", "--task", "send_report") == ["a", "d"]
    assert _names("--state", "missed") == ["a", "b", "c", "d"]
    assert "these are the first 2. Use --limit to list more." in operate("schedules", "list", "--limit", "2").err
    assert operate("schedules", "list", "--limit", "4").err == ""
    assert operate("schedules", "list", "--task", "gone").err == "No schedules.\n"


def test_schedule_of_an_unknown_task__is_told() -> None:
    make()
    execute("update {schema}._private_schedules set task = 'gone'")
    assert "unknown task" in operate("schedules").out


def test_schedule_whose_runs_fail_and_are_tried_again__is_failing() -> None:
    broken = make("broken")
    make("sound")
    job = make_job("send_report", attempts=3, last_error="It broke.")
    make_run(broken.pk, job_id=job)
    execute("update {schema}._private_schedules set last_job_id = %s where name = 'broken'", [job])
    assert _names("--state", "failing") == ["broken"]
    assert [each["state"] for each in operate("schedules", "--json").json["schedules"]] == ["failing", "enabled"]
    assert "failing" in operate("schedules").out
    assert "failing" in operate("schedules", "show", "broken").out


def test_show__has_the_definition_the_next_times_and_the_last_runs() -> None:
    schedule = make(payload={"tenant": 7}, missed="all", missed_within=timedelta(days=2))
    told = operate("schedules", "show", "nightly")
    for text in ('payload        {"tenant": 7}', "missed         all", "missed within  2 d"):
        assert text in told.out
    assert told.out.count(" 04:00:00+00:00 (") == 5
    assert told.err == "It has not run yet.\n"
    for kind, number in (("missed", 3), ("overlap", 1)):
        execute(
            "insert into {schema}._private_schedule_runs (schedule_id, tick, kind, number) values (%s, now(), %s, %s)",
            [schedule.pk, kind, number],
        )
    overlap, missed = operate("schedules", "show", "nightly").out.splitlines()[-2:]
    assert " overlap  1 " in overlap
    assert " missed   3 " in missed
    (latest, _) = operate("schedules", "show", "nightly", "--json").json["runs"]
    assert (latest["kind"], latest["number"], latest["job_id"]) == ("overlap", 1, None)


def test_show__has_times_across_a_time_change() -> None:
    make(cron="30 2 * * *", time_zone="Europe/Berlin")
    lines = operate("schedules", "show", "nightly", "--after", "2083-03-27", "--next", "3").out.splitlines()
    assert [line.partition(" (")[0].removeprefix("next").strip() for line in lines[-3:]] == [
        "2083-03-27 02:30:00+01:00",
        "2083-03-28 03:00:00+02:00",
        "2083-03-29 02:30:00+02:00",
    ]
    told = operate("schedules", "show", "nightly", "--after", "2083-03-27", "--json").json
    assert told["next"][0] == "2083-03-27T01:30:00+00:00"


def test_show__says_that_a_schedule_does_not_fire() -> None:
    schedule = make(ends_at=datetime.fromisoformat("2083-01-01T00:00:00+00:00"))
    assert "It does not fire any more." in operate("schedules", "show", "nightly", "--after", "2083-01-01").err
    schedule.is_enabled = False
    schedule.save()
    told = operate("schedules", "show", "nightly")
    assert "disabled" in told.out
    assert "It does not fire.\n" in told.err
    with pytest.raises(CommandError, match="--after: expected 'now'"):
        operate("schedules", "show", "nightly", "--after", "later")


def test_definition_that_cannot_be_read__is_shown() -> None:
    make()
    execute("update {schema}._private_schedules set cron = 'often'")
    assert "cannot be read: " in operate("schedules").out
    assert "cannot be read: " in operate("schedules", "show", "nightly").out


def test_unknown_verb__is_suggested() -> None:
    with pytest.raises(CommandError, match=r"expected a verb \(list, show, pause,.*got 'lst'. Did you mean 'list'\?"):
        operate("schedules", "lst")


def test_options__may_precede_or_follow_the_verb() -> None:
    assert operate("schedules", "--json", "list").json == operate("schedules", "list", "--json").json
