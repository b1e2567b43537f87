"""Many adders and claimers on few keys, as fast as they can."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = ("a", "b", "c")
ADDERS = 6
REQUESTS = 30


def test_every_request_ends_in_a_job(database_url: str, worker_schema: str) -> None:
    finished = threading.Event()
    with ThreadPoolExecutor() as threads:
        claiming = [threads.submit(claim, database_url, worker_schema, finished) for _ in range(3)]
        adding = [threads.submit(add, database_url, worker_schema, number) for number in range(ADDERS)]
        try:
            for future in adding:
                future.result()
        finally:
            finished.set()
        claimed = [request for future in claiming for request in future.result()]

    with psycopg.connect(database_url, autocommit=True) as connection:
        jobs = WorkerSql(connection, worker_schema).jobs()
    waiting = [request for job in jobs if job["is_available"] for request in job["payload"]]
    assert len(claimed) > 0
    assert set(claimed) | set(waiting) == set(range(ADDERS * REQUESTS))


def add(url: str, schema: str, number: int) -> None:
    """Add jobs singly and in batches, sometimes several in one transaction, in sorted order of their keys."""
    chance = random.Random(number)
    requests = iter(range(number * REQUESTS, (number + 1) * REQUESTS))
    with psycopg.connect(url, autocommit=True) as connection:
        worker = WorkerSql(connection, schema)
        for request in requests:
            if chance.random() < 0.5:
                rows = [worker.add_job(payload=[request], job_key=chance.choice(KEYS))]
            else:
                batch = [request, *(following for following in [next(requests, None)] if following is not None)]
                specs: list[dict[str, Any]] = [
                    {"payload": [request], "job_key": key}
                    for request, key in zip(batch, chance.sample(KEYS, len(batch)), strict=True)
                ]
                rows = worker.add_jobs(*specs)
            assert all(row["id"] is not None for row in rows)


def claim(url: str, schema: str, finished: threading.Event) -> list[int]:
    """Claim jobs and then complete, fail or remove them; the requests that were in them."""
    requests: list[int] = []
    chance = random.Random(url)
    with psycopg.connect(url, autocommit=True) as connection:
        worker = WorkerSql(connection, schema)
        while not finished.is_set():
            for job in worker.query(
                "update {schema}._private_jobs set locked_at = now(), locked_by = 'w', attempts = attempts + 1"
                " where id = (select id from {schema}._private_jobs where is_available"
                " for update skip locked limit 1) returning *"
            ):
                requests += job["payload"]
                if chance.random() < 0.5:
                    worker.query("delete from {schema}._private_jobs where id = %s", job["id"])
                else:
                    worker.query("update {schema}._private_jobs set locked_at = null where id = %s", job["id"])
    return requests
