"""The regular checks: the version of the schema, tasks that no live worker has, and samples of the backlog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.errors import QueryCanceled

from django_graphile_worker import add_job, signals
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.maintenance import regular_checks
from django_graphile_worker.worker.maintenance.regular_checks import FIRST_LOOK, SchemaVersion
from django_graphile_worker.worker.runner import never
from tests.support.factories import make_job
from tests.support.operating import execute
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)


def quick(payload: Any) -> None: ...


@pytest.fixture
def make() -> Iterator[Build]:
    with stepped_workers(quick) as build:
        yield build


class TestTheVersionOfTheSchema:
    class Clock:
        now = 1000.0

        def monotonic(self) -> float:
            return self.now

        def time(self) -> float:
            return self.now

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = self.Clock()
        monkeypatch.setattr(regular_checks, "time", clock)
        return clock

    @pytest.fixture(autouse=True)
    def _ledger_as_it_was(self) -> Iterator[None]:
        yield
        execute("delete from {schema}.migrations where id > 20")

    @pytest.fixture
    def refusals(self) -> list[str]:
        return []

    @pytest.fixture
    def worker(self, make: Build, refusals: list[str]) -> DatabaseWorker:
        # So that it checks every 60 seconds.
        worker = make(worker_timeout=80.0)
        worker.on_refused = lambda error: refusals.append(str(error))
        return worker

    @pytest.fixture
    def version(self, worker: DatabaseWorker) -> SchemaVersion:
        return SchemaVersion(worker)

    def break_schema(self) -> None:
        execute("insert into {schema}.migrations (id, breaking) values (21, true)")

    def test_is_checked_at_the_start_and_after_the_interval(
        self, worker: DatabaseWorker, version: SchemaVersion, refusals: list[str], clock: Clock
    ) -> None:
        version.check_if_due(worker.claim_database)
        self.break_schema()
        clock.now += 59.0
        version.check_if_due(worker.claim_database)
        assert refusals == []
        clock.now += 1.0
        version.check_if_due(worker.claim_database)
        assert len(refusals) == 1

    def test_is_checked_at_once_after_an_announced_migration(
        self, worker: DatabaseWorker, version: SchemaVersion, refusals: list[str], clock: Clock
    ) -> None:
        version.check_if_due(worker.claim_database)
        self.break_schema()
        version.check_soon()
        version.check_if_due(worker.claim_database)
        assert len(refusals) == 1

    def test_is_checked_when_the_listener_has_reconnected(
        self, worker: DatabaseWorker, refusals: list[str], clock: Clock
    ) -> None:
        """The announcement may have been missed."""
        assert worker.listener is not None
        worker.listener.wait(0, unless=never)
        worker.recovery.step()
        worker.recovery.forget_wake()
        worker.claim_database.close()
        self.break_schema()
        worker.recovery.step()
        assert refusals == []
        worker.listener.wait(0, unless=never)
        assert worker.recovery.was_woken()
        worker.recovery.step()
        assert len(refusals) == 1


def test_tasks_that_no_live_worker_has__are_reported_once_by_name(make: Build) -> None:
    told: list[tuple[str, ...]] = []

    def remember(identifiers: tuple[str, ...], **kwargs: Any) -> None:
        told.append(identifiers)

    signals.tasks_unserved.connect(remember)
    try:
        worker = make()
        make_job("quick")
        make_job("typo")
        assert worker.unserved_tasks.step() == FIRST_LOOK, "workers that start together have registered by then"
        for name in ("other", None, None):
            worker.unserved_tasks.step()
            worker.signal_sender.step()
            if name:
                make_job(name)
        assert told == [("typo",), ("other",)]
    finally:
        signals.tasks_unserved.disconnect(remember)


class TestSamplesOfTheBacklog:
    """One worker takes them in each minute, and an error costs samples only."""

    def samples(self) -> list[tuple[Any, ...]]:
        return execute("select ready, tasks::text from {schema}._private_backlog_samples order by minute")

    def test_are_taken_once_in_each_minute(self, make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        add_job("quick")
        workers = [make() for _ in range(3)]
        for worker in workers:
            worker.recovery.step()
        # At the turn of a minute there may be two.
        assert self.samples() in ([(1, None)], [(1, None)] * 2)
        execute("update {schema}._private_backlog_samples set minute = minute - interval '1 minute'")
        before = len(self.samples())
        for worker in workers:
            worker.recovery.step()
        assert len(self.samples()) - before <= 1, "a worker asks once in a minute"
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 60.0, time=time.time)
        monkeypatch.setattr(regular_checks, "time", later)
        for worker in workers:
            worker.recovery.step()
        assert 2 <= len(self.samples()) <= 4

    def test_that_take_long__do_not_delay_the_recovery(self, make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are cancelled long before the deadline of the statements of recovery, which is half a minute."""
        worker = make()
        errors: list[BaseException] = []
        monkeypatch.setattr(worker.reports, "database_trouble", lambda action, error, delay: errors.append(error))
        monkeypatch.setattr(regular_checks, "LONGEST_SAMPLE", 0.1)
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
