"""A new database for measurements, which is dropped afterwards, and jobs in its tables.

This package and graphile-worker share the tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.draining import Left
from benchmarks.servers import is_owned, server_url

SCHEMA = "graphile_worker"
JOBS = f"{SCHEMA}._private_jobs"
QUEUES = f"{SCHEMA}._private_job_queues"
TASKS = f"{SCHEMA}._private_tasks"


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
        self.execute(f"insert into {TASKS} (identifier) values (%s) on conflict do nothing", [identifier])
        return int(self.scalar(f"select id from {TASKS} where identifier = %s", [identifier]))

    def empty(self) -> None:
        """Delete all jobs and queues."""
        self.execute(f"truncate {JOBS}, {QUEUES}")

    def load(self, count: int, *, queue: str = "null", task: str = "noop") -> None:
        """Insert jobs by plain SQL; ``n`` is the number of the job in the expression for the queue."""
        self.insert(count, queue=queue, task=task)
        self.settle()

    def insert(self, count: int, *, queue: str = "null", task: str = "noop") -> None:
        self.execute(
            f"insert into {JOBS} (task_id, payload, job_queue_id)"
            f" select {self.task_id(task)}, json_build_object('number', n), {queue} from generate_series(1, {count}) n"
        )

    def make_queues(self, count: int, *, busy: bool = False) -> None:
        locks = "now(), 'other'" if busy else "null::timestamptz, null"
        self.execute(f"truncate {QUEUES} restart identity")
        self.execute(
            f"insert into {QUEUES} (queue_name, locked_at, locked_by)"
            f" select 'queue ' || n, {locks} from generate_series(1, {count}) as n"
        )

    def settle(self) -> None:
        """Update the statistics of the planner and write all changes, so that neither happens during a measurement."""
        self.execute(f"vacuum analyze {JOBS}")
        self.execute(f"vacuum analyze {QUEUES}")
        self.execute("checkpoint")

    def last_id(self) -> int:
        return int(self.scalar(f"select coalesce(pg_sequence_last_value(pg_get_serial_sequence('{JOBS}', 'id')), 0)"))

    def left(self, after: int = 0) -> Left:
        """Return how to ask for jobs with ids above ``after``.

        Workers take the lowest ids first, so the index finds a job that is left from its other end at once.
        """
        found = f"select coalesce((select true from {JOBS} where id > {after} order by id desc limit 1), false)"
        count = f"select count(*) from {JOBS} where id > {after}"
        return Left(any=lambda: bool(self.scalar(found)), count=lambda: int(self.scalar(count)))

    @contextmanager
    def gate(self, table: str = JOBS) -> Iterator[Callable[[], None]]:
        """Keep workers from the jobs until the yielded function is called: their first claims wait for a lock."""
        with psycopg.connect(self.url) as session:
            session.execute(f"lock table {table} in access exclusive mode".encode())
            yield session.rollback

    @contextmanager
    def configured(self, **settings: str) -> Iterator[None]:
        """Change settings of the server during the block, unless this run did not start it."""
        if not is_owned():
            yield
            return
        for name, value in settings.items():
            self.connection.execute(
                sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value))
            )
        self.execute("select pg_reload_conf()")
        try:
            yield
        finally:
            for name in settings:
                self.connection.execute(sql.SQL("alter system reset {}").format(sql.Identifier(name)))
            self.execute("select pg_reload_conf()")


@contextmanager
def scratch_database(install: Callable[[str], None] | None = None, suffix: str = "") -> Iterator[Database]:
    """Create a database with what ``install`` creates at a URL, and drop it after the block."""
    server = server_url()
    name = f"benchmark_{os.getpid()}{suffix}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        try:
            url = make_conninfo(server, dbname=name)
            if install is not None:
                install(url)
            database = Database(url)
            yield database
            database.connection.close()
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
