"""``schedules pause``, ``resume`` and ``run``, and the recurring tasks of the code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.utils import timezone

from django_graphile_worker.models import Schedule
from tests.integration.management.operator.schedules.conftest import make
from tests.support.factories import minutes_ago
from tests.support.operating import execute, job_row, operate

pytestmark = pytest.mark.django_db
CRONTAB = "0 4 * * 1-5 send_report ?id=receipts&fill=2d&tz=Asia/Tokyo {order: 1}"
LAST = datetime(2026, 1, 5, 19, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def schedules(settings: Any, project: None) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": CRONTAB}
    execute("insert into {schema}._private_known_crontabs values ('receipts', %s, %s)", [minutes_ago(9), LAST])
    for name in ("a", "b"):
        make(name, payload={"n": 1})


def _changers() -> set[str]:
    return {name for (name,) in execute("select changed_by from {schema}._private_schedule_changes")}


def test_pause__holds_until_a_time_or_until_resumed() -> None:
    told = operate("schedules", "pause", "a", "b", "--until", "+2h", "--by", "maria")
    assert [line.partition(" until ")[0] for line in told.out.splitlines()] == ["a is paused", "b is paused"]
    until = Schedule.objects.get(name="a").paused_until
    assert until is not None
    assert abs(until - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)
    assert operate("schedules", "pause", "a").out == "a is paused until it is resumed.\n"
    assert "it is resumed" in operate("schedules", "show", "a").out
    told = operate("schedules", "resume", "a", "b")
    assert told.out == "a is resumed from now on.\nb is resumed from now on.\n"
    assert operate("schedules", "resume", "a").err == "a was not paused.\n"
    assert operate("schedules", "resume", "a", "--json").json == [{"name": "a", "was_changed": False}]
    assert "maria" in _changers()
    with pytest.raises(CommandError, match="--until: expected a time in the future, got 2020-01-01"):
        operate("schedules", "pause", "a", "--until", "2020-01-01")


def test_pause__changes_all_or_none() -> None:
    with pytest.raises(CommandError, match=r"There is no schedule 'c'\. graphile_worker schedules lists the names\.$"):
        operate("schedules", "pause", "a", "c")
    assert not Schedule.objects.exclude(paused_until=None).exists()


def test_run__adds_a_job() -> None:
    told = operate("schedules", "run", "a", "--by", "maria", "--json").json
    assert (told["name"], told["task"]) == ("a", "send_report")
    row = job_row(told["job_id"], "payload")
    assert row is not None
    assert row[0]["n"] == 1
    assert execute("select kind, run_by from {schema}._private_schedule_runs") == [("by_hand", "maria")]
    assert operate("schedules", "run", "a").out.startswith("Added send_report #")


def test_schedule_of_the_code__is_paused_and_run_but_not_exported() -> None:
    Schedule.objects.filter(name="a").update(is_from_code=True)
    assert operate("schedules", "pause", "a").out == "a is paused until it is resumed.\n"
    assert operate("schedules", "resume", "a").out == "a is resumed from now on.\n"
    assert operate("schedules", "run", "a", "--json").json["name"] == "a"
    assert [each["name"] for each in operate("schedules", "export").json["schedules"]] == ["b"]


def item() -> dict[str, Any]:
    return dict(operate("schedules", "show", "receipts", "--json").json)


def test_item__is_shown_with_its_pattern_zone_next_times_and_the_last() -> None:
    shown = item()
    times = [datetime.fromisoformat(moment) for moment in shown["next"]]
    assert len(times) == 5
    assert all(moment.hour == 19 and moment.minute == 0 and moment.weekday() in {6, 0, 1, 2, 3} for moment in times)
    assert times == sorted(set(times))
    assert datetime.fromisoformat(shown["last_execution"]) == LAST
    assert (shown["time_zone"], shown["backfill_seconds"]) == ("Asia/Tokyo", 2 * 86_400)
    with timezone.override("Asia/Tokyo"):
        text = operate("schedules", "show", "receipts", "--next", "2").out
    assert "Monday to Friday (Asia/Tokyo)" in text
    assert "2026-01-06 04:00:00" in text
    assert text.count(" 04:00:00 (in ") == 2
    assert "next" in operate("schedules", "show", "prune").out


def test_items_of_others__are_listed_and_shown() -> None:
    execute("insert into {schema}._private_known_crontabs values ('of-node', %s, null)", [minutes_ago(9)])
    assert [each["identifier"] for each in operate("schedules", "--json").json["others"]] == ["of-node"]
    assert operate("schedules").out.splitlines()[-1].split()[-3:] == ["-", "other", "code"]
    assert "of-node" in operate("schedules", "show", "of-node").out
    assert operate("schedules", "show", "of-node", "--json").json["identifier"] == "of-node"


def test_crontab__with_errors_names_them(settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": "61 * * * * send_report"}
    with pytest.raises(CommandError, match="61"):
        operate("schedules")


def test_pause_of_an_item__keeps_the_last_run() -> None:
    assert operate("schedules", "pause", "receipts", "a").out.splitlines() == [
        "receipts is paused until it is resumed.",
        "a is paused until it is resumed.",
    ]
    assert (item()["is_paused"], item()["next"]) == (True, [])
    assert datetime.fromisoformat(item()["last_execution"]) == LAST
    paused = operate("schedules", "list", "--state", "paused", "--json").json["code"]
    assert [each["identifier"] for each in paused] == ["receipts"]
    assert execute("select last_execution = 'infinity' from {schema}._private_known_crontabs") == [(True,)]
    assert operate("schedules", "pause", "receipts").err == "receipts was paused already.\n"
    with pytest.raises(CommandError, match="--until"):
        operate("schedules", "pause", "receipts", "--until", "+1h")


def test_resume_of_an_item__is_from_now_on() -> None:
    operate("schedules", "pause", "receipts")
    assert operate("schedules", "resume", "receipts").out == "receipts is resumed from now on.\n"
    assert (item()["is_paused"], len(item()["next"])) == (False, 5)
    assert datetime.fromisoformat(item()["last_execution"]) == LAST
    assert datetime.fromisoformat(item()["known_since"]) > minutes_ago(1)
    assert operate("schedules", "resume", "receipts").err == "receipts was not paused.\n"


def test_item_that_no_worker_has_had__is_not_paused() -> None:
    execute("delete from {schema}._private_known_crontabs")
    with pytest.raises(CommandError, match=r"'receipts' is in no worker yet: start a worker with it first"):
        operate("schedules", "pause", "receipts")


def test_run__refuses_an_item() -> None:
    with pytest.raises(CommandError, match="a recurring task of the code, which can be shown, paused and resumed"):
        operate("schedules", "run", "receipts")
