"""manage.py graphile_worker retry."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from django_graphile_worker.management.operator.verbs import job_changes
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


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
    monkeypatch.setattr(job_changes, "BATCH", 1)
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
    with pytest.raises(CommandError, match=r"^(Ids of jobs|--dry-run needs)"):
        operate("retry", *arguments)


@pytest.mark.parametrize(("arguments", "why"), [([], "are required"), (["1", "--all"], "cannot be used with")])
def test_retry__says_whether_a_choice_is_missing_or_double(arguments: list[str], why: str) -> None:
    with pytest.raises(CommandError, match=f"^Ids of jobs.* {why}"):
        operate("retry", *arguments)


def test_retry__with_a_payload_edits_the_job(failures: dict[str, int]) -> None:
    job_id = failures["charge"]
    operate("retry", str(job_id), "--payload", "{order: 7}")
    row = execute("select payload::text, attempts, last_error from {schema}._private_jobs where id = %s", [job_id])
    assert row == [('{"order":7}', 0, "TimeoutError: no answer")]
    with pytest.raises(CommandError, match=r"^--payload needs ids of jobs"):
        operate("retry", "--all", "--payload", "{}")
