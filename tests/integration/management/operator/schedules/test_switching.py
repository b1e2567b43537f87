"""``schedules pause``, ``resume``, ``enable``, ``disable``, ``run`` and ``delete``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.utils import timezone

from django_graphile_worker import registry, task
from django_graphile_worker.models import Schedule
from tests.support.operating import execute, job_row, operate

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def schedules() -> None:
    for name in ("a", "b"):
        operate("schedules", "set", name, "task=send_report", "payload={n: 1}", "interval=1h")


def _changers() -> set[str]:
    return {name for (name,) in execute("select changed_by from {schema}._private_schedule_changes")}


def test_pause__holds_until_a_time_or_until_resumed() -> None:
    told = operate("schedules", "pause", "a", "b", "--until", "+2h", "--by", "maria")
    assert [line.partition(" until ")[0] for line in told.out.splitlines()] == ["a is paused", "b is paused"]
    until = Schedule.objects.get(name="a").paused_until
    assert until is not None
    assert abs(until - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)
    assert operate("schedules", "pause", "a").out == "a is paused until it is resumed.\n"
    assert "paused until  it is resumed" in operate("schedules", "show", "a").out
    assert operate("schedules", "resume", "a", "b").out == "a is resumed from now on.\nb is resumed from now on.\n"
    assert operate("schedules", "resume", "a").err == "a was not paused.\n"
    assert "maria" in _changers()
    with pytest.raises(CommandError, match="--until: expected a time in the future, got 2020-01-01"):
        operate("schedules", "pause", "a", "--until", "2020-01-01")


def test_verbs__change_what_differs() -> None:
    operate("schedules", "pause", "a", "--by", "ann")
    told = operate("schedules", "resume", "a", "b", "--json").json
    assert told == [{"name": "a", "was_changed": True}, {"name": "b", "was_changed": False}]
    assert "ann" in _changers()


def test_delete__deletes_all_or_none() -> None:
    with pytest.raises(CommandError, match="There is no schedule 'c'"):
        operate("schedules", "delete", "a", "c")
    assert Schedule.objects.count() == 2
    assert operate("schedules", "delete", "a", "b", "--by", "eve").out == "a is deleted.\nb is deleted.\n"
    assert not Schedule.objects.exists()
    assert _changers() == {"eve"}


def test_run__adds_a_job() -> None:
    told = operate("schedules", "run", "a", "--by", "maria", "--json").json
    assert (told["name"], told["task"]) == ("a", "send_report")
    row = job_row(told["job_id"], "payload")
    assert row is not None
    assert row[0]["n"] == 1
    assert execute("select kind, run_by from {schema}._private_schedule_runs") == [("by_hand", "maria")]
    assert operate("schedules", "run", "a").out.startswith("Added send_report #")


def test_definition_that_cannot_be_read__is_shown_and_can_be_stopped() -> None:
    execute("update {schema}._private_schedules set \"interval\" = null, cron = 'often' where name = 'a'")
    told = operate("schedules")
    assert "cannot be read: " in told.out
    assert "cannot be read: " in operate("schedules", "show", "a").out
    assert operate("schedules", "set", "a", "is_enabled=false").out.startswith("Changed a: ")
    assert not Schedule.objects.get(name="a").is_enabled
    with pytest.raises(CommandError, match="cron: "):
        operate("schedules", "set", "a", "is_enabled=true")
    assert operate("schedules", "delete", "a").out == "a is deleted.\n"


def test_schedule_of_the_code__is_paused_and_run_but_changed_only_in_the_code() -> None:
    Schedule.objects.filter(name="a").update(is_from_code=True)
    for words in (("set", "a", "interval=1m"), ("set", "a", "is_enabled=false")):
        with pytest.raises(CommandError, match=r"'a' is @task\(every=\.\.\.\) in the code: change it there"):
            operate("schedules", *words)
    assert operate("schedules", "pause", "a").out == "a is paused until it is resumed.\n"
    assert operate("schedules", "resume", "a").out == "a is resumed from now on.\n"
    assert operate("schedules", "run", "a", "--json").json["name"] == "a"
    assert [each["name"] for each in operate("schedules", "export").json["schedules"]] == ["b"]
    with registry.tasks.isolated():

        @task("a", every=60)
        def in_code(payload: Any) -> None: ...

        with pytest.raises(CommandError, match="change it there"):
            operate("schedules", "delete", "a")
    assert operate("schedules", "delete", "a").out == "a is deleted.\n"
