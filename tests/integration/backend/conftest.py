"""Workers that run Django tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_graphile_worker.registry import tasks
from django_graphile_worker.worker.database_worker import DatabaseWorker
from tests.support.stepped_worker import Build, run_all


@pytest.fixture
def worker(framework: Any) -> Iterator[Build]:
    """A factory of workers whose parts the test steps."""
    make = Build(tasks)
    yield make
    for runner in make.made:
        runner.close()


@pytest.fixture
def run(worker: Build, wait_until: Callable[..., None]) -> Callable[..., DatabaseWorker]:
    """A function that runs all jobs that are due, and sends the signals of their ends."""

    def run(**overrides: Any) -> DatabaseWorker:
        parts = worker(**overrides)
        run_all(parts, wait_until)
        parts.signal_sender.step()
        return parts

    return run
