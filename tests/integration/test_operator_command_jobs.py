"""manage.py graphile_worker: the verbs about jobs."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_graphile_worker.management.operator.verbs import errors
from tests.support.factories import TOO_DEEP, make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import execute, job_row, make_worker, operate

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
    assert "2040-01-01 21:00:00 (in " in shown
    assert "(3 h ago)" in shown


def test_jobs__have_ids_exact_to_the_last_digit(settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    execute("alter table {schema}._private_jobs alter column id restart with 9007199254740993")
    job_id = make_job("a")
    assert "9007199254740993" in operate("jobs").out.split()
    assert operate("show", str(job_id), "--json").json["id"] == 9007199254740993


def test_jobs__whose_times_no_python_can_hold_are_listed_all_the_same() -> None:
    make_job("a", run_at="infinity")
    assert len(_ids("--state", "scheduled")) == 1


def test_show__tells_everything() -> None:
    job_id = make_job(
        "a",
        {"order": [1, 2]},
        key="the-key",
        queue_name="mail",
        flags={"slow": True},
        attempts=2,
        last_error="ValueError: no\n  in line 2",
        run_at=minutes_ago(-10),
    )
    shown = operate("show", str(job_id)).out
    for part in (str(job_id), "the-key", "mail", "slow", "2 of 25", '"order": [', "  ValueError: no", "    in line 2"):
        assert part in shown
    told = operate("show", f"#{job_id}", "--json").json
    assert told["payload"] == {"order": [1, 2]}
    assert told["last_error"] == "ValueError: no\n  in line 2"


def test_show__says_why_a_job_waits() -> None:
    make_worker("django-worker-1", tasks=["known"])
    make_worker("django-worker-2", tasks=["unknown"], beat=minutes_ago(10))
    make_queue("mail", locked_by="django-worker-1")

    def reasons(job_id: int) -> str:
        return " / ".join(operate("show", str(job_id), "--json").json["waits_because"])

    assert reasons(make_job("known")) == ""
    assert "due in 5 m" in reasons(make_job("known", run_at=minutes_ago(-5)))
    assert "queue 'mail' is held by django-worker-1" in reasons(make_job("known", queue_name="mail"))
    assert "no live worker" in reasons(make_job("unknown"))
    assert "attempts are used up" in reasons(make_failed_job("known"))
    assert reasons(make_job("known", locked_by="django-worker-1")) == ""


def test_show__of_a_payload_that_python_cannot_decode_shows_its_text() -> None:
    job_id = make_job("a")
    deep = TOO_DEEP
    execute("update {schema}._private_jobs set payload = %s::json where id = %s", [deep, job_id])
    assert deep in operate("show", str(job_id)).out
    execute("update {schema}._private_jobs set payload = %s::json where id = %s", ['"\\ud800"', job_id])
    assert "\\ud800" in operate("show", str(job_id)).out
    assert operate("show", str(job_id), "--json").json["payload"] == "\ud800"


def test_show__of_a_job_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CommandError, match="Expected the id of a job, got 99"):
        operate("show", "99")


@pytest.mark.parametrize("typed", ["x", "0", "-1", "1.5", "99999999999999999999"])
def test_ids__that_are_none_are_refused(typed: str) -> None:
    with pytest.raises(CommandError, match=r"expected a job id|unrecognized|arguments are required"):
        operate("show", typed)


def test_add__writes_every_option() -> None:
    arguments = ["--queue", "mail", "--run-at", "2040-05-01T12:00:00+02:00", "--max-attempts", "3", "--key", "k"]
    arguments += ["--key-mode", "preserve_run_at", "--priority", "-5", "--flag", "a", "--flag", "b", "--json"]
    job = operate("add", "send_receipt", '{"order": 1}', *arguments).json
    assert job_row(job["id"], "run_at", "max_attempts", "key", "priority", "payload::text", "flags::text") == (
        datetime(2040, 5, 1, 10, tzinfo=UTC),
        3,
        "k",
        -5,
        '{"order":1}',
        '{"a": true, "b": true}',
    )
    assert job["queue_name"] == "mail"
    assert job["flags"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{a: 1, /* why */ b: 'x',}", {"a": 1, "b": "x"}),
        ("[1, 2]", [1, 2]),
        ("null", {}),
        ('"text"', "text"),
    ],
)
def test_add__takes_json_and_json5(text: str, stored: Any) -> None:
    job = operate("add", "send_receipt", text, "--json").json
    row = job_row(job["id"], "payload::text")
    assert row is not None
    assert json.loads(row[0]) == stored


def test_add__reads_the_payload_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"from": "stdin"}\n'))
    job = operate("add", "send_receipt", "-", "--json").json
    assert job["payload"] == {"from": "stdin"}


@pytest.mark.parametrize("text", ["{", "{'a': }", "order=1", "", "{a: NaN}", '"\\u0000"', "[" * 100_000])
def test_add__refuses_what_is_no_payload(text: str) -> None:
    with pytest.raises(CommandError, match="payload"):
        operate("add", "send_receipt", text)
    assert execute("select count(*) from {schema}._private_jobs") == [(0,)]


def test_add__uses_the_tasks_own_defaults() -> None:
    assert operate("add", "move_stock", "--json").json["queue_name"] == "warehouse"
    assert operate("add", "move_stock", "--queue", "mail", "--json").json["queue_name"] == "mail"
    assert operate("add", "print_invoice", "--json").json["max_attempts"] == 3


def test_add__takes_a_task_that_this_project_does_not_have_and_says_so() -> None:
    said = operate("add", "send_recipt", "--json")
    assert said.json["task_identifier"] == "send_recipt"
    assert "This project has no task 'send_recipt'" in said.err
    assert "Did you mean 'send_receipt'?" in said.err
    assert operate("add", "send_receipt").err == ""


def test_add__understands_periods_from_now() -> None:
    job = operate("add", "send_receipt", "--run-at", "+1h30m", "--json").json
    wait = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["created_at"])
    assert wait == timedelta(minutes=90)
    assert "(in 5 m)" in operate("add", "send_receipt", "--run-at", "+5m").out


def test_add__reads_times_without_a_zone_in_the_current_one() -> None:
    with timezone.override("Asia/Tokyo"):
        job = operate("add", "send_receipt", "--run-at", "2040-05-01T12:00", "--json").json
    assert datetime.fromisoformat(job["run_at"]) == datetime(2040, 5, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize("typed", ["soon", "5m", "+5", "2040-13-01", "2040-02-30T12:00", "+999999999999y"])
def test_add__refuses_times_that_are_none(typed: str) -> None:
    with pytest.raises(CommandError, match="run-at: expected"):
        operate("add", "send_receipt", "--run-at", typed)


def test_add__says_whether_a_keyed_job_was_replaced() -> None:
    assert operate("add", "send_receipt", "--key", "k").out.startswith("Added ")
    assert operate("add", "send_receipt", "--key", "k").out.startswith("Replaced ")
    assert operate("add", "send_receipt", "--key", "k", "--key-mode", "unsafe_dedupe").out.startswith("Was there")


def test_add__tells_of_the_job_without_looking_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("django_graphile_worker.management.operator.console.Desk.reading")
    assert operate("add", "send_receipt").out.startswith("Added ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--priority", "40000"), "priority: expected"),
        (("--priority", "high"), "expected a whole number"),
        (("--max-attempts", "0"), "at least 1"),
        (("--queue", "q" * 129), "queue_name: expected"),
        (("--key", ""), "job_key: expected"),
    ],
)
def test_add__refuses_bad_values_with_what_was_expected(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        operate("add", "send_receipt", *arguments)


def test_complete__deletes_waiting_and_failed_jobs() -> None:
    ids = [make_job("a"), make_failed_job("a")]
    said = operate("complete", *map(str, ids))
    assert [job_row(job_id, "id") for job_id in ids] == [None, None]
    assert all(f"#{job_id}" in said.out for job_id in ids)


@pytest.mark.parametrize("verb", [("complete",), ("fail",), ("reschedule", "--run-at", "now")])
def test_changes__leave_running_jobs_alone_do_the_others_and_say_so(verb: tuple[str, ...]) -> None:
    running, waiting = make_job("a", locked_by="worker-1"), make_job("a", run_at=minutes_ago(-5))
    before = job_row(running, "updated_at", "attempts", "run_at")
    with pytest.raises(CommandError, match=f"Expected 3 jobs that wait, got 1: #{running} is running.*#999 is not"):
        operate(verb[0], str(running), str(waiting), "999", *verb[1:])
    assert job_row(running, "updated_at", "attempts", "run_at") == before
    after = job_row(waiting, "attempts", "run_at")
    assert after is None or after[0] == 25 or after[1] < datetime.now(UTC)


def test_fail__keeps_the_job_with_its_reason() -> None:
    job_id = make_job("a")
    operate("fail", str(job_id), "--reason", "The customer is gone.")
    assert job_row(job_id, "attempts", "last_error") == (25, "The customer is gone.")


def test_reschedule__changes_only_what_is_given() -> None:
    job_id = make_failed_job("a", priority=7, run_at=minutes_ago(60))
    operate("reschedule", str(job_id), "--attempts", "0", "--max-attempts", "5")
    assert job_row(job_id, "attempts", "max_attempts", "priority", "run_at < now()") == (0, 5, 7, True)
    operate("reschedule", str(job_id), "--run-at", "+1h", "--priority", "-2")
    assert job_row(job_id, "attempts", "priority", "run_at > now()") == (0, -2, True)


def test_reschedule__without_a_change_is_an_error() -> None:
    with pytest.raises(CommandError, match="Expected --run-at"):
        operate("reschedule", str(make_job("a")))


def test_reschedule__says_when_a_job_has_no_attempts_left() -> None:
    job_id = make_failed_job("a")
    assert f"#{job_id} will still not run" in operate("reschedule", str(job_id), "--run-at", "now").err
    assert operate("reschedule", str(job_id), "--run-at", "now", "--attempts", "0").err == ""


def test_remove__deletes_by_key_and_tells_of_keys_without_a_job() -> None:
    job_id = make_job("a", key="k")
    with pytest.raises(CommandError, match="got none with 'missing'"):
        operate("remove", "k", "missing")
    assert job_row(job_id, "id") is None


def test_remove__of_a_running_job_says_that_it_goes_on() -> None:
    job_id = make_job("a", key="k", locked_by="worker-1", attempts=1)
    assert f"#{job_id} is running" in operate("remove", "k").err
    assert job_row(job_id, "key", "attempts = max_attempts") == (None, True)


GIVEN_UP = "shop.errors.CardStolen: no\n\nNot tried again after attempt 2 of 25.\n\nTraceback"


def test_jobs__that_were_given_up_tell_how_often_they_really_ran() -> None:
    job_id = make_failed_job("charge", error=GIVEN_UP)
    (job,) = operate("jobs", "--json").json
    assert (job["attempts"], job["attempts_made"], job["max_attempts"]) == (25, 2, 25)
    assert "2/25" in operate("jobs").out
    shown = operate("show", str(job_id)).out
    assert f"waits because  it was given up after attempt 2 of 25; retry {job_id} tries it again" in shown
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
    assert "7/25  TimeoutError: no" in retrying
    assert "failed 3 m ago" in failed
    assert "CardStolen: no" in failed


def test_notes__are_no_alarm() -> None:
    err = _Terminal()
    for _ in range(2):
        make_job("a")
    call_command("graphile_worker", "jobs", "--limit", "1", stdout=_Terminal(), stderr=err, force_color=True)
    assert "There are more" in err.getvalue()
    assert "\x1b[" not in err.getvalue()


def test_errors__are_grouped_by_task_and_class() -> None:
    for number in range(3):
        make_failed_job("send", error=f"shop.errors.Refused: no {number}", updated_at=minutes_ago(number))
    latest = make_job("send", attempts=2, run_at=minutes_ago(-5), last_error="KeyError: 'x'")
    make_job("fine")
    refused, key_error = operate("errors", "--json").json
    assert (refused["error"], refused["failed"], refused["retrying"]) == ("shop.errors.Refused", 3, 0)
    assert (key_error["error"], key_error["retrying"], key_error["latest_job_id"]) == ("KeyError", 1, latest)
    heading, first, _ = operate("errors").out.splitlines()
    assert heading.split() == ["TASK", "ERROR", "FAILED", "RETRYING", "LAST", "SEEN", "JOB", "MESSAGE"]
    assert first.split()[:3] == ["send", "Refused", "3"]
    assert first.endswith("no 0")
    assert operate("errors", "--task", "fine").err == "No job has failed.\n"


def _waiting() -> set[int]:
    return {row[0] for row in execute("select id from {schema}._private_jobs where is_available and attempts = 0")}


@pytest.fixture
def failures() -> dict[str, int]:
    return {
        "refused": make_failed_job("send", error="shop.errors.Refused: no"),
        "timeout": make_failed_job("send", error="TimeoutError: no answer"),
        "charge": make_failed_job("charge", error="TimeoutError: no answer"),
        "retrying": make_job("send", attempts=3, run_at=minutes_ago(-60), last_error="TimeoutError: no answer"),
        "running": make_job("send", locked_by="worker-1", attempts=25),
    }


@pytest.mark.parametrize(
    ("arguments", "retried"),
    [
        (["--task", "send"], {"refused", "timeout"}),
        (["--error", "TimeoutError"], {"timeout", "charge"}),
        (["--error", "Refused"], {"refused"}),
        (["--error", "shop.errors.Refused", "--task", "charge"], set()),
        (["--all"], {"refused", "timeout", "charge"}),
        (["--all", "--state", "retrying"], {"retrying"}),
        (["--all", "--dry-run"], set()),
    ],
)
def test_retry__chooses_by_task_error_or_all(failures: dict[str, int], arguments: list[str], retried: set[str]) -> None:
    said = operate("retry", *arguments).out
    assert _waiting() == {failures[name] for name in retried}
    count = 3 if "--dry-run" in arguments else len(retried)
    assert said.startswith(f"{count} job{'' if count == 1 else 's'} ")


def test_retry__of_more_than_a_batch_retries_all(failures: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "BATCH", 1)
    assert operate("retry", "--all", "--json").json == {"jobs": 3, "dry_run": False}
    assert len(_waiting()) == 3


def test_retry__takes_ids_and_says_what_it_left(failures: dict[str, int]) -> None:
    assert operate("retry", str(failures["charge"])).out.startswith("To be tried again: charge #")
    with pytest.raises(CommandError, match=r"^Expected 1 job that waits, got none: #\d+ is running"):
        operate("retry", str(failures["running"]))
    assert _waiting() == {failures["charge"]}


def test_retry__of_a_mistyped_error_suggests_the_right_one(failures: dict[str, int]) -> None:
    assert "No job has failed with 'Refusd'. Did you mean 'Refused'?" in operate("retry", "--error", "Refusd").err


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["1", "--dry-run"]])
def test_retry__wants_ids_or_a_choice(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=r"^(Expected either ids of jobs or|--dry-run: expected)"):
        operate("retry", *arguments)


@pytest.mark.parametrize(("arguments", "got"), [([], "neither"), (["1", "--all"], "both")])
def test_retry__says_whether_a_choice_is_missing_or_double(arguments: list[str], got: str) -> None:
    with pytest.raises(CommandError, match=rf", got {got}\.$"):
        operate("retry", *arguments)


def test_errors__of_a_mistyped_task_suggest_the_right_one() -> None:
    make_job("send")
    assert "No job has the task 'sned'. Did you mean 'send'?" in operate("errors", "--task", "sned").err
