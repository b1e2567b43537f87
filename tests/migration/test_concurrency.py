from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql.install import installer
from tests.migration.conftest import Site
from tests.support.worker_sql import WorkerSql

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def short_lock_timeout() -> Iterator[None]:
    with override_settings(GRAPHILE_WORKER={**django_settings.GRAPHILE_WORKER, "MIGRATION_LOCK_TIMEOUT": 0.05}):
        yield


@pytest.fixture
def holder(site: Site) -> Iterator[psycopg.Connection[Any]]:
    """A session inside a transaction."""
    with site.connect(autocommit=False, application_name="the holder") as connection:
        yield connection


@pytest.mark.chaos
def test_two_migrates_at_once__both_succeed(site: Site, worker: WorkerSql) -> None:
    environment = os.environ | {"DATABASE_URL": site.url, "GRAPHILE_WORKER_SCHEMA": site.schema}
    # Two processes cannot create the table of Django's migrations at once.
    MigrationRecorder(connections[site.alias]).ensure_schema()
    command = [sys.executable, "testproject/manage.py", "migrate", "graphile_worker"]

    def migrate(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor() as threads:
        done = list(threads.map(migrate, range(3)))

    assert [process.returncode for process in done] == [0, 0, 0], done
    worker.add_job()
    parts = worker.query("select part, is_adopted from {schema}._private_installation")
    assert {part["is_adopted"] for part in parts} == {False}


def test_migrate_that_starts_while_another_ends__finds_the_schema(
    site: Site, worker: WorkerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second migrate reads the tables before they are committed, and the migrations after they are recorded."""
    read = MigrationRecorder.applied_migrations
    others = [site.migrate]

    def read_after_another(recorder: MigrationRecorder) -> Any:
        if others:
            others.pop()(skip_checks=True)
        return read(recorder)

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", read_after_another)
    with override_settings(GRAPHILE_WORKER={**django_settings.GRAPHILE_WORKER, "DATABASE": site.alias}):
        site.migrate(skip_checks=False)

    assert not others
    worker.add_job()


def test_second_migrate__waits_for_the_first(site: Site, worker: WorkerSql, wait_until: Callable[..., None]) -> None:
    with site.connect(autocommit=False) as first, ThreadPoolExecutor() as threads, first.cursor() as cursor:
        installer.lock_installation(cursor, schema=site.schema, lock_timeout=1)

        def migrate() -> None:
            try:
                site.migrate()
            finally:
                connections[site.alias].close()

        second = threads.submit(migrate)
        blocked = "select exists (select from pg_stat_activity where %s = any(pg_blocking_pids(pid)))"
        wait_until(lambda: worker.value(blocked, first.info.backend_pid))
        assert not second.done()
        first.rollback()
        second.result()

    worker.add_job()


@pytest.mark.usefixtures("short_lock_timeout")
class TestLockOfAnotherSession:
    def test_migrate__gives_up_and_names_the_session(
        self, site: Site, holder: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(installer, "SECONDS_FOR_ANOTHER_MIGRATION", 0.05)
        with holder.cursor() as cursor:
            installer.lock_installation(cursor, schema=site.schema, lock_timeout=1)

        with pytest.raises(SchemaError) as caught:
            site.migrate()

        message = str(caught.value)
        assert message.startswith(
            f"Could not get a lock in the worker schema {site.schema!r} within 0.05 seconds, and nothing was changed."
        )
        assert (
            f"pid {holder.info.backend_pid} (user 'postgres', application 'the holder', idle in transaction" in message
        )
        assert 'GRAPHILE_WORKER["MIGRATION_LOCK_TIMEOUT"]' in message

    def test_migrate_to_zero__gives_up_and_changes_nothing(self, site: Site, holder: psycopg.Connection[Any]) -> None:
        site.migrate()
        site.migrate("0001")
        before = site.dump()
        WorkerSql(holder, site.schema).query("select 1 from {schema}._private_jobs")

        with pytest.raises(SchemaError, match=rf"pid {holder.info.backend_pid} .*select"):
            site.migrate("zero")
        assert site.dump() == before

        holder.rollback()
        site.migrate("zero")

    def test_adoption__gives_up_and_changes_nothing(
        self, site: Site, worker: WorkerSql, holder: psycopg.Connection[Any]
    ) -> None:
        site.migrate()
        site.migrate("0001")
        worker.query("drop table {schema}._private_installation")
        site.migrate("zero", fake=True)
        before = site.dump()
        WorkerSql(holder, site.schema).query("insert into {schema}.migrations (id) values (21)")

        with pytest.raises(SchemaError, match=f"pid {holder.info.backend_pid} "):
            site.migrate()

        assert site.dump() == before
        holder.rollback()
        site.migrate()
