from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.job_options import JobKeyMode
from django_graphile_worker.jobs import Job, JobDefaults, JobSpec, RemovedJob, attempts_made, final_remark

NUMBERS = "a whole number from"


@dataclasses.dataclass(frozen=True)
class FakeTask:
    identifier: str
    defaults: JobDefaults


def test_a_spec_keeps_what_it_is_given() -> None:
    spec = JobSpec(
        "send_email",
        {"a": 1},
        queue_name="mail",
        run_at=timedelta(minutes=5),
        max_attempts=32_767,
        job_key="k" * 512,
        job_key_mode="preserve_run_at",
        priority=-32_768,
        flags=["a", "b", "a"],
    )
    assert spec.job_key_mode is JobKeyMode.PRESERVE_RUN_AT
    assert spec.flags == ("a", "b")
    assert (spec.queue_name, spec.max_attempts, spec.priority) == ("mail", 32_767, -32_768)


def test_a_spec_is_frozen_comparable_replaceable_and_can_be_pickled() -> None:
    spec = JobSpec("send_email", {"a": 1}, flags={"x"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.priority = 3  # type: ignore[misc]
    assert spec == JobSpec("send_email", {"a": 1}, flags={"x"})
    assert dataclasses.replace(spec, priority=3) == JobSpec("send_email", {"a": 1}, flags={"x"}, priority=3)
    assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec


REFUSED = [
    ({"identifier": ""}, "identifier: expected 1 to 128 characters, got ''."),
    ({"identifier": "x" * 129}, f"identifier: expected 1 to 128 characters, got 129 characters: {'x' * 40!r}…."),
    (
        {"identifier": "a\x00b"},
        "identifier: PostgreSQL cannot store '\\x00' at position 1.",
    ),
    (
        {"identifier": "ab\ud800"},
        "identifier: PostgreSQL cannot store '\\ud800' at position 2.",
    ),
    ({"queue_name": ""}, "queue_name: expected 1 to 128 characters, got ''."),
    ({"queue_name": "q" * 129}, f"queue_name: expected 1 to 128 characters, got 129 characters: {'q' * 40!r}…."),
    ({"job_key": ""}, "job_key: expected 1 to 512 characters, got ''."),
    ({"job_key": "k" * 513}, f"job_key: expected 1 to 512 characters, got 513 characters: {'k' * 40!r}…."),
    ({"priority": 32_768}, f"priority: expected {NUMBERS} -32768 to 32767, got 32768."),
    ({"priority": -32_769}, f"priority: expected {NUMBERS} -32768 to 32767, got -32769."),
    ({"max_attempts": 0}, f"max_attempts: expected {NUMBERS} 1 to 32767, got 0."),
    ({"max_attempts": 32_768}, f"max_attempts: expected {NUMBERS} 1 to 32767, got 32768."),
    ({"flags": ["a", ""]}, "flags: expected at least 1 character, got ''."),
    (
        {"job_key_mode": "dedupe"},
        "job_key_mode: expected 'replace', 'preserve_run_at' or 'unsafe_dedupe', got 'dedupe'.",
    ),
    (
        {"run_at": timedelta.max},
        f"run_at: expected a time in the years 2 to 9998, got {timedelta.max!r}.",
    ),
    (
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        f"run_at: expected a time in the years 2 to 9998, got {datetime.max.replace(tzinfo=UTC)!r}.",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_a_value_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        JobSpec(**({"identifier": "send_email"} | options))
    assert str(refused.value) == message


def a_function() -> None: ...


HAS_NO_IDENTIFIER = SimpleNamespace(defaults=JobDefaults())


REFUSED_TYPES = [
    (
        {"identifier": None},
        "identifier: expected a task identifier (str) or a function decorated with @task, got NoneType.",
    ),
    (
        {"identifier": a_function},
        f"identifier: expected a task identifier (str) or a function decorated with @task, got {a_function!r}.",
    ),
    (
        {"identifier": HAS_NO_IDENTIFIER},
        "identifier: expected a task identifier (str) or a function decorated with @task, got SimpleNamespace.",
    ),
    ({"queue_name": 5}, "queue_name: expected a string, got 5 (int)."),
    ({"job_key": b"k"}, "job_key: expected a string, got b'k' (bytes)."),
    ({"priority": True}, f"priority: expected {NUMBERS} -32768 to 32767, got True (bool)."),
    ({"priority": 1.0}, f"priority: expected {NUMBERS} -32768 to 32767, got 1.0 (float)."),
    ({"max_attempts": "3"}, f"max_attempts: expected {NUMBERS} 1 to 32767, got '3' (str)."),
    ({"flags": "slow"}, "flags: expected a list or set of strings, got 'slow' (str)."),
    ({"flags": 5}, "flags: expected a list or set of strings, got 5 (int)."),
    ({"flags": [5]}, "flags: expected a string, got 5 (int)."),
    (
        {"job_key_mode": 1},
        "job_key_mode: expected 'replace', 'preserve_run_at' or 'unsafe_dedupe', got 1 (int).",
    ),
    (
        {"run_at": date(2026, 1, 1)},
        (
            "run_at: expected an aware datetime, or a timedelta from the database's now, "
            "got datetime.date(2026, 1, 1) (date)."
        ),
    ),
    (
        {"run_at": 5},
        "run_at: expected an aware datetime, or a timedelta from the database's now, got 5 (int).",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED_TYPES)
def test_a_value_of_the_wrong_type_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTypeError) as refused:
        JobSpec(**({"identifier": "send_email"} | options))
    assert str(refused.value) == message


@pytest.mark.parametrize("wrong", ["1h", True, [5], date(2026, 6, 1)])
def test_expires__refuses_wrong_types(wrong: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"^expires: expected an aware datetime, a timedelta"):
        JobSpec("send", expires=wrong)


@pytest.mark.parametrize("wrong", [0, -1, timedelta(0), math.inf, math.nan])
def test_expires__refuses_durations_that_are_none(wrong: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"^expires: expected a duration"):
        JobSpec("send", expires=wrong)


def test_flag_that_only_looks_like_an_expiry__is_refused() -> None:
    with pytest.raises(InvalidJobError, match=r"expected 'expires:' to be followed by seconds since 1970"):
        JobSpec("send", flags=["expires:x"])
    assert JobSpec("send", flags=["expires:12"]).flags == ("expires:12",)


def test_a_task_lends_its_defaults_to_the_spec() -> None:
    defaults = JobDefaults(
        queue_name="mail", max_attempts=3, job_key="k", job_key_mode=JobKeyMode.UNSAFE_DEDUPE, priority=5, flags=("x",)
    )
    assert JobSpec(FakeTask("send_email", defaults), {}) == JobSpec(
        "send_email",
        {},
        queue_name="mail",
        max_attempts=3,
        job_key="k",
        job_key_mode="unsafe_dedupe",
        priority=5,
        flags=["x"],
    )


def test_a_job_key_made_from_the_payload_is_checked_too() -> None:
    defaults = JobDefaults(job_key=lambda payload: payload["user"])
    with pytest.raises(InvalidTypeError, match=r"^job_key: expected a string, got 5 \(int\)\.$"):
        JobSpec(FakeTask("sync", defaults), {"user": 5})


class TestAJobWhosePayloadIsDecodedLater:
    @staticmethod
    def values(**changes: Any) -> dict[str, Any]:
        return (
            dict.fromkeys(each.name for each in dataclasses.fields(Job))
            | {"id": 1, "payload": {"n": [1]}, "flags": frozenset()}
            | changes
        )

    @pytest.fixture
    def later(self) -> Job:
        values = self.values(_json='{"n": [1]}')
        del values["payload"]
        return Job.of_checked_values(values)

    def test_is_like_any_other(self, later: Job) -> None:
        job = Job(**self.values())
        assert later == job
        assert repr(later) == repr(job)
        assert dataclasses.asdict(later) == dataclasses.asdict(job)
        assert RemovedJob(**self.values()) == later

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda job: pickle.loads(pickle.dumps(job))])
    def test_can_be_copied(self, later: Job, copied: Any) -> None:
        assert copied(later) == later
        assert vars(copied(later)) == self.values()


@pytest.mark.parametrize(
    ("attempts", "max_attempts", "error", "made"),
    [
        (0, 25, None, 0),
        (3, 25, "ValueError: no", 3),
        (25, 25, "ValueError: no", 25),
        (25, 25, "PermanentFailure: stolen\n\nNot tried again after attempt 1 of 25.\n\nTraceback …", 1),
        # Rescheduled since: what the error says is about an earlier life.
        (2, 25, "PermanentFailure: stolen\n\nNot tried again after attempt 1 of 25.", 2),
    ],
)
def test_attempts_made__are_read_from_the_error_of_a_job_that_gave_up_early(
    attempts: int, max_attempts: int, error: str | None, made: int
) -> None:
    assert attempts_made(attempts, max_attempts, error) == made


def test_final_remark__is_read_back() -> None:
    assert attempts_made(25, 25, f"X: y\n\n{final_remark(3, 25)}\n\nTraceback") == 3
    assert final_remark(25, 25) == ""
