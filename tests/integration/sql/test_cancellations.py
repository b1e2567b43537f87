"""What becomes of a job that is removed or replaced while a worker holds it, or while it waits."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import releases
from django_graphile_worker.sql.job_actions.bulk_steps import Call, run_step
from django_graphile_worker.sql.job_actions.changes import RESCHEDULE, Change, change_jobs
from django_graphile_worker.sql.releases import HeldJob
from tests.support.factories import cancel_claimed, make_job, minutes_ago
from tests.support.worker_sql import WorkerSql

HOLDER = "django-worker-0123456789abcdef01/7"


def markers(worker: WorkerSql) -> list[dict[str, Any]]:
    return worker.query("select job_id, locked_by, kind, attempts, job_key from {schema}._private_cancellations")


def replace_by_add_job(worker: WorkerSql) -> None:
    worker.add_job(job_key="key")


def replace_by_add_jobs(worker: WorkerSql) -> None:
    worker.add_jobs({"job_key": "key"}, {"job_key": "other"}, {})


def remove(worker: WorkerSql) -> None:
    worker.call("remove_job", job_key="key")


CANCEL = [(replace_by_add_job, "replaced"), (replace_by_add_jobs, "replaced"), (remove, "removed")]


class TestAJobThatAWorkerHolds:
    @pytest.mark.parametrize(("cancel", "kind"), CANCEL)
    def test_leaves_a_marker_of_the_claim(self, worker: WorkerSql, cancel: Any, kind: str) -> None:
        job = worker.lock(worker.add_job(job_key="key", max_attempts=5)["id"], by=HOLDER)

        cancel(worker)

        expected = {"job_id": job["id"], "locked_by": HOLDER, "kind": kind, "attempts": 1, "job_key": "key"}
        assert markers(worker) == [expected]
        row = worker.job(job["id"])
        assert (row["key"], row["attempts"], row["locked_by"]) == (None, 5, HOLDER)
        assert row["updated_at"] > job["updated_at"]

    def test_keeps_its_times_and_attempts_when_an_addition_is_dropped(self, worker: WorkerSql) -> None:
        job = worker.lock(worker.add_job(job_key="key", max_attempts=1)["id"], by=HOLDER, ago="1 minute")
        worker.query("update {schema}._private_jobs set updated_at = now() - interval '1 hour'")
        job = worker.job(job["id"])

        worker.add_job(job_key="key", job_key_mode="unsafe_dedupe")

        assert worker.job(job["id"]) == job | {"revision": 1}
        assert markers(worker) == []

    @pytest.mark.parametrize("worker_id", [HOLDER, HOLDER.split("/")[0]])
    def test_is_unlocked_by_the_workers_id_and_by_that_of_the_claim(self, worker: WorkerSql, worker_id: str) -> None:
        job = worker.lock(worker.add_job(queue_name="queue")["id"], by=HOLDER)
        other = worker.lock(worker.add_job()["id"], by=HOLDER.replace("01/7", "02/7"))
        worker.query("update {schema}._private_job_queues set locked_at = now(), locked_by = %s", HOLDER)

        worker.call("force_unlock_workers", worker_ids=[worker_id])

        assert worker.job(job["id"])["locked_by"] is None
        assert worker.job(other["id"]) == other
        assert worker.value("select locked_by from {schema}._private_job_queues") is None


class TestAJobThatWaits:
    @pytest.mark.parametrize(("cancel", "kind"), CANCEL)
    def test_leaves_none(self, worker: WorkerSql, cancel: Any, kind: str) -> None:
        worker.add_job(job_key="key")
        cancel(worker)
        assert markers(worker) == []

    @pytest.mark.parametrize(("cancel", "kind"), CANCEL)
    def test_leaves_none_when_its_attempts_are_used_up(self, worker: WorkerSql, cancel: Any, kind: str) -> None:
        job = worker.add_job(job_key="key")
        worker.call("permanently_fail_jobs", job_ids=[job["id"]])
        cancel(worker)
        assert markers(worker) == []

    @pytest.mark.parametrize("replace", [replace_by_add_job, replace_by_add_jobs])
    def test_does_not_inherit_the_deaths_of_the_job_it_replaces(self, worker: WorkerSql, replace: Any) -> None:
        job, other = worker.add_job(job_key="key"), worker.add_job(job_key="another")
        for each in (job, other):
            worker.query("insert into {schema}._private_job_recoveries (job_id, recoveries) values (%s, 2)", each["id"])

        replace(worker)

        assert worker.query("select job_id from {schema}._private_job_recoveries") == [{"job_id": other["id"]}]


AGAIN = Change(action=RESCHEDULE, attempts=0)


def reschedule(job_ids: list[int], *, schema: str, notify: bool) -> list[int]:
    with connection.cursor() as cursor:
        jobs = change_jobs(cursor, job_ids, AGAIN, schema=schema, notify=notify)
    return [job.id for job in jobs]


def reschedule_in_bulk(job_ids: list[int], *, schema: str, notify: bool) -> list[int]:
    call = Call(change=AGAIN, notify=notify)
    with connection.cursor() as cursor:
        step = run_step(cursor, call, job_ids, job_ids, schema=schema)
    return list(step.ids)


@pytest.mark.django_db
@pytest.mark.parametrize("notify", [True, False], ids=["aloud", "silent"])
@pytest.mark.parametrize("reschedule", [reschedule, reschedule_in_bulk])
def test_a_cancelled_job_that_is_rescheduled_hours_later__is_not_deleted_when_its_claim_ends(
    worker_schema: str, reschedule: Any, notify: bool
) -> None:
    held: dict[str, Any] = {"locked_by": HOLDER, "attempts": 1}
    stale, running = (make_job(locked_at=minutes_ago(minutes), **held) for minutes in (300, 1))
    for job_id in (stale, running):
        cancel_claimed(job_id, "removed")

    assert reschedule([stale, running], schema=worker_schema, notify=notify) == [stale]

    with connection.cursor() as cursor:
        cursor.execute(f'select job_id from "{worker_schema}"._private_cancellations')
        assert cursor.fetchall() == [(running,)]
        claims = [HeldJob(job_id, HOLDER, None) for job_id in (stale, running)]
        releases.return_jobs(cursor, claims, schema=worker_schema)
        cursor.execute(f'select id, attempts, is_available from "{worker_schema}"._private_jobs')
        assert cursor.fetchall() == [(stale, 0, True)]


class TestATableThatInherits:
    """An archive, say: its rows are not the queue's."""

    @pytest.fixture
    def archived(self, worker: WorkerSql) -> list[dict[str, Any]]:
        worker.query("create table {schema}.archive () inherits ({schema}._private_jobs)")
        worker.add_jobs({"job_key": "a"}, {"job_key": "b", "queue_name": "queue"})
        worker.query(
            "insert into {schema}.archive (id, task_id, job_queue_id, key)"
            " select id, task_id, job_queue_id, key from only {schema}._private_jobs"
        )
        return worker.query("select * from {schema}.archive order by id")

    def test_is_reached_by_no_function(self, worker: WorkerSql, archived: list[dict[str, Any]]) -> None:
        ids = [row["id"] for row in archived]
        worker.query("update only {schema}._private_jobs set locked_at = now(), locked_by = 'w' where id = %s", ids[0])
        worker.query("update {schema}.archive set locked_at = now(), locked_by = 'w' where id = %s", ids[0])
        before = worker.query("select * from {schema}.archive order by id")

        worker.call("force_unlock_workers", worker_ids=["w"])
        worker.call("reschedule_jobs", job_ids=ids, priority=3)
        worker.call("permanently_fail_jobs", job_ids=ids)
        worker.add_jobs({"job_key": "a", "priority": 1}, {"job_key": "b"})
        worker.add_job(job_key="a")
        worker.call("remove_job", job_key="b")
        worker.call("complete_jobs", job_ids=ids)

        assert worker.query("select * from {schema}.archive order by id") == before
