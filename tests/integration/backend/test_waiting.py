"""The results of Django tasks with the functions for results of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_graphile_worker import await_for_result, result, wait_for_result
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidTypeError
from django_graphile_worker.results import progress_token
from django_graphile_worker.results.reading import read_token
from tests.conftest import WAIT_TIMEOUT

pytestmark = pytest.mark.django_db(transaction=True)


def test_result_of_a_django_task__can_be_waited_for(framework: Any, run: Callable[..., Any]) -> None:
    enqueued = framework.add.enqueue(1, 2)
    run()
    assert wait_for_result(enqueued, timeout=WAIT_TIMEOUT).value == 3
    assert async_to_sync(await_for_result)(enqueued, timeout=WAIT_TIMEOUT).value == 3
    found = result(enqueued)
    assert found is not None
    assert found.value == 3
    assert read_token(progress_token(enqueued))[0] == found.job_id


def test_wait_in_the_transaction_of_the_call__is_refused(framework: Any) -> None:
    with transaction.atomic():
        enqueued = framework.add.enqueue(1)
        with pytest.raises(GraphileWorkerError, match="transaction"):
            wait_for_result(enqueued, timeout=WAIT_TIMEOUT)


def test_result_of_a_foreign_backend__is_refused(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend.compat import BaseTaskBackend

    other = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.immediate.ImmediateBackend"
    settings.TASKS = {**settings.TASKS, "other": {"BACKEND": other}}
    enqueued = framework.add.using(backend="other").enqueue(1)
    for read in (wait_for_result, result, progress_token):
        with pytest.raises(InvalidTypeError, match="can read its results"):
            read(enqueued)


def test_value_that_is_no_job__is_refused(framework: Any) -> None:
    with pytest.raises(InvalidTypeError, match="or the result of a Django task, got 'AAAAAAAAAAE'"):
        result("AAAAAAAAAAE")  # type: ignore[arg-type]
