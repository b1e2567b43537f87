from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from testproject import databases
from tests.migration.catalog import dump
from tests.support.worker_sql import WorkerSql


@dataclass(frozen=True)
class Site:
    """A database in settings.DATABASES, empty at first."""

    alias: str
    url: str
    schema: str

    def migrate(self, *arguments: str, **options: Any) -> str:
        """Run `manage.py migrate graphile_worker`, and return what it printed."""
        output = StringIO()
        options = {"database": self.alias, "stdout": output, "interactive": False, **options}
        call_command("migrate", "graphile_worker", *arguments, **options)
        return output.getvalue()

    def sqlmigrate(self, name: str, **options: Any) -> str:
        output = StringIO()
        call_command("sqlmigrate", "graphile_worker", name, database=self.alias, stdout=output, **options)
        return output.getvalue()

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, **({"autocommit": True} | options))

    def dump(self) -> str:
        with self.connect() as connection:
            return dump(connection, self.schema)

    def named(self, schema: str) -> Site:
        return replace(self, schema=schema)


@pytest.fixture
def make_site(
    fresh_database: Callable[[], str], django_db_blocker: DjangoDbBlocker, worker_schema: str
) -> Iterator[Callable[[], Site]]:
    """A factory of empty databases that Django can migrate."""
    aliases: list[str] = []

    def make() -> Site:
        url = fresh_database()
        alias = f"fresh_{len(aliases)}"
        entry = connections.configure_settings({"default": databases.from_url(url)})["default"]
        connections.settings[alias] = entry
        aliases.append(alias)
        return Site(alias, url, worker_schema)

    with django_db_blocker.unblock():
        yield make
        for alias in aliases:
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]


@pytest.fixture
def site(make_site: Callable[[], Site]) -> Site:
    return make_site()


@pytest.fixture
def worker(site: Site) -> Iterator[WorkerSql]:
    """The SQL functions in the database of the site."""
    with site.connect() as connection:
        yield WorkerSql(connection, site.schema)
