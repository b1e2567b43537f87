"""``schedules add`` and ``edit``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_graphile_worker.models import Schedule
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


def _schedule(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


def test_add__defines_a_schedule_with_all_options() -> None:
    told = operate(
        "schedules", "add", "nightly", "send_report", "{tenant: 7}", "--cron", "0 4 * * *",
        "--time-zone", "Europe/Berlin", "--starts-at", "2083-05-01", "--ends-at", "2083-06-01T12:00+00:00",
        "--queue", "reports", "--priority", "-3", "--max-attempts", "2", "--key", "nightly", "--missed-within", "2d",
        "--overlap", "skip", "--description", "For Ann.", "--by", "maria",
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


def test_add__takes_an_interval_or_a_single_time() -> None:
    operate("schedules", "add", "often", "send_report", "--every", "every 10 s", "--disabled")
    assert (_schedule("often").interval, _schedule("often").is_enabled) == (timedelta(seconds=10), False)
    told = operate("schedules", "add", "once", "send_report", "--run-at", "+5m", "--json").json
    assert told["run_at"] == told["next"][0]
    assert (told["name"], told["state"], told["revision"]) == ("once", "enabled", 0)


def test_dry_run__shows_the_next_times_and_changes_nothing() -> None:
    arguments = ("nightly", "--cron", "0 9 28 3 *", "--time-zone", "Europe/Berlin", "--dry-run")
    told = operate("schedules", "add", arguments[0], "send_report", *arguments[1:])
    assert told.out.startswith("Would add nightly: ")
    assert len(told.out.splitlines()) == 6
    assert "-03-28 09:00:00+0" in told.out
    assert not Schedule.objects.exists()
    operate("schedules", "add", "nightly", "send_report", "--every", "1h")
    assert operate("schedules", "edit", *arguments).out.startswith("Would change nightly: ")
    assert _schedule().cron is None


def test_edit__changes_only_what_is_named() -> None:
    operate("schedules", "add", "nightly", "send_report", "{a: 1}", "--cron", "0 4 * * *", "--queue", "reports")
    told = operate("schedules", "edit", "nightly", "--every", "1 day", "--queue", "", "--by", "ann")
    assert told.out.startswith("Changed nightly: send_report, ")
    found = _schedule()
    assert (found.cron, found.interval, found.queue_name) == (None, timedelta(days=1), None)
    assert (found.payload, found.changed_by, found.revision) == ({"a": 1}, "ann", 1)
    assert execute("select changed_by from {schema}._private_schedule_changes") == [("ann",)]
    operate("schedules", "edit", "nightly", "--rename", "daily", "--task", "sync_stock", "--payload", "{}")
    assert (_schedule("daily").task, _schedule("daily").payload) == ("sync_stock", {})
    operate("schedules", "edit", "daily", "--missed", "all", "--missed-within", "1h")
    operate("schedules", "edit", "daily", "--missed", "once")
    assert (_schedule("daily").missed, _schedule("daily").missed_within) == ("once", None)


def test_edit__without_a_difference_leaves_no_trace() -> None:
    operate("schedules", "add", "nightly", "send_report", "--cron", "0 4 * * *")
    told = operate("schedules", "edit", "nightly", "--cron", "0 4 * * *")
    assert (told.out, told.err) == ("", "nightly has these values already.\n")
    assert _schedule().revision == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "x", "send_report"], "One of --cron, --every and --run-at is required."),
        (
            ["add", "nightly", "send_report", "--every", "1h"],
            "There is a schedule 'nightly' already. Use schedules edit.",
        ),
        (["add", "x", "send_report", "--every", "often"], "--every: expected an interval like 'every 10 s'"),
        (["add", "x", "send_report", "--run-at", "soon"], "--run-at: expected 'now', a period like +5m"),
        (["add", "x", "send_report", "--every", "1h", "--priority", "high"], "--priority: expected a whole number"),
        (
            ["add", "x", "send_report", "--every", "1h", "--missed", "skip", "--missed-within", "1h"],
            "--missed-within cannot be used with",
        ),
        (["add", "x", "send_report", "--cron", "61 * * * *"], "cron: "),
        (["add", "x", "send_report", "--cron", "@daily", "--time-zone", "Europe/Berln"], "Europe/Berlin"),
        (["add", "x", "send_reprt", "--every", "1h"], "send_report"),
        (["add", "x", "send_report", "[1]", "--every", "1h"], "payload: "),
        (["edit", "nightli", "--cron", "@daily"], "There is no schedule 'nightli'. Did you mean 'nightly'?"),
        (["edit", "prune", "--cron", "@daily"], "A recurring task of the code has this name: graphile_worker crontab"),
        (["edit", "nightly"], "There is nothing to change."),
    ],
)
def test_mistakes__are_refused(arguments: list[str], message: str) -> None:
    operate("schedules", "add", "nightly", "send_report", "--cron", "0 4 * * *")
    with pytest.raises(CommandError) as refused:
        operate("schedules", *arguments)
    assert message in str(refused.value)
    assert [each.name for each in Schedule.objects.all()] == ["nightly"]


def test_two_times__are_refused(capsys: Any) -> None:
    with pytest.raises(CommandError, match="not allowed with argument"):
        operate("schedules", "add", "x", "send_report", "--cron", "@daily", "--every", "1h")
