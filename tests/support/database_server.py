"""The PostgreSQL server that a test run uses: creates and drops databases."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from testproject import databases


@dataclass(frozen=True)
class DatabaseServer:
    connection: psycopg.Connection[tuple[Any, ...]]
    entry: Mapping[str, Any]
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    @contextmanager
    def open(cls, entry: Mapping[str, Any]) -> Iterator[DatabaseServer]:
        """Connect to the maintenance database of the server: the current database cannot be dropped."""
        maintenance = databases.to_url({**entry, "NAME": "postgres"})
        with psycopg.connect(maintenance, autocommit=True) as connection:
            yield cls(connection, entry)

    def url(self, name: str) -> str:
        return databases.to_url({**self.entry, "NAME": name})

    def create_database(self) -> str:
        """Create an empty database, and return its name."""
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        name = f"test_{os.environ['TEST_RUN_PID']}_fresh_{worker}_{next(self._numbers)}"
        self._execute("create database {} template template0", name)
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, even if sessions are connected to it."""
        self._execute("drop database if exists {} with (force)", name)

    def drop_databases_of_dead_runs(self) -> None:
        """Drop the databases that killed test runs left behind in the embedded cluster."""
        found = self.connection.execute("select datname from pg_database where datname ~ '^test_[0-9]+(_|$)'")
        for (name,) in found.fetchall():
            if not is_alive(int(name.split("_")[1])):
                self.drop_database(name)

    def _execute(self, statement: Any, name: str) -> None:
        self.connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
