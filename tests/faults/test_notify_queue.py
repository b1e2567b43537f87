"""A full NOTIFY queue: a session that listens stays in a transaction, and the server can forget no notification."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.faults.cluster import Cluster
from tests.faults.conftest import environment_for, migrate
from tests.faults.processes import CHECKOUT, MANAGE
from tests.worker_sql import WorkerSql

USAGE = "select pg_notification_queue_usage()"


@pytest.fixture(scope="module")
def small_queue() -> Iterator[Cluster]:
    """A server whose queue is as small as PostgreSQL allows; before 17 it has 8 GB."""
    with Cluster.create(settings={"max_notify_queue_pages": "64"}) as cluster:
        migrate(cluster.url())
        yield cluster


def fill(session: psycopg.Connection[Any]) -> None:
    """Notify until the server refuses; the last kilobytes one by one."""
    for size in (7000, 700, 10):
        try:
            while True:
                session.execute("select pg_notify('others', repeat('x', %s) || random())", [size])
        except psycopg.errors.ProgramLimitExceeded:
            continue


def test_jobs__are_added_all_the_same_and_the_status_tells(small_queue: Cluster, worker_schema: str) -> None:
    url = small_queue.url()
    with psycopg.connect(url, autocommit=True) as listener, psycopg.connect(url, autocommit=True) as session:
        listener.execute("listen others")
        listener.execute("begin")
        listener.execute("select 1")
        fill(session)
        assert session.execute(USAGE).fetchall()[0][0] > 0.95

        worker = WorkerSql(session, worker_schema)
        worker.add_job("task", job_key="key")
        worker.add_jobs({}, {"job_key": "other"})
        worker.call("reschedule_jobs", job_ids=[job["id"] for job in worker.jobs()])
        worker.call("remove_job", job_key="key")
        assert len(worker.jobs()) == 2

        status = subprocess.run(
            [sys.executable, MANAGE, "graphile_worker", "status", "--check", "--min-workers", "0"],
            cwd=CHECKOUT,
            env=environment_for(url),
            capture_output=True,
            text=True,
            check=False,
        )
        assert status.returncode == 1
        assert "NOTIFY queue is 100% full" in status.stderr or "NOTIFY queue is 9" in status.stderr
