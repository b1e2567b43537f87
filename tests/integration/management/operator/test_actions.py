"""The verbs that change jobs by their ids: run-now, run-next, retry, reschedule, fail and delete."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.core.management import CommandError

from django_graphile_worker.management.operator import actions
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute, job_row, operate

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
    other, later = make_job("a", priority=-3), make_job("a", run_at=minutes_ago(-5))
    first, due = make_job("a", priority=-7), make_job("a")
    with pytest.raises(CommandError) as refused:
        operate("run-next", str(first), str(due), str(later))
    assert str(refused.value) == (
        f"2 of 3 jobs were not changed: #{first} is before all other jobs already; #{later} is not due yet. run-next "
        "changes jobs that are ready or limited."
    )
    priorities = [(job_row(each, "priority") or ())[0] for each in (other, first, due)]
    assert priorities == [-3, -7, -4]


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


def test_retry__of_a_mistyped_error_suggests_the_right_one(failures: dict[str, int]) -> None:
    assert "No job has failed with 'Refusd'. Did you mean 'Refused'?" in operate("retry", "--error", "Refusd").err


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


def test_reschedule__changes_only_what_is_given() -> None:
    job_id = make_failed_job("a", priority=7, run_at=minutes_ago(60))
    operate("reschedule", str(job_id), "--attempts", "0", "--max-attempts", "5")
    assert job_row(job_id, "attempts", "max_attempts", "priority", "run_at < now()") == (0, 5, 7, True)
    operate("reschedule", str(job_id), "--run-at", "+1h", "--priority", "-2")
    assert job_row(job_id, "attempts", "priority", "run_at > now()") == (0, -2, True)


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
    with pytest.raises(CommandError, match=r"^Ids of jobs or --key are required"):
        operate("delete")


def test_delete__of_a_running_job_by_its_key_says_that_it_goes_on() -> None:
    job_id = make_job("a", key="k", locked_by="worker-1", attempts=1)
    assert f"#{job_id} is running" in operate("delete", "--key", "k").err
    assert job_row(job_id, "key", "attempts = max_attempts") == (None, True)
