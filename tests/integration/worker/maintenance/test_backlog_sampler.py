"""Workers sample the backlog: one of them in each minute, and an error costs samples only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from psycopg.errors import QueryCanceled

from django_graphile_worker import add_job
from django_graphile_worker.worker.maintenance import backlog_sampler
from tests.support.operating import execute
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)
Wait = Callable[..., None]


def note(payload: Any) -> None:
    pass


@pytest.fixture
def make() -> Iterator[Build]:
    with stepped_workers(note) as build:
        yield build


def samples() -> list[tuple[Any, ...]]:
    return execute("select ready, tasks::text from {schema}._private_backlog_samples order by minute")


def test_workers__take_one_sample_in_each_minute(make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job("note")
    workers = [make() for _ in range(3)]
    for worker in workers:
        worker.recovery.step()
    # At the turn of a minute there may be two.
    assert samples() in ([(1, None)], [(1, None)] * 2)
    execute("update {schema}._private_backlog_samples set minute = minute - interval '1 minute'")
    before = len(samples())
    for worker in workers:
        worker.recovery.step()
    assert len(samples()) - before <= 1, "a worker asks once in a minute"
    monkeypatch.setattr(backlog_sampler, "monotonic", lambda: monotonic() + 60.0)
    for worker in workers:
        worker.recovery.step()
    assert 2 <= len(samples()) <= 4


def test_a_draining_worker__takes_no_sample(make: Build) -> None:
    worker = make()
    worker.is_draining = True
    worker.recovery.step()
    assert samples() == []


def test_an_error__is_reported_and_the_recovery_goes_on(make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = make()
    troubles: list[str] = []
    sampler: Any = vars(worker.recovery._events)["_sampler"]
    monkeypatch.setattr(sampler, "_on_trouble", lambda action, error, retry_in: troubles.append(action))
    execute("alter function {schema}._private_sample_backlog rename to hidden")
    try:
        worker.recovery.step()
        worker.recovery.step()
    finally:
        execute("alter function {schema}.hidden rename to _private_sample_backlog")
    assert troubles == ["backlog samples"], "it is not tried again at every look"
    worker.recovery.step()
    assert samples() == []


def test_a_sample_that_takes_long__does_not_delay_the_recovery(make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled long before the deadline of the statements of recovery, which is half a minute."""
    worker = make()
    errors: list[BaseException] = []
    sampler: Any = vars(worker.recovery._events)["_sampler"]
    monkeypatch.setattr(sampler, "_on_trouble", lambda action, error, retry_in: errors.append(error))
    monkeypatch.setattr(backlog_sampler, "LONGEST_SAMPLE", 0.1)
    name = "{schema}._private_sample_backlog"
    execute(f"alter function {name} rename to hidden")
    execute(
        f"create function {name}(int, int, int, timestamptz) returns boolean language sql"
        " as 'select pg_catalog.pg_sleep(600) is null'"
    )
    try:
        worker.recovery.step()
    finally:
        execute(f"drop function {name}")
        execute("alter function {schema}.hidden rename to _private_sample_backlog")
    assert [type(error) for error in errors] == [QueryCanceled]
