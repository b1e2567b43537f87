"""A new, durable database for measurements, which is dropped afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks import durable_server

SCHEMA = "graphile_worker"
# The tables that are emptied before each measurement.
EMPTIED = (
    "jobs",
    "job_queues",
    "pauses",
    "limited_jobs",
    "limit_lanes",
    "limit_keys",
    "limit_places",
    "limit_starts",
)


class Database:
    """One scratch database with the worker schema in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def execute(self, text: str, parameters: Any = None) -> Any:
        return self.connection.execute(text.encode(), parameters)

    def scalar(self, text: str, parameters: Any = None) -> Any:
        return self.execute(text, parameters).fetchone()[0]

    def task_id(self, identifier: str) -> int:
        self.execute(
            f"insert into {SCHEMA}._private_tasks (identifier) values (%s) on conflict do nothing", [identifier]
        )
        return int(self.scalar(f"select id from {SCHEMA}._private_tasks where identifier = %s", [identifier]))

    def empty(self) -> None:
        """Delete all jobs, and what keeps them waiting; a database of graphile-worker has only some of the tables."""
        tables = ", ".join(f"'{SCHEMA}._private_{table}'" for table in EMPTIED)
        present = self.scalar(
            f"select string_agg(name, ', ') from unnest(array[{tables}]) as name where to_regclass(name) is not null"
        )
        self.execute(f"truncate {present}")

    def settle(self) -> None:
        """Update the statistics of the planner and write all changes, so that neither happens during a measurement."""
        self.execute(f"vacuum analyze {SCHEMA}._private_jobs")
        self.execute(f"vacuum analyze {SCHEMA}._private_job_queues")
        self.execute("checkpoint")


def server_url() -> str:
    """Return the address of the server that is measured: of DATABASE_URL, or of a new server for this run.

    Child processes use the same server.
    """
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = durable_server.start()
    return os.environ["DATABASE_URL"]


@contextmanager
def scratch_database(install: Callable[[str], None] | None = None, suffix: str = "") -> Iterator[Database]:
    """Create a database with the schema of this package, or with what ``install`` creates."""
    with empty_database(suffix) as database:
        (install or migrate)(database.url)
        yield database


@contextmanager
def empty_database(suffix: str = "") -> Iterator[Database]:
    """Create a database without tables, and drop it after the block."""
    server = server_url()
    name = f"benchmark_{os.getpid()}{suffix}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        try:
            database = Database(make_conninfo(server, dbname=name))
            yield database
            database.connection.close()
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def configured(connection: psycopg.Connection[Any], settings: dict[str, str]) -> Iterator[None]:
    """Change settings of the server during the block, unless this run did not start it."""
    if not durable_server.is_owned():
        yield
        return
    for name, value in settings.items():
        connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    connection.execute("select pg_reload_conf()")
    try:
        yield
    finally:
        for name in settings:
            connection.execute(sql.SQL("alter system reset {}").format(sql.Identifier(name)))
        connection.execute("select pg_reload_conf()")


def migrate(url: str) -> None:
    environment = os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    subprocess.run([sys.executable, "-m", "django", "migrate", "-v0", "graphile_worker"], env=environment, check=True)
