"""Connections opened while a worker is still being loaded: used if they are there, and never in the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from django_graphile_worker import add_job, conf
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching import preconnect
from django_graphile_worker.worker.fetching.preconnect import database_of, preconnected
from tests.support.stepped_worker import SteppedRunner, build, own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def quick(payload: Any) -> None:
    pass


class Connecting:
    """Counts the connections that are made, and makes them when it is let."""

    def __init__(self, connect: Callable[[Database], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self.made: list[psycopg.Connection[Any]] = []
        self.may_connect = threading.Event()
        self.may_connect.set()

    def __call__(self, database: Database) -> psycopg.Connection[Any]:
        assert self.may_connect.wait(20)
        self.made.append(self._connect(database))
        return self.made[-1]


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for connections as long as a busy machine needs."""
    monkeypatch.setattr(preconnect, "OPEN_TIMEOUT", 60.0)


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connecting]:
    recorder = Connecting(Database._connect)
    monkeypatch.setattr(Database, "_connect", lambda database: recorder(database))
    yield recorder
    recorder.may_connect.set()


def test_a_worker_takes_over_what_was_opened_for_it(connecting: Connecting) -> None:
    with own_tasks(quick) as registry, preconnected(["default"], conf.current()):
        runner = build(registry)
        assert len(connecting.made) == 1
        runner.prepare()
        runner.parts.fetcher.step()
        assert len(connecting.made) == 1
        assert not any(connection.closed for connection in connecting.made)
        runner.close()
    assert all(connection.closed for connection in connecting.made)


def test_what_nobody_took_is_closed(connecting: Connecting) -> None:
    with preconnected(["default"], conf.current()):
        pass
    assert connecting.made
    assert all(connection.closed for connection in connecting.made)
    assert not preconnect._openings


def test_the_rehearsal_takes_no_job(raw_connection: Any, worker_schema: str) -> None:
    job = add_job("anything")
    with preconnected(["default"], conf.current()):
        database = database_of("default", conf.current(), part="fetcher")
    assert database._connection is not None
    database.close()
    row = raw_connection().execute(
        f'select attempts, locked_at from "{worker_schema}"._private_jobs where id = %s', [job.id]
    )
    assert row.fetchall() == [(0, None)]


def test_every_statement_before_the_first_job_was_rehearsed() -> None:
    with own_tasks(quick) as registry:
        build(registry).prepare().close()  # the names of its tasks are made only once
        add_job("quick")
        with preconnected(["default"], conf.current()):
            runner = build(registry)
            rehearsed = prepared_statements(runner)
            runner.prepare()
            runner.parts.fetcher.step()
            assert not runner.parts.fetcher.last_claim_was_empty
            assert {"/* gw:worker_tables */", "/* gw:fast_claim */"} <= rehearsed
            # To register leaves a trace, and cannot be rehearsed.
            assert prepared_statements(runner) - rehearsed == {"/* gw:register-worker */"}
            runner.close()


def prepared_statements(runner: SteppedRunner) -> set[str]:
    """The tags of what the session that claims has met before."""
    connection = runner.parts.claimer._database.connection()
    rows = connection.execute("select statement from pg_prepared_statements", prepare=False)
    return {statement.strip().split("*/")[0] + "*/" for (statement,) in rows}


def test_a_server_that_does_not_answer_is_not_waited_for(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    monkeypatch.setattr(preconnect, "OPEN_TIMEOUT", 0.01)
    connecting.may_connect.clear()
    with preconnected(["default"], conf.current()):
        database = database_of("default", conf.current(), part="fetcher")
        assert database._connection is None
    connecting.may_connect.set()
    wait_until(lambda: len(connecting.made) == 1 and all(connection.closed for connection in connecting.made))


def test_a_database_that_cannot_be_reached_is_told_by_the_worker_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(database: Database) -> Any:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(Database, "_connect", refuse)
    with pytest.raises(CommandError, match=r"^Expected the database to answer, got: connection refused$"):
        call_command("runworker", "--once", "-v0")


def test_a_schema_that_is_not_there_is_told_by_the_worker_itself(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {"SCHEMA": "not_migrated"}
    with pytest.raises(CommandError, match=r'Run "manage\.py migrate graphile_worker"'):
        call_command("runworker", "--once", "-v0")
