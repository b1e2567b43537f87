"""Many calls with one statement for each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_graphile_worker.exceptions import InvalidTypeError, PayloadError
from django_graphile_worker.models import Job

pytestmark = pytest.mark.django_db
# A worker sees committed jobs only.
committing = pytest.mark.django_db(transaction=True)


@committing
def test_enqueue_many__returns_results_in_the_order_of_the_calls(framework: Any, run: Callable[..., Any]) -> None:
    from django_graphile_worker.backend import enqueue_many

    calls: list[Any] = [(framework.add, [number]) for number in range(50)]
    calls.insert(1, (framework.mail, [], {"to": "a@example.com"}))
    with CaptureQueriesContext(connection) as queries:
        results = enqueue_many(calls)
    assert len([each for each in queries.captured_queries if "gw:" in each["sql"]]) == 1
    assert [result.args for result in results[2:]] == [[number] for number in range(1, 50)]
    assert results[1].task == framework.mail
    assert framework.add.get_result(results[7].id) == results[7]
    run()
    results[49].refresh()
    assert results[49].return_value == 48


def test_enqueue_many__enqueues_all_or_none(framework: Any) -> None:
    from django_graphile_worker.backend import enqueue_many

    with pytest.raises(PayloadError, match=r"calls\[1\]: expected a finite number, got nan at args\[0\]"):
        enqueue_many([(framework.add, [1]), (framework.add, [float("nan")])])
    assert not Job.objects.exists()


@pytest.mark.parametrize("call", [5, ("add", [1]), (), "add", [1]])
def test_enqueue_many__names_the_call_that_is_none(framework: Any, call: Any) -> None:
    from django_graphile_worker.backend import enqueue_many

    with pytest.raises(InvalidTypeError, match=r"calls\[0\]: expected a tuple"):
        enqueue_many([call])
    with pytest.raises(InvalidTypeError, match=r"calls\[0\]: expected a list of arguments"):
        enqueue_many([(framework.add, "text")])


def test_task_of_another_backend__is_refused(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend import enqueue_many
    from django_graphile_worker.backend.compat import BaseTaskBackend, InvalidTask

    other = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"
    settings.TASKS = {**settings.TASKS, "other": {"BACKEND": other}}
    with pytest.raises(InvalidTask, match=r"add is a task of DummyBackend"):
        enqueue_many([(framework.add.using(backend="other"), [1])])
