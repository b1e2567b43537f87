"""A job with a time limit of its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import add_job, get_job, registry, task
from django_graphile_worker.testing import run_jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def remaining() -> Iterator[list[timedelta]]:
    found: list[timedelta] = []
    with registry.tasks.isolated():

        @task(timeout=60)
        def limited(payload: Any, helpers: Any) -> None:
            found.append(helpers.deadline - datetime.now(UTC))

        @task
        async def unlimited(payload: Any, helpers: Any) -> None:
            found.append(helpers.deadline - datetime.now(UTC))

        yield found


@pytest.mark.parametrize("name", ["limited", "unlimited"])
def test_timeout_of_a_job__replaces_that_of_its_task(name: str, remaining: list[timedelta]) -> None:
    job = add_job(name, timeout=600, flags=["slow"])
    assert job.flags == {"slow", "timeout:600"}
    found = get_job(job.id)
    assert found is not None
    assert found.timeout == 600
    run_jobs()
    assert timedelta(seconds=500) < remaining[0] <= timedelta(seconds=600)
