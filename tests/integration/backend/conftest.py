"""Django Tasks with our backend, and workers that run its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_graphile_worker.registry import tasks
from django_graphile_worker.worker.parts import Parts
from tests.support.stepped_worker import Build, run_all

BACKEND = "django_graphile_worker.backend.GraphileWorkerBackend"
QUEUES = ["default", "emails", "accounts"]


@pytest.fixture
def framework(settings: Any) -> Iterator[Any]:
    """The module of the tests' Django tasks, in a project whose default backend is ours."""
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": QUEUES}}
    with tasks.isolated() as registry:
        from tests.support import django_tasks

        registry._tasks.clear()
        django_tasks.calls.clear()
        yield django_tasks


@pytest.fixture
def worker(framework: Any) -> Iterator[Build]:
    """A factory of workers whose parts the test steps."""
    make = Build(tasks)
    yield make
    for runner in make.made:
        runner.close()


@pytest.fixture
def run(worker: Build, wait_until: Callable[..., None]) -> Callable[..., Parts]:
    """A function that runs all jobs that are due, and sends the signals of their ends."""

    def run(**overrides: Any) -> Parts:
        parts = worker(**overrides)
        run_all(parts, wait_until)
        parts.signal_sender.step()
        return parts

    return run
