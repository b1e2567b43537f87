"""A project with two tasks and one recurring task of the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_graphile_worker import task
from tests.support.stepped_worker import own_tasks


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    with own_tasks():
        task("send_report")(lambda payload: None)
        task("sync_stock")(lambda payload: None)
        task("prune", cron="0 3 * * *")(lambda payload: None)
        yield
