"""Tasks with limits, which an observer outside of the queue checks. Only workers that ask for them have them."""

from __future__ import annotations

import os
import threading
from typing import Any

import psycopg

from django_graphile_worker import Limit, task
from django_graphile_worker.worker.execution.helpers import Helpers
from tests.worker_app import history

CONCURRENCY = 3
# Advisory locks of this class are the places of a key, as the observer counts them.
OBSERVER = 4711
_here = threading.local()
_never = threading.Event()


def _observer() -> psycopg.Connection[Any]:
    """Return a session of this thread. When the process dies, the server ends the session, and frees its locks."""
    if not hasattr(_here, "connection"):
        _here.connection = psycopg.connect(os.environ["FAULT_HISTORY_URL"], autocommit=True)
    connection: psycopg.Connection[Any] = _here.connection
    return connection


@task(limit=Limit("account:{account}", concurrency=CONCURRENCY))
def limited(payload: dict[str, Any], helpers: Helpers) -> None:
    """Take one of the places of the key; record a violation if all of them are taken."""
    observer = _observer()
    places = [payload["account"] * CONCURRENCY + place for place in range(CONCURRENCY)]
    try_lock = "select pg_try_advisory_lock(%s, %s)"
    taken = next((place for place in places if _is_true(observer.execute(try_lock, [OBSERVER, place]))), None)
    if taken is None:
        history.record("violation", helpers.job)
        return
    # A line in the history of each job would need a second session for each slot.
    observer.execute("insert into fault_history.effect (job_id) values (%s)", [helpers.job.id])
    _never.wait(payload.get("seconds", 0.03))
    observer.execute("select pg_advisory_unlock(%s, %s)", [OBSERVER, taken])


@task(limit=Limit("rate:{account}", rate="8/s", burst=3))
def rated(payload: dict[str, Any], helpers: Helpers) -> None:
    """Record the start; the server notes when the job was claimed."""
    history.record("rated", helpers.job)


def _is_true(cursor: psycopg.Cursor[Any]) -> bool:
    row = cursor.fetchone()
    return row is not None and bool(row[0])
