from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

Notified = Callable[[], list[int]]


@pytest.fixture
def worker(committing_worker: Callable[..., WorkerSql]) -> WorkerSql:
    return committing_worker()


@pytest.fixture
def notified(worker: WorkerSql) -> Notified:
    """The counts that came on jobs:insert since the last call."""
    worker.query('listen "jobs:insert"')

    def read() -> list[int]:
        # A notification that was sent comes with the answer to the next statement.
        worker.query("select 1")
        payloads = [json.loads(notify.payload) for notify in worker.connection.notifies(timeout=0)]
        assert all(sorted(payload) == ["count", "r"] and 0 <= payload["r"] < 1 for payload in payloads)
        return [payload["count"] for payload in payloads]

    return read


def test_add_job_notifies_of_one_job(worker: WorkerSql, notified: Notified) -> None:
    worker.add_job()

    assert notified() == [1]


def test_add_job_notifies_of_a_job_that_is_due_before_the_next_poll(worker: WorkerSql, notified: Notified) -> None:
    worker.query("select {schema}.add_job('task', run_at := now() + interval '9 seconds')")
    worker.query("select {schema}.add_job('task', run_at := now() - interval '1 day')")

    assert notified() == [1, 1]


def test_a_preserved_run_at_decides__not_the_given_run_at(worker: WorkerSql, notified: Notified) -> None:
    worker.add_job(job_key="key", run_at="2099-01-01")

    worker.add_job(job_key="key", job_key_mode="preserve_run_at")

    assert notified() == []


def test_unsafe_dedupe_notifies_only_of_a_job_that_it_added(worker: WorkerSql, notified: Notified) -> None:
    worker.add_job(job_key="key", job_key_mode="unsafe_dedupe")
    worker.add_job(job_key="key", job_key_mode="unsafe_dedupe")

    assert notified() == [1]


def test_add_jobs_notifies_once__how_many_are_due(worker: WorkerSql, notified: Notified) -> None:
    worker.lock(worker.add_job(job_key="running", run_at="2099-01-01")["id"])
    worker.add_jobs({}, {"run_at": "2099-01-01"}, {})
    worker.add_jobs(
        {}, {"job_key": "a"}, {"job_key": "running"}, {"job_key": "a"}, {"job_key": "b", "run_at": "2099-01-01"}
    )

    assert notified() == [2, 3]


def test_remove_job_notifies_of_one_job_less(worker: WorkerSql, notified: Notified) -> None:
    worker.add_job(job_key="key", run_at="2099-01-01")
    worker.lock(worker.add_job(job_key="running", run_at="2099-01-01")["id"])

    for key in ("key", "running", "absent"):
        worker.call("remove_job", job_key=key)

    assert notified() == [-1]


def test_reschedule_jobs_notifies_of_jobs_that_it_made_due(worker: WorkerSql, notified: Notified) -> None:
    ids = [worker.add_job(run_at="2099-01-01")["id"] for _ in range(3)]
    worker.call("permanently_fail_jobs", job_ids=ids[:1])

    worker.call("reschedule_jobs", job_ids=ids, priority=1)
    assert notified() == []
    worker.call("reschedule_jobs", job_ids=ids, run_at="2020-01-01")
    assert notified() == [2]


def test_force_unlock_workers_notifies_of_what_it_freed(worker: WorkerSql, notified: Notified) -> None:
    due, future, failed = worker.add_jobs({"max_attempts": 2}, {"run_at": "2099-01-01"}, {"max_attempts": 1})
    for job in (due, future, failed):
        worker.lock(job["id"], by="gone")
    worker.add_job(queue_name="queue", run_at="2099-01-01")
    worker.query("update {schema}._private_job_queues set locked_at = now(), locked_by = 'gone too'")
    notified()

    worker.call("force_unlock_workers", worker_ids=["gone"])
    worker.call("force_unlock_workers", worker_ids=["gone too"])
    worker.call("force_unlock_workers", worker_ids=["unknown"])

    assert notified() == [1, 1]


def test_equal_notifications_of_one_transaction_all_arrive(worker: WorkerSql, notified: Notified) -> None:
    with worker.connection.transaction():
        for _ in range(3):
            worker.add_job()

    assert notified() == [1, 1, 1]


@pytest.mark.parametrize("scope", ["session", "transaction"])
def test_a_setting_switches_them_off(worker: WorkerSql, notified: Notified, scope: str) -> None:
    def act() -> None:
        worker.add_job(job_key="key")
        worker.add_jobs({}, {"job_key": "other"})
        worker.call("reschedule_jobs", job_ids=[job["id"] for job in worker.jobs()])
        worker.call("remove_job", job_key="key")

    with worker.connection.transaction():
        worker.query("select set_config('graphile_worker.notify', 'off', %s)", scope == "transaction")
        act()
    assert notified() == []

    worker.query("select set_config('graphile_worker.notify', '', false)")
    worker.add_job()
    assert notified() == [1]


def test_no_data_of_a_job_is_sent(worker: WorkerSql, notified: Notified) -> None:
    worker.add_job("secret-task", payload={"secret": 1}, queue_name="secret-queue", job_key="secret-key")

    payload: Any = next(iter(worker.connection.notifies(timeout=0))).payload
    assert "secret" not in payload
