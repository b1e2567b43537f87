"""Samples of the backlog while counting takes too long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_graphile_worker.worker.maintenance import regular_checks
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make() -> Iterator[Build]:
    with stepped_workers() as build:
        yield build


def test_jobs_that_cannot_be_counted_in_time__are_estimated(make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_checks, "LONGEST_COUNT", 0.1)
    monkeypatch.setattr(regular_checks, "LONGEST_SAMPLE", 60.0)
    make_job("send", run_at=minutes_ago(5))
    name = "{schema}._private_count_backlog"
    execute(f"alter function {name} rename to hidden")
    execute(
        f"create function {name}(int, timestamptz)"
        " returns table (state text, task_id integer, number bigint, is_exact boolean) language sql"
        " as 'select null, null::int, null::bigint, pg_catalog.pg_sleep(600) is null'"
    )
    worker = make()
    try:
        worker.recovery.step()
        worker.recovery.step()
    finally:
        execute(f"drop function {name}")
        execute("alter function {schema}.hidden rename to _private_count_backlog")
    assert execute("select ready, 'ready' = any (estimated) from {schema}._private_backlog_samples") == [(1, True)]
