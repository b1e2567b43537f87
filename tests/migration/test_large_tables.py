"""A queue that is adopted with very many jobs: indexes are built while other sessions add and run jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connections, transaction
from django.db.utils import OperationalError

from django_graphile_worker.operations.repair import repair
from django_graphile_worker.sql.install import indexes
from django_graphile_worker.sql.statements import ddl
from tests.migration.conftest import Site
from tests.migration.foreign import make_foreign_schema
from tests.support.worker_sql import WorkerSql

Wait = Callable[..., None]


@pytest.fixture
def adopted(worker: WorkerSql) -> WorkerSql:
    """A schema that another program made."""
    make_foreign_schema(worker)
    worker.query("insert into {schema}._private_jobs (task_id) values (1)")
    return worker


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make migrations treat tables with a few rows as large."""
    monkeypatch.setattr(indexes, "LARGE", 1)


@contextmanager
def open_addition(site: Site) -> Iterator[psycopg.Connection[Any]]:
    """A session that has added a job and has not committed: no other session gets a stronger lock on the table."""
    with site.connect(autocommit=False) as connection:
        WorkerSql(connection, site.schema).query("insert into {schema}._private_jobs (task_id) values (1)")
        yield connection


@contextmanager
def migrating(site: Site) -> Iterator[Callable[[], Future[None]]]:
    """A factory of migrations that run in threads."""

    def migrate() -> None:
        try:
            site.migrate()
        finally:
            connections[site.alias].close()

    with ThreadPoolExecutor() as threads:
        yield lambda: threads.submit(migrate)


def blocked_by(worker: WorkerSql, connection: psycopg.Connection[Any]) -> list[int]:
    rows = worker.query(
        "select pid from pg_stat_activity where %s = any(pg_blocking_pids(pid))", connection.info.backend_pid
    )
    return [row["pid"] for row in rows]


def incomplete(worker: WorkerSql) -> list[str]:
    rows = worker.query("select indexrelid::regclass::text as name from pg_index where not indisvalid")
    return [row["name"] for row in rows]


def lacking(site: Site) -> indexes.Lack:
    with site.connect() as connection, connection.cursor() as cursor:
        return indexes.lacking_indexes(cursor, schema=site.schema)


@pytest.mark.usefixtures("large")
def test_indexes__are_built_while_jobs_are_added(site: Site, adopted: WorkerSql, wait_until: Wait) -> None:
    """A plain CREATE INDEX would wait for the session that adds, and other sessions would wait for it."""
    with migrating(site) as migrate, open_addition(site) as adding:
        under_way = migrate()
        wait_until(lambda: blocked_by(adopted, adding) or under_way.done(), timeout=60)
        assert incomplete(adopted)
        adopted.query("set lock_timeout = '5s'")
        adopted.query("insert into {schema}._private_jobs (task_id) values (1)")
        assert not under_way.done()
        adding.commit()
        under_way.result(60)
    assert incomplete(adopted) == []


@pytest.mark.usefixtures("large")
def test_result__is_the_same_as_for_a_small_table(
    make_site: Callable[[], Site], site: Site, adopted: WorkerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.migrate()
    other = make_site()
    monkeypatch.undo()
    other.migrate()
    ours = {line for line in site.dump().splitlines() if line.startswith("index")}
    assert ours == {line for line in other.dump().splitlines() if line.startswith("index")}
    assert len(ours) > 15


@pytest.mark.usefixtures("large")
def test_interrupted_build__is_done_again(site: Site, adopted: WorkerSql, wait_until: Wait) -> None:
    with migrating(site) as migrate, open_addition(site) as adding:
        under_way = migrate()
        wait_until(lambda: blocked_by(adopted, adding) or under_way.done(), timeout=60)
        adopted.query("select pg_terminate_backend(%s)", blocked_by(adopted, adding)[0])
        with pytest.raises(OperationalError):
            under_way.result(60)
    (leftover,) = incomplete(adopted)
    site.migrate()
    assert incomplete(adopted) == []
    assert leftover in {row["name"] for row in adopted.query("select indexrelid::regclass::text as name from pg_index")}


@pytest.mark.usefixtures("large")
def test_two_migrates_at_once__build_everything_once(site: Site, adopted: WorkerSql, wait_until: Wait) -> None:
    """The second migrate must not drop the invalid index that the first is building."""
    with migrating(site) as migrate, open_addition(site) as adding:
        first = migrate()
        wait_until(lambda: blocked_by(adopted, adding) or first.done(), timeout=60)
        (under_way,) = incomplete(adopted)
        oid = adopted.value("select %s::regclass::oid", under_way)
        second = migrate()
        asks = "select count(*) from pg_stat_activity where query ~ 'gw:is_building' and pid <> pg_backend_pid()"
        wait_until(lambda: adopted.value(asks) or second.done(), timeout=60)
        adding.commit()
        first.result(60)
        second.result(60)
    assert incomplete(adopted) == []
    assert adopted.value("select %s::regclass::oid", under_way) == oid


@pytest.mark.usefixtures("large")
def test_build_that_meets_another_build__is_begun_again(site: Site, adopted: WorkerSql) -> None:
    """Two migrates that begin a build at the same moment wait for each other, and PostgreSQL cancels one of them."""
    cancelled: list[str] = []

    def cancel_once(execute: Any, sql: str, *arguments: Any) -> Any:
        if "index concurrently" in sql and not cancelled:
            cancelled.append(sql)
            raise OperationalError from psycopg.errors.DeadlockDetected()
        return execute(sql, *arguments)

    with connections[site.alias].execute_wrapper(cancel_once):
        site.migrate()
    assert cancelled
    assert incomplete(adopted) == []


def test_index_that_was_lost__is_built_by_repair(site: Site, worker: WorkerSql) -> None:
    """The warning of the worker and the system check recommend the command."""
    site.migrate()
    worker.query("drop index {schema}.jobs_queued_index")
    # An index of graphile-worker itself.
    worker.query("drop index {schema}.jobs_main_index")
    worker.query("update pg_index set indisvalid = false where indexrelid = '{schema}.jobs_locked_index'::regclass")
    kept = worker.value("select '{schema}.jobs_plain_index'::regclass::oid")
    assert lacking(site) == (("jobs_queued_index", "jobs_main_index"), ("jobs_locked_index",))
    site.migrate()
    assert any(lacking(site)), "it believes to have been here"
    assert repair(site.alias, site.schema).built == ("jobs_queued_index", "jobs_main_index", "jobs_locked_index")
    assert not any(lacking(site))
    assert worker.value("select '{schema}.jobs_plain_index'::regclass::oid") == kept
    worker.query("drop index {schema}.jobs_main_index")
    worker.query("insert into {schema}.migrations (id, breaking) values (99, false)")
    assert not any(lacking(site)), "a newer graphile-worker may have dropped its own"


def test_index_that_was_created_manually__is_kept(site: Site, adopted: WorkerSql) -> None:
    by_hand = indexes.wanted_indexes(schema=site.schema)[0]
    adopted.query(by_hand.concurrent_statement)
    oid = adopted.value("select %s::regclass::oid", f'"{site.schema}".{by_hand.name}')
    site.migrate()
    assert adopted.value("select %s::regclass::oid", f'"{site.schema}".{by_hand.name}') == oid


@pytest.mark.usefixtures("large")
def test_indexes__are_built_inside_a_transaction_too(site: Site, adopted: WorkerSql) -> None:
    """A test of a site may migrate inside a transaction."""
    site.migrate("0003")
    with transaction.atomic(using=site.alias):
        site.migrate()
    assert incomplete(adopted) == []
    expected = {index.name for index in indexes.wanted_indexes(schema=site.schema)}
    found = {row["relname"] for row in adopted.query("select relname from pg_class where relkind = 'i'")}
    assert expected <= found


def test_every_index_of_the_file__is_recognised(site: Site) -> None:
    """An index in another notation would not be built."""
    text = ddl("indexes.sql", site.schema).lower()
    assert text.count("create ") == len(indexes.wanted_indexes(schema=site.schema))
