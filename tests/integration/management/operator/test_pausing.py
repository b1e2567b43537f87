"""manage.py graphile_worker pause and resume."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from django_graphile_worker import pause, pauses
from tests.support.factories import make_queue
from tests.support.operating import operate

pytestmark = pytest.mark.django_db


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
    assert operate("pause").out == "flag bulk until it is resumed: audit\n"
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
    assert "paused" in operate("queues").out
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


def test_resume_of_what_is_not_paused__says_so_and_suggests() -> None:
    pause(flag="bulk")
    assert operate("resume", "--flag", "bulky").err == "The flag bulky was not paused. Did you mean 'bulk'?\n"


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
