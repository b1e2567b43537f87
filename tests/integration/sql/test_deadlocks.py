"""Calls that change the same jobs at the same time wait for each other, and never deadlock."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

# Long enough that PostgreSQL finds nothing but deadlocks, and short enough not to wait for it.
DEADLOCK_TIMEOUT = "50ms"


@pytest.fixture
def session(committing_worker: Callable[..., WorkerSql]) -> Callable[[], WorkerSql]:
    def make() -> WorkerSql:
        worker = committing_worker()
        worker.query("select set_config('deadlock_timeout', %s, false)", DEADLOCK_TIMEOUT)
        return worker

    return make


def test_a_job_that_lost_its_key_has_the_same_place_for_all(
    session: Callable[[], WorkerSql], wait_until: Callable[..., None]
) -> None:
    """Two calls that see the job before and after it lost its key lock the same rows in the same order."""
    owner, slow, quick, taker, holder = (session() for _ in range(5))
    first, second, lost = (owner.add_job(job_key=key)["id"] for key in ("b", "c", "a"))

    def waits(worker: WorkerSql) -> Callable[[], bool]:
        blocked = "select cardinality(pg_blocking_pids(%s)) > 0"
        return lambda: bool(owner.value(blocked, worker.connection.info.backend_pid))

    def is_blocked_by(worker: WorkerSql, other: WorkerSql) -> Callable[[], bool]:
        return lambda: bool(owner.value("select %s = any(pg_blocking_pids(%s))", *pids(other, worker)))

    with ThreadPoolExecutor(2) as pool:
        with holder.connection.transaction():
            holder.query("select from {schema}._private_jobs where id = %s for update", first)
            with taker.connection.transaction():
                taker.query("update {schema}._private_jobs set key = null where id = %s", lost)
                slow_call = pool.submit(slow.call, "permanently_fail_jobs", job_ids=[first, second, lost])
                wait_until(waits(slow))
            wait_until(is_blocked_by(slow, holder))
            quick_call = pool.submit(quick.call, "permanently_fail_jobs", job_ids=[second, lost])
            wait_until(lambda: quick_call.done() or waits(quick)())
        assert len(quick_call.result()) == 2
        assert len(slow_call.result()) == 3


def pids(*workers: WorkerSql) -> list[int]:
    return [worker.connection.info.backend_pid for worker in workers]


SESSIONS = 5
CALLS = 100
KEYS = [f"key {number}" for number in range(12)]


def test_a_crowd_of_calls_meets_no_deadlock(session: Callable[[], WorkerSql]) -> None:
    workers = [session() for _ in range(SESSIONS)]

    def call(worker: WorkerSql, chance: random.Random) -> str:
        ids = [row["id"] for row in worker.query("select id from {schema}._private_jobs")]
        some = chance.sample(ids, min(len(ids), chance.randint(2, 10)))
        keys = chance.sample(KEYS, chance.randint(2, 8))
        calls: list[tuple[str, dict[str, Any]]] = [
            ("complete_jobs", {"job_ids": some[:2]}),
            ("permanently_fail_jobs", {"job_ids": some}),
            ("reschedule_jobs", {"job_ids": some, "attempts": 0}),
            ("force_unlock_workers", {"worker_ids": ["worker"]}),
            ("remove_job", {"job_key": keys[0]}),
            ("lock", {"ids": some}),
            *[("add_jobs", {"keys": keys})] * 3,
        ]
        name, arguments = chance.choice(calls)
        try:
            _call(worker, name, arguments)
        except psycopg.errors.DeadlockDetected as error:
            return f"{name}: {error.diag.context}"
        return "done"

    def run(number: int) -> Counter[str]:
        chance = random.Random(number)
        return Counter(call(workers[number], chance) for _ in range(CALLS))

    with ThreadPoolExecutor(SESSIONS) as pool:
        outcomes = sum(pool.map(run, range(SESSIONS)), Counter[str]())
    assert outcomes == {"done": SESSIONS * CALLS}


# In the order of all calls: a row that another call has changed is waited for even by SKIP LOCKED.
LOCK = """
update {schema}._private_jobs set locked_at = now(), locked_by = 'worker'
where id = any(array(
    select id from {schema}._private_jobs where id = any(%s) and is_available order by id for update skip locked))
"""


def _call(worker: WorkerSql, name: str, arguments: dict[str, Any]) -> None:
    if name == "add_jobs":
        worker.add_jobs(*({"job_key": key, "run_at": "2099-01-01T00:00:00Z"} for key in arguments["keys"]))
    elif name == "lock":
        worker.query(LOCK, arguments["ids"])
    else:
        worker.call(name, **arguments)
