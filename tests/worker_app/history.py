"""What happened, as the jobs themselves tell it: one row per event, in a table outside the queue.

Written on connections of its own, in autocommit, straight to the server (never through a proxy), with the
server's clock. So it says the truth whatever happens to the worker's own connections.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg

TABLE = """
create schema if not exists fault_history;
create table if not exists fault_history.event (
    id bigint generated always as identity primary key,
    kind text not null,
    job_id bigint,
    attempt int,
    pid int not null,
    note text,
    worker_id text,
    at timestamptz not null default clock_timestamp(),
    token uuid unique
)"""

# A server may die after the commit and before its answer: what is written again is the same event.
INSERT = """insert into fault_history.event (kind, job_id, attempt, worker_id, pid, note, token)
values (%s, %s, %s, %s, %s, %s, %s) on conflict (token) do nothing"""

_here = threading.local()


def tell(kind: str, job: Any = None, note: str | None = None) -> None:
    """Write an event down; a server that is away is waited for, as the history has to be complete."""
    about_the_job = (getattr(job, name, None) for name in ("id", "attempts", "locked_by"))
    values = (kind, *about_the_job, os.getpid(), note, uuid4())
    while True:
        try:
            _connection().execute(INSERT, values)
            return
        except psycopg.OperationalError:
            _here.connection = None
            threading.Event().wait(0.05)


@contextmanager
def told(job: Any) -> Iterator[None]:
    """Tell when a run of a job starts and how it ends: ``end``, or ``failed`` when the block raises anything."""
    tell("start", job, job.queue_name)
    try:
        yield
    except BaseException:
        tell("failed", job)
        raise
    tell("end", job)


def is_there(kind: str, note: str | None = None) -> bool:
    """Has this been told, by anybody?"""
    try:
        found = _connection().execute(
            "select from fault_history.event where kind = %s and note is not distinct from %s limit 1", (kind, note)
        )
    except psycopg.OperationalError:
        _here.connection = None
        return False
    return bool(found.rowcount)


def _connection() -> psycopg.Connection[Any]:
    connection = getattr(_here, "connection", None)
    if connection is None or connection.closed:
        connection = psycopg.connect(os.environ["FAULT_HISTORY_URL"], autocommit=True, prepare_threshold=0)
        _here.connection = connection
    return connection
