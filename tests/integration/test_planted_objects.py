"""A role that may create objects in a schema of the search_path gets none of them called by us."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import ProgrammingError, connection, connections, transaction
from pytest_django import DjangoDbBlocker

from django_graphile_worker import (
    JobKeyMode,
    JobSpec,
    add_job,
    add_jobs,
    cleanup,
    complete_jobs,
    conf,
    force_unlock_workers,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
    run_once,
)
from django_graphile_worker.sql.schedules import runs
from django_graphile_worker.testing import clear_queue
from django_graphile_worker.worker.database.connection import Database
from testproject import databases
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import make_worker
from tests.support.pgbouncer import BINARY, REASON, pgbouncer
from tests.support.planted import PLANTED, Planted, PlantedSearchPath
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def planted(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Planted]:
    with django_db_blocker.unblock():
        url = databases.to_url(connections["default"].settings_dict)
    with psycopg.connect(url, autocommit=True) as owner:
        planted = Planted(owner, f"gw_planter_{os.getpid()}")
        planted.plant()
        try:
            yield planted
        finally:
            planted.remove()


@pytest.fixture
def planted_path(planted: Planted) -> Iterator[PlantedSearchPath]:
    """Our statements on Django's connection can see the look-alikes, and call none."""
    statements, before = PlantedSearchPath(), planted.calls()
    with connection.execute_wrapper(statements):
        yield statements
    assert planted.calls() == before


@pytest.fixture
def lured_sessions(planted: Planted) -> Iterator[None]:
    """New sessions of the database can see the look-alikes: those of the worker, too."""
    name, before = connection.settings_dict["NAME"], planted.calls()
    with connection.cursor() as cursor:
        cursor.execute(f'alter database "{name}" set search_path = public, {PLANTED}')
        yield
        cursor.execute(f'alter database "{name}" reset search_path')
    assert planted.calls() == before


# Each calls one of the look-alikes: what is tested below is not that there is nothing to call.
EXAMPLES = (
    "count(1::bigint)",
    "array_agg('a'::text)",
    "unnest(array[1, 2])",
    "'{}'::jsonb -> '1'",
    "'a'::text || 1.5::float8",
    "interval '1 second' * '2'",
    "format('a'::text, 'a'::text)",
    "0.5 + random()",
)


def test_look_alikes_are_called_where_nothing_is_done_about_it(planted: Planted) -> None:
    before = planted.calls()
    for number, example in enumerate(EXAMPLES, 1):
        planted_path = connection.execute_wrapper(PlantedSearchPath())
        with planted_path, pytest.raises(ProgrammingError, match="planted"), transaction.atomic():
            connection.cursor().execute(f"/* gw:test */ select {example}")
        assert planted.calls() == before + number


def test_the_python_api(planted_path: PlantedSearchPath) -> None:
    job = add_job("a", {"n": 1}, queue_name="queue", run_at=timedelta(hours=1), flags=["flag"], priority=1)
    add_job("a", [1], job_key="key")
    add_job("a", [2], job_key="key", job_key_mode=JobKeyMode.UNSAFE_DEDUPE)
    add_jobs([JobSpec("b", [3], job_key="key"), JobSpec("c", queue_name="new", run_at=minutes_ago(5)), JobSpec("a")])
    add_jobs([JobSpec("b")], returning=False)
    make_job("a", key="running", locked_by="worker", attempts=1)
    add_job("a", job_key="running")
    reschedule_jobs([job.id], run_at=timedelta(0), priority=2)
    permanently_fail_jobs([job.id], "because")
    complete_jobs([job.id])
    remove_job("key")
    force_unlock_workers(["worker"])
    make_failed_job("a")
    make_worker("worker", tasks=["a"])
    assert cleanup(failed_jobs_older_than=timedelta(0)).is_complete
    clear_queue()
    assert {text.split()[1] for text in planted_path.texts} >= {"gw:add_job", "gw:add_jobs", "gw:watermark", "gw:names"}


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    found: list[Any] = []

    def note(payload: Any) -> None:
        found.append(payload)
        if payload == "fail":
            raise ValueError(payload)

    with own_tasks(note):
        yield found


@pytest.fixture(params=["direct", pytest.param("pooled", marks=pytest.mark.skipif(BINARY is None, reason=REASON))])
def route(
    request: pytest.FixtureRequest, transactional_db: None, lured_sessions: None, wait_until: Callable[..., object]
) -> Iterator[None]:
    """The worker's own connections go to the server, or through a pooler in transaction mode."""
    if request.param == "direct":
        yield
        return
    entry = connections.settings["default"]
    with pgbouncer(databases.to_url(entry), mode="transaction", wait_until=wait_until) as url:
        connections.settings["default"] = connections.configure_settings({"default": databases.from_url(url)})[
            "default"
        ]
        try:
            yield
        finally:
            connections.settings["default"] = entry


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("route")
def test_a_worker(seen: list[Any]) -> None:
    make_worker("django-worker-dead", beat=minutes_ago(60), tasks=["note"])
    make_job("note", locked_by="django-worker-dead/1", attempts=1, locked_at=minutes_ago(30), payload="recovered")
    for queue_name in (None, "queue"):
        for payload in ("succeed", "fail"):
            add_job("note", payload, queue_name=queue_name, flags=["flag"])

    assert run_once() in (0, 1)
    assert {"succeed", "fail"} <= set(seen)
    assert "recovered" in seen


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("route")
def test_each_statement_of_a_worker__has_its_own_search_path(worker_schema: str) -> None:
    """Whatever a statement of the worker names, it finds nothing of others."""
    database = Database("default", conf.current(), part="test")
    paths = []
    for _ in range(3):
        with database.cursor() as cursor:
            paths.append(cursor.execute("show search_path").fetchone())
    database.close()
    assert paths == [("pg_catalog, pg_temp",)] * 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("route")
def test_a_worker_with_a_crontab(seen: list[Any], worker_schema: str) -> None:
    """Each statement of the crontab, also those that delete old runs."""
    with connection.cursor() as cursor:
        runs.note_missed(cursor, "gone", tick=minutes_ago(5), number=1, schema=worker_schema)
    database = Database("default", conf.current(), part="test")
    with database.cursor() as cursor:
        runs.forget_runs(cursor, schema=worker_schema)
    database.close()


def test_functions__ignore_what_is_in_the_sessions_own_temporary_schema(
    raw_connection: Callable[..., psycopg.Connection[Any]], worker_schema: str
) -> None:
    """Unless a search_path names it, PostgreSQL looks for types and tables there first."""
    session = raw_connection()
    schema = f'"{worker_schema}"'
    for name in ("text", "json", "jsonb", "timestamptz", "float8", "regclass"):
        session.execute(f"create domain pg_temp.{name} as pg_catalog.int4 check (false)".encode())
    session.execute("create temp table _private_jobs (); create temp table pg_locks ()")
    for call in (
        "id from {schema}.add_job('a', '[1]', 'queue', null, null, 'key', 1, '{{flag}}')",
        "id from {schema}.add_job('a', '[2]', job_key => 'key')",
        "id from {schema}.add_jobs(array[('a', '[1]', 'q', null, null, 'key', null, '{{f}}')]::{schema}.job_spec[])",
        "id from {schema}.reschedule_jobs(array(select id from {schema}._private_jobs), pg_catalog.now())",
        "id from {schema}.permanently_fail_jobs(array(select id from {schema}._private_jobs))",
        "{schema}.force_unlock_workers('{{a}}')",
        "id from {schema}.remove_job('key')",
    ):
        assert session.execute(f"select {call.format(schema=schema)}".encode()).fetchall()
