"""What a worker does with the job of a Django task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker import add_job
from django_graphile_worker.backend.runnable import RunnableTask
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.limits import keys_of
from django_graphile_worker.models import Job, Schedule
from django_graphile_worker.registry import identifier_for

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[..., Any]
PATH = "tests.support.django_tasks"
OPTIONS_OF_JOBS = ("job_queue__queue_name", "priority", "max_attempts", "key")


def test_context__tells_the_attempt_and_has_the_helpers(framework: Any, run: Run) -> None:
    result, other = framework.about.enqueue(), framework.about_later.enqueue("word")
    run()
    for each in (result, other):
        each.refresh()
    assert result.return_value == {"attempt": 1, "id": result.id}
    assert other.return_value == [1, "word"]
    # The two tasks run at the same time, in either order.
    ((status, context),) = (call for call in framework.calls if isinstance(call, tuple))
    assert (status, context.task_result.task) == ("RUNNING", framework.about)
    assert context.helpers.job.task_identifier == f"{PATH}.about"


def test_retries__tell_of_each_attempt(framework: Any, run: Run) -> None:
    result = framework.flaky.enqueue()
    run()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", "attempt 3", 3)
    assert [error.exception_class for error in result.errors] == [ConnectionError, ConnectionError]
    assert [f"attempt {number}" in error.traceback for number, error in enumerate(result.errors, 1)] == [True, True]
    assert len(set(result.worker_ids)) == 1
    assert result.started_at < result.last_attempted_at <= result.finished_at


def test_attempt_that_will_be_repeated__leaves_the_result_ready(framework: Any, run: Run) -> None:
    result = framework.picky.enqueue("")
    run()
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == ("READY", False, 1)
    assert result.errors[0].exception_class is TypeError


@pytest.mark.parametrize("name", ["unsuitable", "hopeless"])
def test_failures_that_no_attempt_can_repair__are_not_repeated(framework: Any, run: Run, name: str) -> None:
    result = getattr(framework, name).enqueue()
    run()
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 1)


def test_atomic_task__has_its_result(framework: Any, run: Run) -> None:
    result = framework.atomic.enqueue()
    run()
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", "done")


def test_job_key__replaces_the_waiting_job(framework: Any, run: Run) -> None:
    first = framework.report.enqueue(7, title="draft")
    second = framework.report.enqueue(7, title="final")
    run()
    second.refresh()
    assert (first.id, framework.calls) == (second.id, [(7, "final")])
    assert second.return_value == "final"


@pytest.mark.parametrize("name", ["plain_function", "_undeclared", "calls", "nothing"])
def test_only_a_task_of_our_backend__is_run(framework: Any, run: Run, name: str) -> None:
    add_job(f"{PATH}.{name}", {"args": [], "kwargs": {}})
    framework.add.enqueue(1)
    run()
    assert framework.calls == [(1, 0)]
    assert [job.task.identifier for job in Job.objects.all()] == [f"{PATH}.{name}"]


def test_task_of_another_backend__is_not_run(
    framework: Any, run: Run, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_graphile_worker.backend import task
    from django_graphile_worker.backend.compat import BaseTaskBackend

    other = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"
    settings.TASKS = {**settings.TASKS, "other": {"BACKEND": other}}
    foreign = task(backend="other")(framework.plain_function)
    monkeypatch.setattr(framework, "plain_function", foreign)
    add_job(foreign.module_path, {"args": [], "kwargs": {}})
    run()
    assert framework.calls == []
    # The same task of our backend is run.
    monkeypatch.setattr(framework, "plain_function", foreign.using(backend="default"))
    run()
    assert framework.calls == ["a function that is no task"]


def test_job_that_is_replaced_under_its_key__begins_again(framework: Any, run: Run) -> None:
    keyed = framework.picky.using(job_key="k")
    result = keyed.enqueue("")
    run()
    result.refresh()
    assert (result.attempts, len(result.errors)) == (1, 1)
    again = keyed.enqueue("a@example.com")
    again.refresh()
    assert (again.id, again.status, again.attempts, again.errors) == (result.id, "READY", 0, [])
    run()
    again.refresh()
    assert (again.status, again.attempts, again.errors) == ("SUCCESSFUL", 1, [])


@pytest.mark.parametrize("payload", [[1], {"args": 5}, {"args": [], "kwargs": []}])
def test_payload_that_is_no_call__fails_at_once(framework: Any, run: Run, payload: Any) -> None:
    job = add_job(f"{PATH}.add", payload)
    run()
    row = Job.objects.get(pk=job.id)
    assert row.attempts == row.max_attempts
    assert 'expected {"args": [...], "kwargs": {...}}' in str(row.last_error)


def test_payload_without_arguments__calls_without_arguments(framework: Any, run: Run) -> None:
    add_job(f"{PATH}.unkept")
    run()
    assert framework.calls == ["unkept"]


def test_limits__name_arguments_of_the_function(framework: Any) -> None:
    from django_graphile_worker.backend.runnable import find_runnable

    task = find_runnable(f"{PATH}.limited")
    assert task is not None
    expected = (("account:{account}", "account:7"), ("fair:{tenant}", "none"), ("function", "7"))
    for payload in ('{"args": [7], "kwargs": {}}', '{"args": [], "kwargs": {"account": 7, "tenant": "none"}}'):
        assert keys_of(task, payload) == expected
    assert {key.text for key in keys_of(task, "[]")} == {"<unreadable>"}


def test_call_without_an_argument_that_a_limit_needs__is_refused(framework: Any) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'account'"):
        framework.limited.enqueue(tenant="a")
    assert not Job.objects.exists()
    framework.limited.enqueue(1)
    with pytest.raises(PayloadError, match="expected the field 'account', got the fields 'tenant'"):
        add_job(f"{PATH}.limited", {"kwargs": {"tenant": "a"}})
    with pytest.raises(PayloadError, match=r"do not fit .*limited "):
        add_job(f"{PATH}.limited", {"args": [1, 2, 3]})
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "label", "arguments"),
    [("mail", "emails", ["a@x.org"]), ("report", "default", [7]), ("broken", "default", []), ("add", "default", [1])],
)
def test_schedule__adds_the_job_that_enqueue_adds(
    framework: Any, settings: Any, name: str, label: str, arguments: list[Any]
) -> None:
    options = {"SERIAL_QUEUES": {"emails": "outbox"}, "MAX_ATTEMPTS": 7}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    enqueued, identifier = getattr(framework, name), identifier_for(f"{PATH}.{name}", label)
    enqueued.enqueue(*arguments)
    expected = Job.objects.values_list(*OPTIONS_OF_JOBS).get()
    schedule = Schedule.objects.create(
        name=name, task=identifier, payload={"args": arguments}, interval=timedelta(hours=1)
    )
    job_id = schedule.run_now()
    assert Job.objects.values_list(*OPTIONS_OF_JOBS).get(pk=job_id) == expected


def test_expiry_of_a_task__counts_for_jobs_that_schedules_add(framework: Any) -> None:
    expiring = replace(framework.about, expires=timedelta(minutes=5))
    assert RunnableTask(expiring, "about").expires == 300
    assert RunnableTask(replace(framework.about, expires=False), "about").expires is None
    assert RunnableTask(framework.about, "about").expires is None
