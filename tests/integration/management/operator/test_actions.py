"""``add``, and the verbs that change jobs by their ids. Their effects are compared in ``test_same_actions.py``."""

from __future__ import annotations

import getpass
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_graphile_worker.management.operator import actions
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute, job_row, operate
from tests.support.rows import in_quotes, query

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("verb", [("delete",), ("fail",), ("reschedule", "--run-at", "now")])
def test_changes__leave_running_jobs_alone_do_the_others_and_say_so(verb: tuple[str, ...]) -> None:
    running, waiting = make_job("a", locked_by="worker-1"), make_job("a", run_at=minutes_ago(-5))
    missing = waiting + 1
    before = job_row(running, "updated_at", "attempts", "run_at")
    with pytest.raises(
        CommandError, match=f"2 of 3 jobs were not changed: #{running} is running.*#{missing} does not exist"
    ):
        operate(verb[0], str(running), str(waiting), str(missing), *verb[1:])
    assert job_row(running, "updated_at", "attempts", "run_at") == before
    after = job_row(waiting, "attempts", "run_at")
    assert after is None or after[0] == 25 or after[1] < datetime.now(UTC)


def test_run_now__says_why_a_job_was_not_changed() -> None:
    later, due, failed = make_job("a", run_at=minutes_ago(-5)), make_job("a"), make_failed_job("a")
    with pytest.raises(CommandError) as refused:
        operate("run-now", str(later), str(due), str(failed))
    assert str(refused.value) == (
        f"2 of 3 jobs were not changed: #{due} is due already; #{failed} has failed permanently. run-now changes jobs "
        "that are scheduled or retrying."
    )


def test_run_next__says_why_a_job_was_not_changed() -> None:
    make_job("a", priority=-3)
    later = make_job("a", run_at=minutes_ago(-5))
    first, due = make_job("a", priority=-7), make_job("a")
    with pytest.raises(CommandError) as refused:
        operate("run-next", str(first), str(due), str(later))
    assert str(refused.value) == (
        f"2 of 3 jobs were not changed: #{first} is before all other jobs already; #{later} is not due yet. run-next "
        "changes jobs that are ready or limited."
    )


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
    monkeypatch.setattr(actions, "BATCH", 1)
    assert operate("retry", "--all", "--json").json == {"jobs": 3, "dry_run": False}
    assert len(_waiting()) == 3


def test_retry__takes_ids_and_says_what_it_left(failures: dict[str, int]) -> None:
    assert operate("retry", str(failures["charge"])).out.startswith("To be tried again: charge #")
    with pytest.raises(CommandError, match=r"^1 of 1 job was not changed: #\d+ is running"):
        operate("retry", str(failures["running"]))
    assert _waiting() == {failures["charge"]}


def test_retry__of_an_unknown_error_says_so(failures: dict[str, int]) -> None:
    assert operate("retry", "--error", "Refusd").err == "No job has failed with 'Refusd'.\n"


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["1", "--dry-run"]])
def test_retry__wants_ids_or_a_choice(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=r"^(Either ids of jobs, or --task|--dry-run needs)"):
        operate("retry", *arguments)


def test_retry__with_a_payload_edits_the_job(failures: dict[str, int]) -> None:
    job_id = failures["charge"]
    operate("retry", str(job_id), "--payload", "{order: 7}")
    row = execute("select payload::text, attempts, last_error from {schema}._private_jobs where id = %s", [job_id])
    assert row == [('{"order":7}', 0, "TimeoutError: no answer")]
    with pytest.raises(CommandError, match=r"^--payload needs ids of jobs"):
        operate("retry", "--all", "--payload", "{}")


def test_reschedule__without_a_change_is_an_error() -> None:
    with pytest.raises(CommandError, match="One of --run-at"):
        operate("reschedule", str(make_job("a")))


def test_reschedule__says_when_a_job_has_no_attempts_left() -> None:
    job_id = make_failed_job("a")
    assert f"#{job_id} will still not run" in operate("reschedule", str(job_id), "--priority", "3").err
    assert operate("reschedule", str(job_id), "--run-at", "now").err == ""
    assert job_row(job_id, "attempts", "run_at <= now()") == (0, True), "with a time it gets its attempts again"


def test_delete__by_key_tells_of_keys_without_a_job() -> None:
    by_id, by_key = make_job("a"), make_job("a", key="k")
    with pytest.raises(CommandError, match=r"^There is no job with the key 'missing'\.$"):
        operate("delete", str(by_id), "--key", "k", "--key", "missing")
    assert (job_row(by_id, "id"), job_row(by_key, "id")) == (None, None)
    with pytest.raises(
        CommandError, match=r"^There is no job with the key 'k'\. 1 of 1 job was not changed: #\d+ does"
    ):
        operate("delete", str(by_id), "--key", "k")


def test_delete__of_a_running_job_by_its_key_says_that_it_goes_on() -> None:
    job_id = make_job("a", key="k", locked_by="worker-1", attempts=1)
    assert f"#{job_id} is running" in operate("delete", "--key", "k").err
    assert job_row(job_id, "key", "attempts = max_attempts") == (None, True)


OURS = "django-worker-0123456789abcdef01/7"


def who_and_why(schema: str) -> list[Any]:
    return query(f"select job_id, requested_by, reason from {in_quotes(schema)}._private_stop_requests order by job_id")


def test_cancel__says_what_became_of_each_job(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "maria")
    waiting, keyed = make_job("a"), make_job("a", key="k")
    running, node = make_job("a", locked_by=OURS, attempts=1), make_job("a", locked_by="node", attempts=1)
    failed = make_failed_job("a")
    ids = [str(each) for each in (waiting, running, node, failed, 777_777)]
    told = operate("cancel", *ids, "--key", "k", "--key", "missing", "--reason", "sent twice")
    assert told.out.splitlines() == [
        f"Removed 2 jobs (#{waiting}, #{keyed}).",
        f"Stopping 1 job (#{running}): the workers are told.",
    ]
    assert told.err.splitlines() == [
        f"A worker of Node.js runs 1 job (#{node}), and cannot be told to stop. If it fails, it is not retried.",
        f"Not cancelled, because it has ended: 1 job (#{failed}).",
        "Not cancelled, because there is no such job, or no more: 1 job (#777777).",
        "No job has the key 'missing'.",
    ]
    assert job_row(waiting, "id") is None
    assert who_and_why(worker_schema) == [(running, "maria", "sent twice"), (node, "maria", "sent twice")]


def test_cancel__works_for_a_user_without_a_name(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", unknown)
    running = make_job("a", locked_by=OURS, attempts=1)
    operate("cancel", str(running))
    assert who_and_why(worker_schema) == [(running, "", "")]


def test_cancel__as_json() -> None:
    waiting = make_job("a")
    told = operate("cancel", str(waiting), "--key", "missing", "--by", "night shift", "--json").json
    assert told == {
        "removed": [waiting],
        "stopping": [],
        "unstoppable": [],
        "ended": [],
        "unknown": [],
        "keys_without_job": ["missing"],
    }


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_verbs__need_an_id_or_a_key(verb: str) -> None:
    with pytest.raises(CommandError, match=r"^Ids of jobs or --key are required\.$"):
        operate(verb)


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


def test_add__takes_json_and_json5() -> None:
    assert operate("add", "send_receipt", "{a: 1, /* why */ b: 'x',}", "--json").json["payload"] == {"a": 1, "b": "x"}
    assert operate("add", "send_receipt", '"text"', "--json").json["payload"] == "text"


def test_add__reads_the_payload_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"from": "stdin"}\n'))
    job = operate("add", "send_receipt", "-", "--json").json
    assert job["payload"] == {"from": "stdin"}


@pytest.mark.parametrize("text", ["{", "", '"\\u0000"', "[" * 100_000])
def test_add__refuses_what_is_no_payload(text: str) -> None:
    with pytest.raises(CommandError, match="payload"):
        operate("add", "send_receipt", text)
    assert execute("select count(*) from {schema}._private_jobs") == [(0,)]


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
    # Half a minute above the unit, so that a slow machine does not write "in 4 m".
    assert "(in 5 m)" in operate("add", "send_receipt", "--run-at", "+5m30s").out


def test_add__reads_times_without_a_zone_in_the_current_one() -> None:
    with timezone.override("Asia/Tokyo"):
        job = operate("add", "send_receipt", "--run-at", "2040-05-01T12:00", "--json").json
    assert datetime.fromisoformat(job["run_at"]) == datetime(2040, 5, 1, 3, tzinfo=UTC)


def test_add__says_whether_a_keyed_job_was_replaced() -> None:
    assert operate("add", "send_receipt", "--key", "k").out.startswith("Added ")
    assert operate("add", "send_receipt", "--key", "k").out.startswith("Replaced ")
    operate("add", "send_receipt", "--unique", "shop 1")
    assert operate("add", "send_receipt", "--unique", "shop 1").out.startswith("Already exists: ")
    assert operate("add", "send_receipt", "--key", "k", "--key-mode", "unsafe_dedupe").out.startswith("Already exists")


def test_add__tells_of_the_job_without_looking_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("django_graphile_worker.management.operator.console.Console.reading")
    assert operate("add", "send_receipt").out.startswith("Added ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--priority", "40000"), "priority: expected"),
        (("--priority", "high"), "expected a whole number"),
        (("--expires", "soon"), "--expires"),
    ],
)
def test_add__refuses_bad_values_with_what_was_expected(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        operate("add", "send_receipt", *arguments)
