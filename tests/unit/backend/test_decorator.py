"""Our own ``task``: Django's, with the options of a job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import django
import pytest
from django.utils.module_loading import import_string

from django_graphile_worker.backend.compat import LOGGER_NAME
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.registry import tasks


def sample(number: int) -> int:
    return number


def test_task__keeps_its_options_through_using(framework: Any) -> None:
    assert (framework.broken.max_attempts, framework.broken.backoff) == (3, timedelta(0))
    changed = framework.broken.using(priority=5)
    assert (changed.max_attempts, changed.backoff, changed.priority) == (3, timedelta(0), 5)


def test_task__is_registered_under_its_path_and_label(framework: Any) -> None:
    from django_graphile_worker.backend import task

    made = task(queue_name="emails", atomic=True, max_attempts=4, schedulable="billing.send")(sample)
    registered = tasks.get(f"{__name__}.sample@emails")
    assert registered is not None
    assert (registered.atomic, registered.defaults.max_attempts, registered.schedulable) == (True, 4, "billing.send")
    assert f"{__name__}:sample ({__file__}:" in registered.place
    assert made.call(5) == 5


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="Django 6.0 refuses additional keywords")
def test_task_of_the_framework__passes_options_on(framework: Any) -> None:
    framework_task = import_string(f"{LOGGER_NAME}.task")
    made = framework_task(max_attempts=4, job_key="k")(sample)
    assert (made.max_attempts, made.job_key) == (4, "k")
    with pytest.raises(InvalidTypeError, match=r"'max_attemps'\. Did you mean 'max_attempts'\?"):
        framework_task(max_attemps=4)(sample)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attemps": 3}, "Did you mean 'max_attempts'?"),
        ({"run_after": 5}, "Use .using(run_after=...)."),
        ({"colour": 5}, "Known options: priority, queue_name, backend, takes_context, max_attempts"),
    ],
)
def test_unknown_options__are_refused(framework: Any, options: dict[str, Any], message: str) -> None:
    from django_graphile_worker.backend import task

    with pytest.raises(InvalidTypeError) as refused:
        task(**options)
    assert message in str(refused.value)


def test_another_backend__gets_no_options_of_ours(settings: Any) -> None:
    from django_graphile_worker.backend import task
    from django_graphile_worker.backend.compat import BaseTaskBackend

    other = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.immediate.ImmediateBackend"
    settings.TASKS = {"default": {"BACKEND": other}}
    made = task(max_attempts=3, priority=0)(sample)
    assert made.enqueue(7).return_value == 7
    assert not hasattr(made, "max_attempts")
