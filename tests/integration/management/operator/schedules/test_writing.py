"""``schedules set``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management.base import CommandError
from django.test import override_settings

from django_graphile_worker.models import Schedule
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


def _schedule(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


def test_set__defines_a_schedule_with_all_fields() -> None:
    told = operate(
        "schedules", "set", "nightly", "task=send_report", "payload={tenant: 7}", "cron=0 4 * * *",
        "time_zone=Europe/Berlin", "starts_at=2083-05-01", "ends_at=2083-06-01T12:00+00:00", "queue_name=reports",
        "priority=-3", "max_attempts=2", "job_key=nightly", "missed_within=2d", "overlap=skip",
        "description=For Ann.", "--by", "maria",
    )  # fmt: skip
    assert told.out.startswith("Added nightly: send_report, ")
    assert "; next at 2083-05-01 02:00:00 (in " in told.out
    found = _schedule()
    assert (found.task, found.payload, found.cron, found.time_zone) == (
        "send_report",
        {"tenant": 7},
        "0 4 * * *",
        "Europe/Berlin",
    )
    # A time without an offset is one of the time zone of the schedule.
    assert found.starts_at == datetime(2083, 4, 30, 22, tzinfo=UTC)
    assert found.ends_at == datetime(2083, 6, 1, 12, tzinfo=UTC)
    assert (found.queue_name, found.priority, found.max_attempts, found.job_key) == ("reports", -3, 2, "nightly")
    assert (found.missed, found.missed_within, found.overlap) == ("all", timedelta(days=2), "skip")
    assert (found.description, found.changed_by, found.is_enabled) == ("For Ann.", "maria", True)


def test_set__takes_an_interval_or_a_single_time() -> None:
    operate("schedules", "set", "often", "task=send_report", "interval=every 10 s", "is_enabled=false")
    assert (_schedule("often").interval, _schedule("often").is_enabled) == (timedelta(seconds=10), False)
    told = operate("schedules", "set", "once", "task=send_report", "run_at=+5m", "--json").json
    assert told["run_at"] == told["next"][0]
    assert (told["name"], told["state"], told["revision"]) == ("once", "enabled", 0)


def test_dry_run__shows_the_next_times_and_changes_nothing() -> None:
    arguments = ("nightly", "cron=0 9 28 3 *", "time_zone=Europe/Berlin")
    told = operate("schedules", "set", *arguments, "task=send_report", "--dry-run")
    assert told.out.startswith("Would add nightly: ")
    assert len(told.out.splitlines()) == 6
    assert "-03-28 09:00:00+0" in told.out
    assert not Schedule.objects.exists()
    operate("schedules", "set", "nightly", "task=send_report", "interval=1h")
    assert operate("schedules", "set", *arguments, "--dry-run").out.startswith("Would change nightly: ")
    assert _schedule().cron is None


def test_set__changes_only_what_is_named() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "payload={a: 1}", "cron=0 4 * * *", "queue_name=reports")
    told = operate("schedules", "set", "nightly", "interval=1 day", "queue_name=", "--by", "ann")
    assert told.out.startswith("Changed nightly: send_report, ")
    found = _schedule()
    assert (found.cron, found.interval, found.queue_name) == (None, timedelta(days=1), None)
    assert (found.payload, found.changed_by, found.revision) == ({"a": 1}, "ann", 1)
    assert execute("select changed_by from {schema}._private_schedule_changes") == [("ann",)]
    operate("schedules", "set", "nightly", "name=daily", "task=sync_stock", "payload=")
    assert (_schedule("daily").task, _schedule("daily").payload) == ("sync_stock", {})
    operate("schedules", "set", "daily", "missed=all", "missed_within=1h")
    operate("schedules", "set", "daily", "missed=once")
    assert (_schedule("daily").missed, _schedule("daily").missed_within) == ("once", None)


def test_set__without_a_difference_leaves_no_trace() -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=0 4 * * *")
    told = operate("schedules", "set", "nightly", "cron=0 4 * * *")
    assert (told.out, told.err) == ("", "nightly has these values already.\n")
    assert _schedule().revision == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "task=send_report"], "cron"),
        (["x", "task=send_report", "interval=often"], "interval: expected an interval like 'every 10 s'"),
        (["x", "task=send_report", "run_at=soon"], "run_at: expected 'now', a period like +5m"),
        (["x", "task=send_report", "run_at=+99999999y"], "run_at: expected 'now', a period like +5m"),
        (["x", "task=send_report", "interval=1h", "priority=high"], "priority: expected a whole number"),
        (["x", "task=send_report", "interval=1h", "is_enabled=1"], "is_enabled: expected true or false"),
        (["x", "task=send_report", "interval=1h", "missed=skip", "missed_within=1h"], "missed"),
        (["x", "task=send_report", "cron=@daily", "interval=1h"], "has only one of cron, interval, run_at"),
        (["x", "task=send_report", "cron=61 * * * *"], "cron: "),
        (["x", "task=send_report", "cron=@daily", "time_zone=Europe/Berln"], "Europe/Berlin"),
        (["x", "task=send_reprt", "interval=1h"], "send_report"),
        (["x", "task=send_report", "payload=[1]", "interval=1h"], "payload: "),
        (["x", "task=send_report", "prority=1"], "got 'prority=1'. Did you mean 'priority'?"),
        (["x", "paused_until=+1h"], "Expected FIELD=VALUE with one of name, "),
        (["nightly", "cron"], "Expected FIELD=VALUE with one of name, "),
        (["nightli", "cron=@daily"], "There is no schedule 'nightli'. Did you mean 'nightly'? A new schedule needs"),
        (["prune", "cron=@daily"], "It is a recurring task of the code, which can be shown, paused and resumed."),
    ],
)
def test_errors__are_refused(arguments: list[str], message: str) -> None:
    operate("schedules", "set", "nightly", "task=send_report", "cron=0 4 * * *")
    with pytest.raises(CommandError) as refused:
        operate("schedules", "set", *arguments)
    assert message in str(refused.value)
    assert [each.name for each in Schedule.objects.all()] == ["nightly"]


def test_unknown_verb__is_suggested() -> None:
    with pytest.raises(CommandError) as refused:
        operate("schedules", "lst")
    assert "expected a verb (list, show, set," in str(refused.value)
    assert "got 'lst'. Did you mean 'list'?" in str(refused.value)


def test_options__may_precede_or_follow_the_verb() -> None:
    assert operate("schedules", "--json", "list").json == operate("schedules", "list", "--json").json


def test_messages__are_english_whatever_the_language_of_the_site() -> None:
    with override_settings(LANGUAGE_CODE="de"), pytest.raises(CommandError, match="task"):
        operate("schedules", "set", "x" * 300, "task=unknown", "cron=61 * * * *")
