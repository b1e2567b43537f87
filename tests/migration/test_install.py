from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_graphile_worker import migrations
from django_graphile_worker.exceptions import SchemaError
from tests.migration.catalog import catalog
from tests.migration.conftest import Site
from tests.support.worker_sql import WorkerSql

SNAPSHOT = Path(__file__).with_name("worker_schema.txt")
CHECKOUT = Path(__file__).parents[2]
CUSTOM = "Second_Schema"
MIGRATIONS = sorted(module.name for module in pkgutil.iter_modules(migrations.__path__))


def settings(**changes: object) -> override_settings:
    return override_settings(GRAPHILE_WORKER={**django_settings.GRAPHILE_WORKER, **changes})


def test_new_schema__has_the_objects_of_graphile_worker(site: Site) -> None:
    """The snapshot is of a schema that graphile-worker 0.18.0 has made."""
    site.migrate()

    with site.connect() as connection:
        assert catalog(connection, site.schema) == SNAPSHOT.read_text(encoding="utf-8")


def test_schema_of_another_name__has_the_same_objects(site: Site) -> None:
    with settings(SCHEMA=CUSTOM), site.connect() as connection:
        site.migrate()

        assert catalog(connection, CUSTOM) == SNAPSHOT.read_text(encoding="utf-8")
        worker = WorkerSql(connection, CUSTOM)
        assert worker.add_job("task", queue_name="queue", job_key="key")["id"] == 1
        assert connection.execute("select count(*) from pg_namespace where nspname = 'graphile_worker'").fetchone() == (
            0,
        )


@pytest.mark.django_db
def test_models_and_migrations__agree() -> None:
    call_command("makemigrations", "graphile_worker", check_changes=True, dry_run=True)


def test_models_and_migrations__agree_with_any_schema_name(site: Site) -> None:
    # Tables get their names when models are imported, so another schema needs a process.
    environment = os.environ | {"GRAPHILE_WORKER_SCHEMA": CUSTOM, "DATABASE_URL": site.url}
    command = [sys.executable, "testproject/manage.py", "makemigrations", "--check", "--dry-run", "graphile_worker"]
    made = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert made.returncode == 0, made.stdout + made.stderr


def test_empty_schema_that_exists__is_used_and_not_dropped(site: Site, worker: WorkerSql) -> None:
    worker.query("create schema {schema}")

    site.migrate()
    site.migrate("zero")

    assert worker.value("select count(*) from pg_namespace where nspname = %s", site.schema) == 1
    assert worker.value("select count(*) from pg_class where relnamespace = %s::regnamespace", f'"{site.schema}"') == 0


def test_schema_with_tables_of_another_program__is_refused(site: Site, worker: WorkerSql) -> None:
    worker.query("create schema {schema}")
    worker.query("create table {schema}.jobs (id integer)")

    with pytest.raises(SchemaError, match="has jobs, but not graphile-worker's table"):
        site.migrate()
    assert worker.value("select count(*) from pg_class where relnamespace = %s::regnamespace", f'"{site.schema}"') == 1


def test_server_that_is_too_old__is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections[site.alias], "pg_version", 140_012)

    with pytest.raises(SchemaError, match=r"is PostgreSQL 14\. Jobs need PostgreSQL 15 or newer\."):
        site.migrate()

    assert site.schema not in _schemas(site)


def test_second_migrate__changes_nothing(site: Site) -> None:
    site.migrate()
    before = site.dump()

    site.migrate()
    site.migrate("zero", fake=True)
    site.migrate()

    assert site.dump() == before


def test_migrate_to_zero__leaves_nothing(site: Site, worker: WorkerSql) -> None:
    site.migrate()
    job = worker.add_job("task", max_attempts=1)
    worker.call("permanently_fail_jobs", job_ids=[job["id"]])

    site.migrate("zero")

    assert worker.value("select count(*) from pg_namespace where nspname = %s", site.schema) == 0
    site.migrate()
    assert worker.jobs() == []


def test_migrate_to_zero__refuses_to_lose_jobs(site: Site, worker: WorkerSql) -> None:
    site.migrate()
    worker.add_job()
    worker.lock(worker.add_job()["id"])
    before = site.dump()

    with pytest.raises(SchemaError, match=r"has waiting jobs \(2\), .*\"DROP_WAITING_JOBS\"\] = True"):
        site.migrate("zero")

    # The later migrations were not undone either.
    assert site.dump() == before
    with settings(DROP_WAITING_JOBS=True):
        site.migrate("zero")
    assert worker.value("select count(*) from pg_namespace where nspname = %s", site.schema) == 0


def test_migrate_to_zero__keeps_objects_of_the_site(site: Site, worker: WorkerSql) -> None:
    site.migrate()
    worker.query("create table {schema}.mine (id integer)")

    site.migrate("zero")

    rows = worker.query("select relname from pg_class where relnamespace = %s::regnamespace", f'"{site.schema}"')
    assert [row["relname"] for row in rows] == ["mine"]


def test_sqlmigrate__prints_sql_that_can_be_run(site: Site, worker: WorkerSql) -> None:
    with settings(SCHEMA=CUSTOM):
        forwards = [site.sqlmigrate(name) for name in MIGRATIONS]
        backwards = [site.sqlmigrate(name, backwards=True) for name in reversed(MIGRATIONS)]
    assert all(":SCHEMA" not in text for text in (*forwards, *backwards))
    # A migration that only renames a model runs no SQL.
    assert all(f'"{CUSTOM}".' in text for text in (*forwards, *backwards) if "(no-op)" not in text)

    for text in forwards:
        worker.connection.execute(text.encode())
    assert catalog(worker.connection, CUSTOM) == SNAPSHOT.read_text(encoding="utf-8")

    for text in backwards:
        worker.connection.execute(text.encode())
    assert worker.value("select count(*) from pg_namespace where nspname = %s", CUSTOM) == 0


def test_schema_that_sqlmigrate_printed__counts_as_installed(site: Site, worker: WorkerSql) -> None:
    for name in MIGRATIONS:
        worker.connection.execute(site.sqlmigrate(name).encode())
    before = site.dump()

    site.migrate()

    assert site.dump() == before
    assert not connections[site.alias].in_atomic_block


def _schemas(site: Site) -> set[str]:
    with site.connect() as connection:
        found = connection.execute("select nspname from pg_namespace where nspname !~ '^pg_|^information_schema$'")
        return {name for (name,) in found} - {"public"}


def test_named_installations_of_a_database__are_installed_and_removed_together(site: Site, settings: Any) -> None:
    site = site.named("first_one")
    settings.GRAPHILE_WORKER = {
        "default": {"SCHEMA": site.schema, "DATABASE": site.alias},
        "reports": {"SCHEMA": "reports", "DATABASE": site.alias},
        "elsewhere": {"SCHEMA": "elsewhere"},
    }
    for schema in (site.schema, "reports"):
        assert f'create schema "{schema}"' in site.sqlmigrate("0001")
    site.migrate()
    expected = site.dump()
    assert site.named("reports").dump() == expected.replace(site.schema, "reports")
    assert _schemas(site) == {site.schema, "reports"}

    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"later": {"SCHEMA": "later", "DATABASE": site.alias}}
    assert f"Installed the worker schema later in the database {site.alias}." in site.migrate()
    assert site.named("later").dump() == expected.replace(site.schema, "later"), "named after the first migrate"
    assert "Installed" not in site.migrate()
    assert site.dump() == expected

    with site.connect() as connection:
        connection.execute("select later.add_job('a')")
        with pytest.raises(SchemaError, match=r"The schema 'later' has waiting jobs \(1\)"):
            site.migrate("zero")
        assert site.dump() == expected
        connection.execute("delete from later._private_jobs")
    site.migrate("zero")
    assert _schemas(site) == set()


def test_installation_that_is_named_later__gets_the_migrations_of_the_database(site: Site, settings: Any) -> None:
    site = site.named("first_one")
    settings.GRAPHILE_WORKER = {"default": {"SCHEMA": site.schema, "DATABASE": site.alias}}
    site.migrate("0002")
    expected = site.dump()
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"later": {"SCHEMA": "later", "DATABASE": site.alias}}
    site.migrate("0002")
    assert site.named("later").dump() == expected.replace(site.schema, "later")
