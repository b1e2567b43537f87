"""``schedules list``."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_graphile_worker.models import Schedule
from tests.support.factories import make_job
from tests.support.operating import execute, operate
from tests.support.schedule_rows import make_run

pytestmark = pytest.mark.django_db


def _names(*arguments: str) -> list[str]:
    return [each["name"] for each in operate("schedules", "list", *arguments, "--json").json["schedules"]]


def test_list__shows_schedules_and_the_recurring_tasks_of_the_code() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=0 4 * * *")
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


def test_list__filters_by_task_state_and_text() -> None:
    for name, task, more in (
        ("a", "send_report", ()),
        ("b", "sync_stock", ("description=For ACME.",)),
        ("c", "send_report", ("is_enabled=false",)),
    ):
        operate("schedules", "set", name, f"task={task}", "interval=1h", *more)
    operate("schedules", "pause", "b")
    Schedule.objects.create(name="d", task="send_report", run_at=timezone.now() + timedelta(hours=1))
    execute("update {schema}._private_schedules set next_at = 'infinity' where name = 'd'")
    assert _names() == ["a", "b", "c", "d"]
    assert _names("--task", "send_report") == ["a", "c", "d"]
    assert [_names("--state", state) for state in ("enabled", "paused", "disabled", "ended")] == [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
    ]
    assert _names("--search", "acme") == ["b"]
    told = operate("schedules", "list", "--limit", "2")
    assert "these are the first 2. Use --limit to list more." in told.err
    assert "There are more" not in operate("schedules", "list", "--limit", "4").err


def test_schedule_of_an_unknown_task__is_told() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=0 4 * * *")
    execute("update {schema}._private_schedules set task = 'gone'")
    assert "unknown task" in operate("schedules").out


def test_no_schedules__is_told() -> None:
    assert operate("schedules", "list", "--task", "gone").err == "No schedules.\n"


def test_schedule_whose_runs_fail_and_are_tried_again__is_failing() -> None:
    for name in ("broken", "sound"):
        operate("schedules", "set", name, "task=send_report", "interval=1h")
    job = make_job("send_report", attempts=3, last_error="It broke.")
    schedule = Schedule.objects.get(name="broken")
    make_run(schedule.pk, job_id=job)
    execute("update {schema}._private_schedules set last_job_id = %s where name = 'broken'", [job])
    assert _names("--state", "failing") == ["broken"]
    assert [each["state"] for each in operate("schedules", "--json").json["schedules"]] == ["failing", "enabled"]
    assert "failing" in operate("schedules").out
    assert "failing" in operate("schedules", "show", "broken").out


def test_list__by_time_has_the_earliest_first() -> None:
    for name, minutes in (("a", 90), ("b", 30), ("c", 60)):
        operate("schedules", "set", name, "task=send_report", f"run_at=+{minutes}m")
    assert _names("--by-time") == ["a", "b", "c"], "no worker has computed their times yet"
    execute("update {schema}._private_schedules set next_at = run_at")
    assert _names("--by-time") == ["b", "c", "a"]
    assert _names("--by-time", "--limit", "1") == ["b"]


def test_state__may_be_a_problem() -> None:
    operate("schedules", "set", "a", "task=send_report", "interval=1h")
    assert _names("--state", "late") == _names("--state", "missed") == []
    execute("update {schema}._private_schedules set next_at = now() - interval '1 hour', last_missed_at = now()")
    assert _names("--state", "late") == _names("--state", "missed") == ["a"]
