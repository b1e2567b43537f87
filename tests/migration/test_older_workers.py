"""A migration with which workers of an earlier release cannot work says so before it runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core import checks
from django.core.management import CommandError
from django.db import connections
from django.test import override_settings

from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.operations.schema_operations import SchemaOperation
from django_graphile_worker.sql.install import catalog, installer
from django_graphile_worker.sql.workers import register_worker
from tests.migration.conftest import Site
from tests.support.worker_sql import WorkerSql

NEXT = importlib.import_module("tests.support.next_release.next_release")
REFUSAL = (
    r"releases before 2\.0 cannot work .* after the migration next_release, and these are alive: "
    r"web-1 pid 11 \(1\.9\.3\)\. Stop them, and migrate again\. .*\"STOP_OLDER_WORKERS\"\] = True\. "
    r"Nothing was changed\.$"
)


@contextmanager
def next_release(**settings: object) -> Iterator[None]:
    modules = {"graphile_worker": "tests.support.next_release"}
    changed = {**django_settings.GRAPHILE_WORKER, **settings}
    with override_settings(MIGRATION_MODULES=modules, GRAPHILE_WORKER=changed):
        yield


@pytest.fixture
def _breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NEXT.AddNext, "breaks_before", "2.0")
    # The release that this migration comes with.
    monkeypatch.setattr("django_graphile_worker.operations.receivers.__version__", "2.0")


@pytest.fixture
def _fleet(site: Site) -> None:
    """Workers of several versions, one of which died."""
    site.migrate()
    with site.connect() as connection, connection.cursor() as cursor:
        for number, version in enumerate(["2.0rc1", "1.9.3", "1.8", None, "x" * 9, ""]):
            about = {"host": f"web-{number}", "pid": 10 + number, "version": version}
            register_worker(cursor, f"django-worker-{number}", about, schema=site.schema, timeout=60, heartbeat=10)
        WorkerSql(connection, site.schema).query(
            "update {schema}._private_workers set last_heartbeat_at = now() - interval '2 min'"
            " where metadata ->> 'version' = '1.8'"
        )


@pytest.mark.usefixtures("_breaking", "_fleet")
class TestABreakingMigration:
    def test_migrate__refuses_while_older_workers_are_alive(self, site: Site, worker: WorkerSql) -> None:
        with next_release(), pytest.raises(CommandError, match=REFUSAL):
            site.migrate()
        assert worker.value("select to_regclass('{schema}._private_next')") is None

    def test_plan_and_check__say_it(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        def found() -> list[str]:
            messages = checks.run_checks(tags=["graphile_worker"], databases=[site.alias])
            return [message.msg for message in messages if message.id == "graphile_worker.W016"]

        with place_of(site), next_release():
            (message,) = found()
            assert "web-1 pid 11 (1.9.3)" in message
            monkeypatch.setattr("sys.argv", ["manage.py", "migrate", "--plan"])
            assert found() == [message]
            # Then the error of the migration says it.
            monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])
            assert found() == []

    def test_migrate__runs_when_they_have_stopped_and_records_the_break(self, site: Site, worker: WorkerSql) -> None:
        worker.query("delete from {schema}._private_workers where id = 'django-worker-1'")
        with next_release():
            site.migrate()
            assert breaks(site) == {"next": "2.0"}
            site.migrate("0005")
        assert breaks(site) == {}

    def test_setting__lets_it_run_and_tells_older_workers(self, site: Site, worker: WorkerSql) -> None:
        with site.connect() as listener:
            listener.execute('listen "worker:migrate"')
            with next_release(STOP_OLDER_WORKERS=True):
                site.migrate()
            (notice,) = listener.notifies(timeout=10, stop_after=1)
        # A worker of Node.js would stop at "breaking": true.
        assert notice.payload == '{"breaking": false}'

    def test_the_release_before__refuses_the_schema(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        with next_release(STOP_OLDER_WORKERS=True):
            site.migrate()
        with site.connect() as connection, connection.cursor() as cursor:
            monkeypatch.setattr("django_graphile_worker.sql.install.catalog.__version__", "2.0.1")
            catalog.refuse_breaking_migration(cursor, schema=site.schema)
            monkeypatch.setattr("django_graphile_worker.sql.install.catalog.__version__", "1.9.3")
            with pytest.raises(BreakingMigrationError, match=r"before 2\.0 cannot .* this is 1\.9\.3\. Upgrade"):
                catalog.refuse_breaking_migration(cursor, schema=site.schema)

    def test_sqlmigrate__records_the_break(self, site: Site, worker: WorkerSql) -> None:
        with next_release():
            worker.connection.execute(site.sqlmigrate("next_release").encode())
        assert breaks(site) == {"next": "2.0"}

    def test_later_release__names_the_release_to_deploy_first(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("django_graphile_worker.operations.receivers.__version__", "2.1")
        with next_release(), pytest.raises(CommandError, match=r"Stop them, or deploy 2\.0 first, and migrate again\."):
            site.migrate()


@contextmanager
def place_of(site: Site) -> Iterator[None]:
    with override_settings(GRAPHILE_WORKER={**django_settings.GRAPHILE_WORKER, "DATABASE": site.alias}):
        yield


def breaks(site: Site) -> dict[str, str]:
    with connections[site.alias].cursor() as cursor:
        installed = catalog.installed_parts(cursor, schema=site.schema)
    return {part: version for part, version in installed.items() if version is not None}


@pytest.mark.usefixtures("_fleet")
def test_migration_that_breaks_nothing__runs_beside_workers_of_any_version(site: Site, worker: WorkerSql) -> None:
    with next_release():
        site.migrate()
    assert worker.value("select to_regclass('{schema}._private_next')") is not None


def test_parts_that_workers_need__are_those_of_the_migrations() -> None:
    paths = sorted(Path(catalog.__file__).parents[2].joinpath("migrations").glob("0*.py"))
    operations = [
        operation
        for path in paths
        for operation in importlib.import_module(f"django_graphile_worker.migrations.{path.stem}").Migration.operations
        if isinstance(operation, SchemaOperation)
    ]
    assert tuple(each.part for each in operations if each.part is not None) == installer.PARTS
    # The schema records a break with the part of the operation.
    assert [each for each in operations if each.breaks_before is not None and each.part is None] == []
