"""Django tasks are enqueued as jobs, run by a worker, and their results are read back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_graphile_worker import Unique, get_job
from django_graphile_worker.backend import enqueue_many
from django_graphile_worker.backend.runnable import register
from django_graphile_worker.backend.tasks import validate_arguments
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.models import Job
from django_graphile_worker.testing import run_jobs

pytestmark = pytest.mark.django_db
# A worker sees committed jobs only.
committing = pytest.mark.django_db(transaction=True)

Run = Callable[..., Any]


def job_of(result: Any) -> Any:
    from django_graphile_worker.backend.results import job_id_of

    job_id = job_id_of(result.id, "default")
    assert job_id is not None
    return get_job(job_id)


def test_enqueue__adds_a_job_with_the_path_of_the_function(framework: Any) -> None:
    result = framework.add.enqueue(1, right=2)
    job = job_of(result)
    assert job.task_identifier == "tests.support.django_tasks.add"
    assert job.payload == {"args": [1], "kwargs": {"right": 2}}
    assert (result.status, result.args, result.kwargs, result.backend) == ("READY", [1], {"right": 2}, "default")
    assert (result.enqueued_at, result.attempts, len(result.id) < 64) == (job.created_at, 0, True)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "problem"),
    [
        ("add", (), {}, "missing a required argument: 'left'"),
        ("add", (1, 2, 3), {}, "too many positional arguments"),
        ("add", (1,), {"wrong": 2}, "got an unexpected keyword argument 'wrong'"),
        ("about_later", (), {}, "missing a required argument: 'word'"),
    ],
)
def test_enqueue__refuses_arguments_that_the_function_does_not_take(
    framework: Any, name: str, args: Any, kwargs: Any, problem: str
) -> None:
    task = getattr(framework, name)
    with pytest.raises(TypeError) as refused:
        task.enqueue(*args, **kwargs)
    assert str(refused.value) == f"enqueue() of tests.support.django_tasks.{name}: {problem}."
    with pytest.raises(TypeError, match=r"^calls\[0\]: enqueue\(\) of "):
        enqueue_many([(task, args, kwargs)])


def test_enqueue__takes_what_a_decorator_around_the_function_takes(framework: Any) -> None:
    def logged_in(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function("maria", *args)

        return call

    def greet(user: str, word: str) -> None: ...

    task = SimpleNamespace(func=logged_in(greet), takes_context=False, module_path="shop.greet")
    validate_arguments(cast("Any", task), ["hello"], {})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        validate_arguments(cast("Any", task), [], {"word": "hello"})


def test_enqueue__has_one_attempt_unless_somebody_says_more(framework: Any, settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"MAX_ATTEMPTS": 4}
    assert job_of(framework.add.enqueue(1)).max_attempts == 1
    assert job_of(framework.add.using(max_attempts=3).enqueue(1)).max_attempts == 3


def test_job_that_an_operator_adds__is_unique_as_those_of_enqueue(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unique, known = framework.add.using(unique=True), register(framework.add)
    monkeypatch.setattr(known, "django_task", unique)
    unique.enqueue(1)
    identifier = known.identifier
    for payload in ('{"args": [1]}', '{"args": [2]}'):
        call_command("graphile_worker", "add", identifier, payload, stdout=StringIO())
    assert sorted(job.payload["args"] for job in Job.objects.all()) == [[1], [2]]


def test_enqueue__is_part_of_the_transaction_of_the_caller(framework: Any) -> None:
    with transaction.atomic():
        result = framework.add.enqueue(1)
        transaction.set_rollback(True)
    assert job_of(result) is None


def test_get_result__equals_the_result_of_enqueue(framework: Any) -> None:
    at = datetime(2040, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    result = framework.add.using(priority=-7, run_after=at, queue_name="emails").enqueue((1, 2), right={"a": None})
    assert framework.add.get_result(result.id) == result
    assert result.task.run_after == at


@committing
def test_priority__larger_numbers_run_sooner(framework: Any, run: Run) -> None:
    for priority in (0, -100, 100, 5):
        framework.add.using(priority=priority).enqueue(priority)
    run(concurrency=1)
    assert [left for left, _ in framework.calls] == [100, 5, 0, -100]


@committing
def test_result__tells_the_return_value(framework: Any, run: Run) -> None:
    result = framework.add.enqueue(1, 2)
    other = framework.later.enqueue("word")
    run()
    for each, value in ((result, 3), (other, "WORD")):
        assert not each.is_finished
        each.refresh()
        assert (each.status, each.return_value, each.attempts, each.errors) == ("SUCCESSFUL", value, 1, [])
        assert each.enqueued_at <= each.started_at == each.last_attempted_at <= each.finished_at


@pytest.mark.parametrize("identity", ["123", "", "x" * 16, "a3f1c2d4-1111-4222-8333-444455556666", None, 5])
def test_malformed_ids__need_no_query(framework: Any, identity: Any) -> None:
    from django_graphile_worker.backend.compat import TaskResultDoesNotExist

    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(TaskResultDoesNotExist, match="is no id that enqueue"),
    ):
        framework.add.get_result(identity)
    assert not queries.captured_queries


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "nan at args[0]."),
        ({"a": [1, float("-inf")]}, "-inf at args[0].a[1]."),
        ({"a": {1: 2}}, "got 1 (int) at args[0].a."),
        ({"a b": {3}}, 'got set (pass a list) at args[0]["a b"].'),
        ("a\x00b", "cannot store a NUL character at position 1 at args[0]."),
        ({"é": ["\ud800"]}, "cannot store half a surrogate pair ('\\ud800') at position 0 at args[0].é[0]."),
        ({"\x00": 1}, "cannot store a NUL character at position 0 at args[0]."),
    ],
)
def test_arguments_that_json_cannot_hold__are_refused_before_sql(framework: Any, value: Any, place: str) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(PayloadError) as refused:
        framework.add.enqueue(value)
    assert str(refused.value).endswith(place)
    assert not queries.captured_queries


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database__is_where_the_jobs_of_a_backend_are(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend.compat import TaskResultDoesNotExist, task_backends

    here = settings.TASKS["default"]
    settings.TASKS = {"default": here, "there": {**here, "OPTIONS": {"DATABASE": "other"}}}
    there = framework.add.using(backend="there")
    with transaction.atomic(using="other"):
        lost = there.enqueue(1)
        transaction.set_rollback(True, using="other")
    kept = there.enqueue(2)
    framework.add.enqueue(3)
    assert task_backends["there"].get_result(kept.id) == kept
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["there"].get_result(lost.id)
    with CaptureQueriesContext(connection) as queries, pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(kept.id)
    assert not queries.captured_queries


def test_serial_queue__of_a_label(framework: Any, settings: Any) -> None:
    options = {"SERIAL_QUEUES": {"accounts": "one by one"}, "MAX_ATTEMPTS": 4}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    job = job_of(framework.add.using(queue_name="accounts").enqueue(1))
    assert (job.queue_name, job.max_attempts) == ("one by one", 4)
    assert job_of(framework.add.enqueue(1)).queue_name is None
    assert job_of(framework.broken.enqueue()).max_attempts == 3


def test_asynchronous_calls__do_the_same(framework: Any) -> None:
    from django_graphile_worker.backend.compat import TaskResultDoesNotExist

    async def use() -> tuple[Any, Any]:
        result = await framework.add.aenqueue(1, right=2)
        found = await framework.add.aget_result(result.id)
        await found.arefresh()
        with pytest.raises(TaskResultDoesNotExist):
            # In an event loop, where a query is an error.
            framework.add.get_result("123")
        return result, found

    result, found = async_to_sync(use)()
    assert (result, result.kwargs) == (found, {"right": 2})


class TestUnique:
    def test_the_same_call_is_one_job_whatever_its_time_and_priority(self, framework: Any) -> None:
        unique = framework.add.using(unique=True)
        first = unique.enqueue(1, right=2)
        again = unique.using(run_after=timedelta(hours=1), priority=5).enqueue(left=1, right=2)
        others = [unique.enqueue(1, right=3), unique.using(unique=False).enqueue(1, right=2)]
        assert again.id == first.id
        assert len({first.id, *(other.id for other in others)}) == 3

    def test_a_function_gets_the_arguments_of_the_call(self, framework: Any) -> None:
        unique = framework.add.using(unique=Unique(key=lambda left, right=0: f"left:{left}"))
        assert unique.enqueue(1, right=2).id == unique.enqueue(1, right=3).id != unique.enqueue(2).id

    def test_task_enqueued_is_sent_for_new_jobs_only(self, framework: Any) -> None:
        from django_graphile_worker.backend.compat import task_enqueued

        sent: list[Any] = []

        def receiver(task_result: Any, **kwargs: Any) -> None:
            sent.append(task_result.id)

        task_enqueued.connect(receiver)
        try:
            unique = framework.add.using(unique=True)
            first = unique.enqueue(1)
            results = enqueue_many([(unique, [1]), (unique, [2]), (unique, [2])])
        finally:
            task_enqueued.disconnect(receiver)
        assert [result.id for result in results] == [first.id, results[1].id, results[1].id]
        assert sent == [first.id, results[1].id]

    def test_within_its_window_the_result_of_the_ended_job_is_returned(self, framework: Any) -> None:
        unique = framework.add.using(unique=Unique(for_=60))
        first = unique.enqueue(1, right=2)
        run_jobs()
        again = unique.enqueue(1, right=2)
        again.refresh()
        assert (again.id, again.status, again.return_value) == (first.id, "SUCCESSFUL", 3)

    def test_a_job_key_and_unique_are_refused(self, framework: Any) -> None:
        from django_graphile_worker.backend.compat import InvalidTask

        with pytest.raises(InvalidTask, match="either a job_key or unique"):
            framework.report.using(unique=True)
