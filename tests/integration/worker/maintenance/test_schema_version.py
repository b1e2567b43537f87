"""When a worker checks the version of the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from django_graphile_worker.worker.maintenance import schema_version
from django_graphile_worker.worker.maintenance.schema_version import SchemaVersion
from django_graphile_worker.worker.parts import Parts
from django_graphile_worker.worker.runner import never
from tests.support.operating import execute
from tests.support.stepped_worker import stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(schema_version, "time", clock)
    return clock


@pytest.fixture
def worker() -> Iterator[Parts]:
    def quick(payload: Any) -> None: ...

    with stepped_workers(quick) as make:
        yield make()


@pytest.fixture(autouse=True)
def _ledger_as_it_was() -> Iterator[None]:
    yield
    execute("delete from {schema}.migrations where id > 20")


@pytest.fixture
def refusals() -> list[str]:
    return []


@pytest.fixture
def version(worker: Parts, refusals: list[str]) -> SchemaVersion:
    schema = worker.recovery._database.schema
    return SchemaVersion(schema=schema, interval=60.0, on_refused=lambda error: refusals.append(str(error)))


def break_schema() -> None:
    execute("insert into {schema}.migrations (id, breaking) values (21, true)")


def test_check__is_due_at_the_start_and_after_the_interval(
    worker: Parts, version: SchemaVersion, refusals: list[str], clock: Clock
) -> None:
    version.check_if_due(worker.recovery._database)
    break_schema()
    clock.now += 59.0
    version.check_if_due(worker.recovery._database)
    assert refusals == []
    clock.now += 1.0
    version.check_if_due(worker.recovery._database)
    assert len(refusals) == 1


def test_announced_migration__is_checked_at_once(
    worker: Parts, version: SchemaVersion, refusals: list[str], clock: Clock
) -> None:
    version.check_if_due(worker.recovery._database)
    break_schema()
    version.check_soon()
    version.check_if_due(worker.recovery._database)
    assert len(refusals) == 1


def test_check_that_fails__is_due_again(
    worker: Parts, version: SchemaVersion, refusals: list[str], clock: Clock
) -> None:
    break_schema()
    execute("alter table {schema}.migrations rename column breaking to other")
    try:
        with pytest.raises(psycopg.Error):
            version.check_if_due(worker.recovery._database)
    finally:
        execute("alter table {schema}.migrations rename column other to breaking")
    version.check_if_due(worker.recovery._database)
    assert len(refusals) == 1


def test_listener_that_has_reconnected__has_the_schema_checked(
    worker: Parts, refusals: list[str], clock: Clock
) -> None:
    """The announcement may have been missed."""
    assert worker.listener is not None
    worker.schema_version._on_refused = lambda error: refusals.append(str(error))
    worker.listener.wait(0, unless=never)
    worker.recovery.step()
    worker.recovery.forget_wake()
    worker.claim_database.close()
    break_schema()
    worker.recovery.step()
    assert refusals == []
    worker.listener.wait(0, unless=never)
    assert worker.recovery.was_woken()
    worker.recovery.step()
    assert len(refusals) == 1
