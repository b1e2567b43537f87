"""The history that jobs record: a row for each event, in a table outside the queue.

It is written on connections of its own, in autocommit, directly to the server and never through a proxy, with the
clock of the server. So it is correct whatever happens to the connections of the worker.
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

# A server may die after the commit and before its answer. The event is then written again, with the same token.
INSERT = """insert into fault_history.event (kind, job_id, attempt, worker_id, pid, note, token)
values (%s, %s, %s, %s, %s, %s, %s) on conflict (token) do nothing"""

_here = threading.local()


def record(kind: str, job: Any = None, note: str | None = None) -> None:
    """Store an event. Wait for a server that is unreachable, because the history has to be complete."""
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
def recording(job: Any) -> Iterator[None]:
    """Record the start of a run and its end: ``end``, or ``failed`` if the block raises an exception."""
    record("start", job, job.queue_name)
    try:
        yield
    except BaseException:
        record("failed", job)
        raise
    record("end", job)


def is_recorded(kind: str, note: str | None = None) -> bool:
    """Return whether a process has recorded this event."""
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
