"""A project with two tasks and one recurring task of the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_graphile_worker import task
from django_graphile_worker.registry import tasks


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    with tasks.isolated():
        tasks._tasks.clear()
        task("send_report")(lambda payload: None)
        task("sync_stock")(lambda payload: None)
        task("prune", cron="0 3 * * *")(lambda payload: None)
        yield
