"""Days of the history that begin late: after a jump of the clock, or when no worker ran for days."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg

ADD = """insert into "{schema}"._private_history (ended_at, added_at, run_at, job_id, attempt, outcome, task_identifier)
    values (clock_timestamp(), now(), now(), 1, 1, 1, 'a task')"""


def test_an_attempt_that_ends_while_its_day_is_attached__is_recorded(
    versioned_database: str, worker_schema: str, wait_until: Callable[..., None]
) -> None:
    add = ADD.format(schema=worker_schema).encode()
    with (
        psycopg.connect(versioned_database) as maker,
        psycopg.connect(versioned_database, autocommit=True) as worker,
        psycopg.connect(versioned_database, autocommit=True) as watcher,
        ThreadPoolExecutor(1) as threads,
    ):
        worker.execute(add)
        made = maker.execute(f'select "{worker_schema}"._private_make_history_partitions(0)'.encode()).fetchone()
        assert made == (1,)
        added = threads.submit(worker.execute, add)
        wait_until(
            lambda: watcher.execute("select pg_blocking_pids(%s)", [worker.info.backend_pid]).fetchone() != ([],)
        )
        maker.commit()
        added.result()
        counted = watcher.execute(
            f"select count(*), min(tableoid::regclass::text) = max(tableoid::regclass::text)"
            f' from "{worker_schema}"._private_history'.encode()
        ).fetchone()
        assert counted == (2, True)
