from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tests.support.worker_sql import Row, WorkerSql

FUTURE = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
def three(worker: WorkerSql) -> list[Row]:
    """A waiting job, a running job, and a job that has been locked for more than four hours."""
    waiting, running, stale = worker.add_jobs({"payload": 1}, {"payload": 2}, {"payload": 3})
    return [waiting, worker.lock(running["id"]), worker.lock(stale["id"], ago="4 hours 1 second")]


class TestRemoveJob:
    def test_keeps_a_running_job_from_running_again(self, worker: WorkerSql) -> None:
        running = worker.lock(worker.add_job(job_key="key")["id"])

        (removed,) = worker.call("remove_job", job_key="key")

        assert removed == running | {"key": None, "attempts": 25, "updated_at": removed["updated_at"]}
        assert removed["updated_at"] > removed["locked_at"]
        assert worker.jobs() == [removed]

    def test_returns_a_row_of_nulls_when_there_is_no_such_job(self, worker: WorkerSql) -> None:
        other = worker.add_job(job_key="other")

        for key in ("key", None):
            (row,) = worker.call("remove_job", job_key=key)
            assert set(row.values()) == {None}
        assert worker.jobs() == [other]


class TestRescheduleJobs:
    def test_changes_what_is_given_and_keeps_the_rest(self, worker: WorkerSql, three: list[Row]) -> None:
        waiting, running, stale = three
        ids = [job["id"] for job in three]

        changed = worker.call("reschedule_jobs", job_ids=ids, run_at=FUTURE, priority=3, attempts=2, max_attempts=4)

        new = {"run_at": FUTURE, "priority": 3, "attempts": 2, "max_attempts": 4}
        assert sorted(changed, key=lambda job: int(job["id"])) == [waiting | new, stale | new]
        assert worker.job(running["id"]) == running
        assert {job["revision"] for job in worker.call("reschedule_jobs", job_ids=ids)} == {0}
        assert worker.job(waiting["id"]) == waiting | new

    @pytest.mark.parametrize(
        ("options", "sqlstate"),
        [
            ({"run_at": "infinity"}, "22008"),
            ({"run_at": "-infinity"}, "22008"),
            ({"priority": 40000}, "22003"),
            ({"attempts": 40000}, "22003"),
            ({"attempts": -1}, "22003"),
            ({"max_attempts": 0}, "GWBMA"),
            ({"max_attempts": 40000}, "GWBMA"),
        ],
    )
    def test_refuses_what_no_job_can_have(self, worker: WorkerSql, options: dict[str, Any], sqlstate: str) -> None:
        job = worker.add_job()

        with pytest.raises(psycopg.Error) as caught, worker.connection.transaction():
            worker.call("reschedule_jobs", job_ids=[job["id"]], **options)

        assert caught.value.sqlstate == sqlstate
        assert "got" in str(caught.value)
        assert worker.jobs() == [job]


class TestForceUnlockWorkers:
    def test_frees_the_jobs_and_queues_of_these_workers_alone(self, worker: WorkerSql) -> None:
        mine, theirs, free = worker.add_jobs({"queue_name": "mine"}, {"queue_name": "theirs"}, {})
        mine, theirs = worker.lock(mine["id"], by="mine"), worker.lock(theirs["id"], by="theirs")
        worker.query("update {schema}._private_job_queues set locked_at = now(), locked_by = queue_name")

        (row,) = worker.call("force_unlock_workers", worker_ids=["mine", "unknown"])

        assert set(row.values()) == {None}
        unlocked = mine | {"locked_at": None, "locked_by": None, "is_available": True}
        assert worker.jobs() == [unlocked, theirs, free]
        queues = worker.query(
            "select queue_name, locked_by, locked_at is null as is_free from {schema}._private_job_queues"
        )
        assert sorted(queues, key=str) == sorted(
            [
                {"queue_name": "mine", "locked_by": None, "is_free": True},
                {"queue_name": "theirs", "locked_by": "theirs", "is_free": False},
            ],
            key=str,
        )
