"""The state of a run: its payload, and the job that it shows."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.jobs import Job
from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import Slot


@pytest.mark.parametrize(
    ("payload_text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "RecursionError"),
        ("9" * 5000, "ValueError: Exceeds the limit"),
        ("{not json", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ("1 2", "JSONDecodeError"),
    ],
    ids=["deep", "long integer", "broken", "empty", "two values"],
)
def test_payload_that_python_cannot_read__fails_its_own_job(slot: Slot, payload_text: str, reason: str) -> None:
    assert reason in slot.failure(lambda payload: None, payload_text).error
    assert isinstance(slot.run(lambda payload: None), Succeeded)


@pytest.mark.parametrize(
    ("payload_text", "payload"),
    [(' {"a": 1}\n', {"a": 1}), ("null", None), ("[1,2]", [1, 2]), ('"\\u0000"', "\x00"), ("1e400", float("inf"))],
)
def test_payload__arrives_decoded(slot: Slot, payload_text: str, payload: Any) -> None:
    got: list[Any] = []
    assert isinstance(slot.run(lambda payload: got.append(payload), payload_text), Succeeded)
    assert got == [payload]


@pytest.mark.parametrize("epoch", [float("inf"), float("-inf"), float("nan"), -1e15, 1e15])
def test_dates_that_python_cannot_hold__do_not_break_the_job(slot: Slot, epoch: float) -> None:
    jobs: list[Job] = []

    def looks(payload: Any, helpers: Any) -> None:
        jobs.append(helpers.job)

    outcome = slot.run(looks, run_at_epoch=epoch, created_at_epoch=epoch, updated_at_epoch=epoch)
    assert isinstance(outcome, Succeeded)
    assert jobs[0].run_at.year in (1, 9999)


def test_flags_that_cannot_be_parsed__do_not_break_the_job(slot: Slot) -> None:
    flags: list[Any] = []
    outcome = slot.run(lambda payload, helpers: flags.append(helpers.job.flags), flags_text="[" * 100_000)
    assert isinstance(outcome, Succeeded)
    assert flags == [frozenset()]


def test_job__is_not_built_when_nothing_reads_it(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(self: Any) -> None:
        raise AssertionError("the job was built")

    monkeypatch.setattr("django_graphile_worker.worker.execution.job_run.JobRun._build_job", build)
    assert isinstance(slot.run(lambda payload: None), Succeeded)
    assert isinstance(slot.run(lambda payload, helpers: None), Succeeded)
