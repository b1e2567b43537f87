"""Schemas that graphile_worker for Rust has made, or has migrated further."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks
from django.db import connections
from django.test import override_settings

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.repair import repair
from tests.migration.conftest import Site
from tests.migration.foreign import make_foreign_schema
from tests.migration.rust import DROP_RECOVERY, add_recovery, add_retirements
from tests.support.worker_sql import WorkerSql


@pytest.fixture
def foreign(worker: WorkerSql) -> WorkerSql:
    """A schema of graphile-worker with a job."""
    make_foreign_schema(worker)
    worker.query("insert into {schema}._private_jobs (task_id, payload) values (1, '[1]')")
    return worker


def test_schema_of_rust__is_refused_and_not_changed(site: Site, foreign: WorkerSql) -> None:
    """At migration 20, 22, and 22 if it breaks something."""
    for change in (
        lambda: add_recovery(foreign),
        lambda: add_retirements(foreign),
        lambda: foreign.query("update {schema}.migrations set breaking = true where id > 20"),
    ):
        change()
        before = site.dump()

        with pytest.raises(
            SchemaError, match=r"belongs to graphile_worker for Rust.*Nothing was changed\. .* stop the Rust workers"
        ):
            site.migrate()

        assert site.dump() == before
    connection = connections[site.alias]
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from django_migrations where app = 'graphile_worker'")
        assert cursor.fetchone() == (0,)


@pytest.mark.filterwarnings("ignore:.*is at migration 22 of graphile-worker")
def test_schema_of_rust__is_adopted_as_the_guide_says(site: Site, foreign: WorkerSql) -> None:
    add_recovery(foreign)
    add_retirements(foreign)
    jobs = foreign.jobs()

    foreign.query(DROP_RECOVERY)
    before = site.dump()
    site.migrate()

    assert foreign.jobs() == jobs
    assert foreign.add_job(payload=[2])["payload"] == [2]
    site.migrate("zero")
    assert site.dump() == before


def test_recovery_of_rust__is_reported(site: Site, worker: WorkerSql) -> None:
    site.migrate()
    worker.query("create function {schema}.worker_heartbeat(text, json) returns void language sql as $$ select $$")
    worker.query(
        "create function {schema}.list_orphan_locked_workers(interval) returns void language sql as $$ select $$"
    )
    settings = {"default": {"SCHEMA": site.schema, "DATABASE": site.alias}}
    with override_settings(GRAPHILE_WORKER=settings):
        (warning,) = [m for m in run_checks(databases=[site.alias]) if m.id == "graphile_worker.W009"]
    assert "takes every job that has run for five minutes" in warning.msg


def test_schema_that_rust_has_migrated_further__is_repaired_and_migrated_to_zero(site: Site, worker: WorkerSql) -> None:
    site.migrate()
    add_retirements(worker)

    assert repair(site.alias, site.schema).restored == ("remove_job",)
    site.migrate("zero")

    rows = worker.query("select relname from pg_class where relnamespace = %s::regnamespace", f'"{site.schema}"')
    assert rows == []
    site.migrate()
    assert worker.add_job()["id"] == 1
