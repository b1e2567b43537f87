from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_graphile_worker.sql.install import catalog
from tests.migration.conftest import Site


class QueueRouter:
    """A router that allows the tables of the worker in one database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == "fresh_1" if app_label == "graphile_worker" else None


def is_installed(site: Site) -> bool:
    with site.connect() as connection, connection.cursor() as cursor:
        return catalog.schema_exists(cursor, schema=site.schema)


def test_router__decides_where_the_schema_is(make_site: Callable[[], Site]) -> None:
    elsewhere, queue = make_site(), make_site()

    with override_settings(DATABASE_ROUTERS=["tests.migration.test_routing.QueueRouter"]):
        for site in (elsewhere, queue):
            site.migrate()

        assert (is_installed(elsewhere), is_installed(queue)) == (False, True)
        assert "create table" not in elsewhere.sqlmigrate("0001")
        for site in (elsewhere, queue):
            site.migrate("zero")
    assert not is_installed(queue)


@pytest.fixture
def sqlite(tmp_path: Path, make_site: Callable[[], Site]) -> Iterator[str]:
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "side.sqlite3")}
    connections.settings["side"] = connections.configure_settings({"default": entry})["default"]
    yield "side"
    connections["side"].close()
    del connections["side"]
    del connections.settings["side"]


def test_database_that_is_not_postgresql__is_not_changed(sqlite: str) -> None:
    for target in ((), ("zero",)):
        call_command("migrate", "graphile_worker", *target, database=sqlite, stdout=StringIO())

    output = StringIO()
    call_command("sqlmigrate", "graphile_worker", "0001", database=sqlite, stdout=output)
    assert "create" not in output.getvalue()


def test_skipping_all_migrations__installs_the_schema_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `pytest --nomigrations` Django creates the tables of models, but these models are unmanaged."""
    site.migrate()
    expected = site.dump()
    site.migrate("zero")

    with override_settings(MIGRATION_MODULES={"graphile_worker": None}), warnings.catch_warnings():
        for _ in range(2):
            call_command("migrate", database=site.alias, run_syncdb=True, stdout=StringIO(), interactive=False)

        assert site.dump() == expected
