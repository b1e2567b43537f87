"""Which tasks and options the backend accepts, and what it says about others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priority": 101}, "priority must be a whole number between -100 and 100. Got 101"),
        ({"priority": 1.5}, "Got 1.5"),
        ({"priority": "high"}, "Got 'high'"),
        ({"priority": True}, "Got True"),
        ({"queue_name": "mails"}, "Expected one of 'accounts', 'default', 'emails': add it to TASKS"),
        ({"queue_name": ""}, "expected a label, a string of at least one character, got ''"),
        ({"run_after": 5}, "expected a datetime or a timedelta, got 5"),
        ({"run_after": datetime(2030, 1, 1)}, "run_after must be an aware datetime."),  # noqa: DTZ001
        ({"run_after": timedelta(days=10_000_000)}, "run_after: expected a time in the years 2 to 9998"),
        ({"max_attempts": 0}, "max_attempts: expected a whole number from 1 to 32767, got 0"),
        ({"job_key": "x" * 600}, "job_key: expected 1 to 512 characters"),
        ({"job_key_mode": "often"}, "expected 'replace', 'preserve_run_at' or 'unsafe_dedupe', got 'often'"),
        ({"flags": "slow"}, "flags: expected a list or set of strings, got 'slow'"),
    ],
)
def test_using__refuses_what_no_job_can_have(framework: Any, changes: dict[str, Any], message: str) -> None:
    from django_graphile_worker.backend.compat import InvalidTask

    with pytest.raises(InvalidTask) as refused:
        framework.add.using(**changes)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": -100},
        {"priority": 100},
        {"run_after": timedelta(0)},
        {"run_after": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
)
def test_using__accepts_what_the_framework_promises(framework: Any, changes: dict[str, Any]) -> None:
    (name,) = changes
    assert getattr(framework.add.using(**changes), name) == changes[name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts: expected"),
        ({"backoff": "soon"}, "backoff: expected a timedelta, a number of seconds or a callable"),
        ({"keep_result": "long"}, "expected a timedelta, a number of seconds, True or False"),
        ({"limit": "100/m"}, "expected a Limit, or a list of them, got '100/m'"),
        ({"fair": "tenant"}, "expected a template with a payload field"),
        ({"timeout": "long"}, "expected a timedelta, a number of seconds, or False for no time limit"),
        ({"expires": "soon"}, "expires: expected an aware datetime, a timedelta or a number of seconds"),
        ({"expires": 0}, "expires: expected a duration above zero"),
        ({"schedulable": "reports"}, "schedulable: expected True, False, or a permission like"),
        ({"atomic": 1}, "atomic: expected True or False, got 1"),
        ({"queue_name": "l" * 100}, "is not valid for backend"),
    ],
)
def test_decorator__refuses_mistakes_at_import(framework: Any, options: dict[str, Any], message: str) -> None:
    from django_graphile_worker.backend import task
    from django_graphile_worker.backend.compat import InvalidTask

    with pytest.raises(InvalidTask) as refused:
        decorate: Any = task(**options)
        decorate(framework.plain_function)
    assert message in str(refused.value)


def test_path_and_label__are_at_most_as_long_as_a_task_identifier(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend.compat import InvalidTask

    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": []}}
    with pytest.raises(InvalidTask, match="identifier: expected 1 to 128 characters"):
        framework.add.using(queue_name="l" * 120)


def test_enqueue__refuses_a_task_that_a_worker_would_not_find(framework: Any) -> None:
    from django_graphile_worker.backend.compat import InvalidTask

    with pytest.raises(
        InvalidTask, match=r"expected the task at 'tests.support.django_tasks._undeclared', got <function"
    ):
        framework.misnamed.enqueue()


def test_enqueue__refuses_a_task_of_another_backend(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend.compat import BaseTaskBackend, InvalidTask

    other = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"
    ours = settings.TASKS["default"]
    settings.TASKS = {"default": {"BACKEND": other}, "ours": ours}
    with pytest.raises(InvalidTask, match=r"got a task of the backend 'default'.*write @task\(backend='ours'\)"):
        framework.add.using(backend="ours").enqueue(1)
