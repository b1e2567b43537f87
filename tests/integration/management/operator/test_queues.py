"""``queues``, ``pause``, ``resume`` and ``limits``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_graphile_worker import Limit, pause, pauses, task
from django_graphile_worker.sql.inspection import queue_depths
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.limits import make_key, park_job, run_job
from tests.support.operating import LIVE, operate
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db
ACCOUNT = "account:{account}"


def test_queues__tell_holder_and_depth() -> None:
    make_queue("empty")
    make_queue("held", locked_by=LIVE)
    for _ in range(3):
        make_job("a", queue_name="held", run_at=minutes_ago(1))
    make_job("b", queue_name="held", run_at=minutes_ago(-9))
    make_job("b", queue_name="held", locked_by=LIVE)
    make_failed_job("b", queue_name="held")
    held, empty = operate("queues", "--json").json
    assert (held["queue_name"], held["locked_by"], held["waiting"], held["is_capped"]) == ("held", LIVE, 4, False)
    assert (empty["queue_name"], empty["locked_by"], empty["waiting"]) == ("empty", None, 0)
    assert [queue["queue_name"] for queue in operate("queues", "--held", "--json").json] == ["held"]
    assert [queue["queue_name"] for queue in operate("queues", "--queue", "empty", "--json").json] == ["empty"]


def test_queues__are_counted_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_depths, "MAX_COUNTED", 2)
    for _ in range(3):
        make_job("a", queue_name="deep")
    assert "2+" in operate("queues").out.split()


def test_pause__records_who_why_and_until_when() -> None:
    make_queue("mail")
    said = operate("pause", "--queue", "mail", "--until", "+1h", "--reason", "provider", "--by", "ann")
    assert said.out.startswith("Paused: queue mail until ")
    assert said.out.rstrip().endswith("), by ann: provider.")
    (paused,) = pauses()
    assert (paused.kind, paused.name, paused.reason, paused.by) == ("queue", "mail", "provider", "ann")


def test_pause__records_the_user_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "operator")
    operate("pause", "--flag", "bulk")
    assert pauses()[0].by == "operator"


def test_pause_without_a_target__lists_what_is_paused() -> None:
    assert operate("pause").err == "Nothing is paused.\n"
    pause(flag="bulk", reason="audit")
    assert operate("pause").out.splitlines()[1].split() == ["flag", "bulk", "-", "audit", "-"]
    (found,) = operate("pause", "--json").json
    assert (found["kind"], found["name"], found["until"], found["reason"]) == ("flag", "bulk", None, "audit")


def test_pause_of_an_unknown_queue__suggests_and_says_how_to_create_it() -> None:
    make_queue("mail")
    with pytest.raises(CommandError, match=r"no queue 'mall'\. Did you mean 'mail'\? .*: --create\."):
        operate("pause", "--queue", "mall")
    operate("pause", "--queue", "mall", "--create")
    assert pauses()[0].name == "mall"


def test_pause_with_an_end_but_no_target__is_refused() -> None:
    with pytest.raises(CommandError, match="Name what to pause with --queue, --task or --flag"):
        operate("pause", "--until", "+1h")


def test_pause_until_the_past__is_refused() -> None:
    with pytest.raises(CommandError, match="until: expected a time in the future"):
        operate("pause", "--flag", "bulk", "--until", "2000-01-01")


def test_status_and_queues__show_pauses() -> None:
    make_queue("mail")
    pause(queue="mail", reason="provider", by="ann")
    pause(flag="bulk")
    shown = operate("status").out
    assert "queue mail until it is resumed, by ann: provider" in shown
    assert "flag bulk until it is resumed" in shown
    assert {each["name"] for each in operate("status", "--json").json["paused"]} == {"mail", "bulk"}
    assert " yes " in operate("queues").out
    (queue,) = operate("queues", "--json").json
    assert (queue["is_paused"], queue["pause_reason"], queue["paused_by"], queue["locked_by"]) == (
        True,
        "provider",
        "ann",
        None,
    )
    assert "paused:" not in operate("workers").out


def test_resume__ends_a_pause() -> None:
    pause(flag="bulk")
    assert operate("resume", "--flag", "bulk").out == "Resumed: flag bulk.\n"
    assert pauses() == []


def test_resume_of_what_is_not_paused__says_so() -> None:
    assert operate("resume", "--flag", "bulky").err == "The flag bulky was not paused.\n"


def test_resume_all__ends_every_pause() -> None:
    pause(flag="bulk")
    pause(queue="mail", create=True)
    assert [each["name"] for each in operate("resume", "--all", "--json").json] == ["bulk", "mail"]
    assert pauses() == []
    assert operate("resume", "--all").err == "Nothing was paused.\n"


@pytest.mark.parametrize("arguments", [(), ("--all", "--flag", "bulk")])
def test_resume__needs_one_target(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="One of --queue, --task, --flag and --all"):
        operate("resume", *arguments)


@pytest.fixture
def limited_tasks() -> Iterator[None]:
    with own_tasks():
        task("send", limit=Limit(ACCOUNT, concurrency=3, rate="100/m", burst=20))(lambda payload: None)
        task("other", limit=Limit(concurrency=1), fair="{tenant}")(lambda payload: None)
        yield


def test_limits__are_listed_with_the_keys_that_jobs_wait_for(limited_tasks: None) -> None:
    assert "No key is at its limit." in operate("limits").err
    key = make_key(ACCOUNT, "account:42")
    running = run_job(key, "send")
    park_job(key, "send", run_at=minutes_ago(30), blocked_at=minutes_ago(20))
    make_key(ACCOUNT, "account:1")
    lines = [line.split() for line in operate("limits").out.splitlines()]
    assert ["account:{account}", "3", "100/m", "20", "send", "-", "-"] in lines
    assert ["other", "1", "-", "-", "other", "-", "-"] in lines
    assert ["account:42", "account:{account}", "1", "20", "m", "ago", "1", "-", "-"] in lines
    told = operate("limits", "--json").json
    assert [limit["name"] for limit in told["limits"]] == [ACCOUNT, "other"]
    (about,) = told["keys"]
    assert (about["key"], about["waiting"], about["running"], about["running_jobs"]) == ("account:42", 1, 1, [running])
    assert [each["key"] for each in operate("limits", "--key", "account:1", "--json").json["keys"]] == ["account:1"]


def test_more_keys__are_told(limited_tasks: None) -> None:
    for number in range(3):
        park_job(make_key(ACCOUNT, f"account:{number}"), "send")
    assert "More keys are at their limit; these are the first 2." in operate("limits", "--limit", "2").err


def test_numbers__are_set_and_reset(limited_tasks: None) -> None:
    told = operate("limits", "--set", ACCOUNT, "--concurrency", "5", "--rate", "1/2s")
    assert told.out == "account:{account}: 5 at once, 1/2s, for all workers from now on.\n"
    assert told.err == "Before: 3 at once, 100/m, burst 20. A number that was not given is no limit any more.\n"
    (limit, _) = operate("limits", "--json").json["limits"]
    assert (limit["concurrency"], limit["rate"], limit["burst"]) == (5, "1/2s", None)
    assert limit["changed_by"]
    assert operate("limits", "--reset", ACCOUNT).out == "account:{account} has the numbers of the code again.\n"
    assert "had the numbers of the code already" in operate("limits", "--reset", ACCOUNT).err
    assert operate("limits", "--json").json["limits"][0]["concurrency"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "acount:{account}", "--rate", "1/s"],
            "there is no limit 'acount:{account}'. Did you mean 'account:{account}'?",
        ),
        (["--reset", "x"], "Known limits: account:{account}, other."),
        (["--set", ACCOUNT], "--set needs --concurrency, --rate or both."),
        (["--set", ACCOUNT, "--rate", "often"], "limits: rate: expected a rate like '100/m'"),
        (["--set", ACCOUNT, "--burst", "5"], "limits: burst=5 needs a rate"),
        (["--rate", "1/s"], "--rate needs --set with the name of a limit."),
    ],
)
def test_mistakes__are_refused(limited_tasks: None, arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError) as refused:
        operate("limits", *arguments)
    assert message in str(refused.value)


def test_show__says_which_key_a_job_waits_for(limited_tasks: None) -> None:
    job_id = park_job(make_key(ACCOUNT, "account:42"), "send", blocked_at=minutes_ago(20))
    shown: Any = operate("show", str(job_id)).out
    assert "limited" in shown
    assert "the key 'account:42' is at its limit, 'account:{account}', since 20 m ago" in shown
    assert "1 due; they wait for a limit or for their turn" in operate("status").out
