"""manage.py graphile_worker jobs."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


def _ids(*arguments: str) -> list[int]:
    return [job["id"] for job in operate("jobs", "--json", *arguments).json]


@pytest.fixture
def one_of_each() -> dict[str, int]:
    return {
        "ready": make_job("a", run_at=minutes_ago(1)),
        "scheduled": make_job("a", run_at=minutes_ago(-5)),
        "running": make_job("a", locked_by="worker-1", attempts=1),
        "retrying": make_job("a", run_at=minutes_ago(-5), attempts=3),
        "failed": make_failed_job("a", run_at=minutes_ago(-5)),
    }


@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "retrying", "failed"])
@pytest.mark.parametrize("narrowed", [(), ("--task", "a")])
def test_jobs__of_a_state_are_those_and_no_others(
    one_of_each: dict[str, int], state: str, narrowed: tuple[str, ...]
) -> None:
    (job,) = operate("jobs", "--json", "--state", state, *narrowed).json
    assert (job["id"], job["state"]) == (one_of_each[state], state)


def test_jobs__without_a_state_are_all_newest_first(one_of_each: dict[str, int]) -> None:
    assert _ids() == sorted(one_of_each.values(), reverse=True)


def test_jobs__of_a_task_are_all_of_it_state_by_state(one_of_each: dict[str, int]) -> None:
    make_job("b")
    order = ["running", "ready", "scheduled", "retrying", "failed"]
    assert _ids("--task", "a") == [one_of_each[state] for state in order]


def test_jobs__that_are_ready_come_in_the_order_of_the_claim() -> None:
    late = make_job("a", priority=5, run_at=minutes_ago(9))
    second = make_job("b", priority=0, run_at=minutes_ago(1), queue_name="q", flags={"f": True})
    first = make_job("a", priority=0, run_at=minutes_ago(2), flags={"f": True})
    urgent = make_job("a", priority=-3, run_at=minutes_ago(0.5))
    assert _ids("--state", "ready") == [urgent, first, second, late]
    assert _ids("--state", "ready", "--limit", "2") == [urgent, first]
    assert _ids("--state", "ready", "--task", "a") == [urgent, first, late]


@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "retrying", "failed"])
def test_jobs__of_a_queue_are_those_and_no_others(state: str) -> None:
    states: dict[str, dict[str, Any]] = {
        "ready": {"run_at": minutes_ago(1)},
        "scheduled": {"run_at": minutes_ago(-1)},
        "running": {"locked_by": "worker-1"},
        "retrying": {"run_at": minutes_ago(-1), "attempts": 1},
        "failed": {"attempts": 25, "max_attempts": 25},
    }
    columns = states[state]
    make_job("a", **columns)
    make_job("a", queue_name="other", **columns)
    wanted = [make_job("a", queue_name="mail", **columns), make_job("b", queue_name="mail", **columns)]
    assert sorted(_ids("--state", state, "--queue", "mail")) == wanted
    assert _ids("--state", state, "--queue", "mail", "--task", "b") == wanted[1:]
    assert sorted(_ids("--queue", "mail")) == wanted


def test_jobs__say_when_there_are_more() -> None:
    for _ in range(3):
        make_job("a")
    assert "first 2" in operate("jobs", "--limit", "2").err
    assert "first" not in operate("jobs", "--limit", "3").err


def test_jobs__of_a_mistyped_task_suggest_the_right_one() -> None:
    make_job("send_receipt")
    said = operate("jobs", "--task", "send_recipt")
    assert said.out == ""
    assert "No job has the task 'send_recipt'. Did you mean 'send_receipt'?" in said.err


def test_jobs__show_times_in_the_current_time_zone_and_from_now() -> None:
    make_job("a", run_at=datetime(2040, 1, 1, 12, tzinfo=UTC))
    make_job("b", run_at=minutes_ago(180))
    with timezone.override("Asia/Tokyo"):
        shown = operate("jobs").out
    assert "due 2040-01-01 21:00 " in shown
    assert "due 3 h ago" in shown


def test_jobs__have_ids_exact_to_the_last_digit(settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    execute("alter table {schema}._private_jobs alter column id restart with 9007199254740993")
    job_id = make_job("a")
    assert "9007199254740993" in operate("jobs").out.split()
    assert operate("show", str(job_id), "--json").json["id"] == 9007199254740993


def test_jobs__whose_times_no_python_can_hold_are_listed_all_the_same() -> None:
    make_job("a", run_at="infinity")
    assert len(_ids("--state", "scheduled")) == 1


GIVEN_UP = "shop.errors.CardStolen: no\n\nNot tried again after attempt 2 of 25.\n\nTraceback"


def test_jobs__that_were_given_up_tell_how_often_they_really_ran() -> None:
    job_id = make_failed_job("charge", error=GIVEN_UP)
    (job,) = operate("jobs", "--json").json
    assert (job["attempts"], job["attempts_made"], job["max_attempts"]) == (25, 2, 25)
    assert "2/25" in operate("jobs").out
    shown = operate("show", str(job_id)).out
    assert f"waits because  it was given up after attempt 2 of 25; to try it again: retry {job_id}" in shown
    assert "attempts       2 of 25" in shown


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_jobs__on_a_terminal_of_80_columns_keep_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    make_failed_job("charge_card", error=GIVEN_UP, updated_at=minutes_ago(3), key="order:4711", queue_name="payments")
    make_job("charge_card", run_at=minutes_ago(-30.5), attempts=7, last_error="TimeoutError: no answer")
    out = _Terminal()
    call_command("graphile_worker", "jobs", stdout=out)
    heading, retrying, failed = out.getvalue().splitlines()
    assert heading.split() == ["ID", "STATE", "TASK", "QUEUE", "WHEN", "TRIED", "ERROR"]
    assert all(len(line) <= 80 for line in (heading, retrying, failed))
    assert "due in 30 m " in retrying
    assert "7/25  TimeoutError: " in retrying
    assert "failed 3 m ago" in failed
    assert "CardStolen: no" in failed


def test_notes__are_no_alarm() -> None:
    err = _Terminal()
    for _ in range(2):
        make_job("a")
    call_command("graphile_worker", "jobs", "--limit", "1", stdout=_Terminal(), stderr=err, force_color=True)
    assert "There are more" in err.getvalue()
    assert "\x1b[" not in err.getvalue()


@pytest.fixture
def labelled() -> dict[str, int]:
    names = ("shop.tasks.send", "shop.tasks.send@emails", "shop.tasks.pack@emails", "plain")
    return {name: make_job(name) for name in names}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--label", "emails"), ["shop.tasks.pack@emails", "shop.tasks.send@emails"]),
        (("--label", "default"), ["plain", "shop.tasks.send"]),
        (("--label", "emails", "--task", "shop.tasks.send@emails"), ["shop.tasks.send@emails"]),
        (("--label", "unknown"), []),
    ],
)
def test_jobs__of_a_label(labelled: dict[str, int], arguments: tuple[str, ...], found: list[str]) -> None:
    assert sorted(_ids(*arguments)) == sorted(labelled[name] for name in found)


def test_jobs__show_the_label_apart_from_the_task(labelled: dict[str, int]) -> None:
    heading, *lines = operate("jobs", "--task", "shop.tasks.send@emails").out.splitlines()
    assert heading.split()[:4] == ["ID", "STATE", "TASK", "LABEL"]
    assert lines[0].split()[2:4] == ["shop.tasks.send", "emails"]
    assert "LABEL" not in operate("jobs", "--task", "plain").out
    assert operate("jobs", "--json", "--task", "plain").json[0]["label"] == "default"
