"""Events that a worker notes and writes later: its start, and what keeps it from working."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_graphile_worker.worker.maintenance import regular_checks
from tests.support.operating import execute
from tests.support.stepped_worker import SteppedRunner, build, own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def nothing(payload: Any) -> None: ...


@pytest.fixture
def runner() -> Iterator[SteppedRunner]:
    with own_tasks(nothing) as registry:
        runner = build(registry)
        yield runner
        runner.close()


def kinds() -> list[str]:
    return [row[0] for row in execute("select kind from {schema}._private_events order by id")]


def detail(kind: str, key: str) -> Any:
    ((value,),) = execute("select details ->> %s from {schema}._private_events where kind = %s", [key, kind])
    return value


def test_start__is_told_by_the_first_look_of_the_recovery(runner: SteppedRunner) -> None:
    runner.worker.replaced_process = {"cause": "ended", "exit_code": -9, "former_pid": 5}
    runner.prepare()
    assert kinds() == []
    runner.worker.recovery.step()
    runner.worker.recovery.step()
    assert kinds() == ["worker_started", "process_replaced"]
    facts = "select worker_id, subject, details ->> 'concurrency' from {schema}._private_events order by id limit 1"
    ((host,),) = execute("select metadata ->> 'host' from {schema}._private_workers")
    assert execute(facts) == [(runner.worker.worker_id, host, str(runner.settings.concurrency))]
    assert detail("process_replaced", "exit_code") == "-9"


def test_lost_lease__is_told_with_the_former_id(runner: SteppedRunner) -> None:
    runner.prepare()
    former = runner.worker.worker_id
    execute("delete from {schema}._private_workers")
    runner.worker.heartbeat.was_called = True
    runner.worker.heartbeat.step()
    runner.worker.recovery.step()
    assert kinds() == ["worker_started", "worker_returned"]
    assert detail("worker_returned", "former_id") == former


def test_trouble__is_told_when_it_is_over(runner: SteppedRunner) -> None:
    runner.prepare()
    events = runner.worker.reports
    events._database_answered(0.5)
    events._database_answered(90.4)
    events.indexes_missed(["a"], ["b"])
    events.indexes_missed(["a"], ["b"])
    events.tasks_unserved(["send"])
    runner.worker.recovery.step()
    assert kinds() == ["worker_started", "database_lost", "indexes_missed", "tasks_unserved"]
    assert detail("database_lost", "seconds") == "90"


def test_event_that_the_database_does_not_take__is_written_later(runner: SteppedRunner) -> None:
    runner.prepare()
    execute("alter table {schema}._private_events rename to elsewhere")
    execute("alter function {schema}._private_add_event rename to elsewhere")
    runner.worker.reports.write_noted(runner.worker.claim_database)
    execute("alter function {schema}.elsewhere rename to _private_add_event")
    execute("alter table {schema}.elsewhere rename to _private_events")
    runner.worker.reports.write_noted(runner.worker.claim_database)
    assert kinds() == ["worker_started"]


def test_newer_schema__is_told_once_an_hour(runner: SteppedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_checks, "time", SimpleNamespace(time=lambda: 7200.0, monotonic=lambda: 1000.0))
    execute("insert into {schema}.migrations (id, breaking) values (999, true)")
    try:
        for _ in range(2):
            with pytest.raises(Exception, match="newer graphile-worker"):
                runner.prepare()
    finally:
        execute("delete from {schema}.migrations where id = 999")
    assert kinds() == ["schema_refused"]
