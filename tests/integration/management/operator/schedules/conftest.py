"""A project with two tasks and one recurring task of the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_graphile_worker import task
from django_graphile_worker.models import Schedule
from tests.support.stepped_worker import own_tasks


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    with own_tasks():
        task("send_report")(lambda payload: None)
        task("sync_stock")(lambda payload: None)
        task("prune", cron="0 3 * * *")(lambda payload: None)
        yield


def make(name: str = "nightly", **fields: Any) -> Schedule:
    return Schedule.objects.create(name=name, **{"task": "send_report", "cron": "0 4 * * *", **fields})
