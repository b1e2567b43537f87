"""Claims of jobs that were cancelled meanwhile, ended by every statement that ends claims; on each version."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.sql import control, recovery, releases
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.control import Cancellation
from django_graphile_worker.sql.releases import CancelledClaim, Failure, HeldJob, StoppedRun
from django_graphile_worker.sql.results import CANCELLED, ResultKeeping
from tests.conftest import RawConnection
from tests.support.slot import make_claim

WORKER = "django-worker-1"
KEEPING = ResultKeeping(seconds={}, default=60.0, has_history=True)
MARIA = Cancellation(reason="sent twice", by="maria")


class Queue:
    """A worker schema with jobs that a worker has claimed, all of them cancelled but the last."""

    def __init__(self, connection: RawConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        (self.task_id,) = self.query("insert into {schema}._private_tasks (identifier) values ('t') returning id")[0]
        self.told: list[CancelledClaim] = []

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(text.replace("{schema}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def claims(self, token: str = f"{WORKER}/1", *, locked_ago: str = "0 seconds") -> tuple[Claim, Claim]:
        """Return a claim whose job was cancelled, and one whose job was not."""
        rows = self.query(
            "insert into {schema}._private_jobs (task_id, attempts, max_attempts, locked_by, locked_at, key)"
            " select %s, 2, 25, %s, now() - %s::interval, 'key ' || n from generate_series(1, 2) as n returning id",
            self.task_id,
            token,
            locked_ago,
        )
        cancelled, other = (make_claim(id=row[0], task_id=self.task_id, token=token) for row in rows)
        with self.connection.cursor() as cursor:
            control.cancel_jobs(cursor, [cancelled.id], MARIA, schema=self.schema)
        return cancelled, other

    def check_cancelled(self, claim: Claim, *, has_begun: bool = True, told: bool = True) -> None:
        """Check that the job has ended as cancelled, with who and why, and forget it."""
        assert self.query("select 1 from {schema}._private_jobs where id = %s", claim.id) == []
        rows = self.query(
            "select outcome, attempt, job_key, worker_id, started_at is not null, split_part(error, E'\\n', 1)"
            " from {schema}._private_history where job_id = %s",
            claim.id,
        )
        assert rows == [(8, 2, "key 1", claim.worker_id, has_begun, "Cancelled by maria: sent twice")]
        (status, value, attempts) = self.query(
            "select status, value::json, attempts from {schema}._private_results where job_id = %s", claim.id
        )[0]
        assert (status, value) == (4, {"by": "maria", "reason": "sent twice"})
        assert attempts[-1]["exception_class"] == CANCELLED
        assert [each.id for each in self.told] == [claim.id] * told
        assert self.query("select 1 from {schema}._private_stop_requests") == []
        assert self.query("select 1 from {schema}._private_cancellations") == []
        self.query("delete from {schema}._private_jobs")
        self.told.clear()


@pytest.fixture
def queue(shared_connection: RawConnection, worker_schema: str) -> Queue:
    return Queue(shared_connection, worker_schema)


def test_every_statement_that_ends_claims_ends_cancelled_jobs(queue: Queue) -> None:
    """One test, because each version of PostgreSQL costs a database."""
    with queue.connection.cursor() as cursor:
        check_stopped(queue, cursor)
        check_failed(queue, cursor)
        check_returned(queue, cursor)
        check_recovered(queue, cursor)
        check_stale(queue, cursor)
        check_lost_answers(queue, cursor)
        check_succeeded(queue, cursor)


def check_stopped(queue: Queue, cursor: Any) -> None:
    claim, _ = queue.claims()
    elsewhere = make_claim(id=claim.id, task_id=queue.task_id, token=f"{WORKER}/99")
    options: dict[str, Any] = {"schema": queue.schema, "keeping": KEEPING}
    assert releases.end_cancelled(cursor, [StoppedRun(elsewhere, 5)], **options) == []
    queue.told = releases.end_cancelled(cursor, [StoppedRun(claim, 5)], **options)
    assert queue.told == [(claim.id, "sent twice", "maria")]
    queue.check_cancelled(claim)


def check_failed(queue: Queue, cursor: Any) -> None:
    options: dict[str, Any] = {"schema": queue.schema, "keeping": KEEPING, "on_cancelled": queue.told.append}
    claim, other = queue.claims()
    failures = [Failure(claim=each, error="no", duration=5) for each in (claim, other)]
    stored = releases.fail_jobs(cursor, failures, **options)
    assert stored == {claim.id: None, other.id: pytest.approx(7.389, abs=0.01)}
    (error,) = queue.query("select error from {schema}._private_history where job_id = %s", claim.id)[0]
    assert error == "Cancelled by maria: sent twice\nno"
    queue.check_cancelled(claim)

    claim, other = queue.claims()
    recorded = [Failure(claim=each, error="no", duration=2, ago=1, keep=60.0) for each in (claim, other)]
    assert releases.fail_jobs(cursor, recorded, **options).keys() == {claim.id, other.id}
    queue.check_cancelled(claim)


def check_returned(queue: Queue, cursor: Any) -> None:
    options: dict[str, Any] = {"schema": queue.schema, "keeping": KEEPING, "on_cancelled": queue.told.append}
    claim, other = queue.claims()
    assert releases.return_jobs(cursor, [claim, other], **options) == {claim.id, other.id}
    assert queue.query("select id, attempts from {schema}._private_jobs") == [(other.id, 1)]
    queue.check_cancelled(claim, has_begun=False)

    claim, other = queue.claims()
    remaining = [StoppedRun(claim, payload_text="[1]"), StoppedRun(other, payload_text="[2]")]
    assert releases.return_stopped(cursor, remaining, **options) == {claim.id, other.id}
    queue.check_cancelled(claim, has_begun=False)

    claim, other = queue.claims()
    returned = [StoppedRun(each, 7) for each in (claim, other)]
    assert releases.return_stopped(cursor, returned, **options) == {claim.id, other.id}
    queue.check_cancelled(claim)


def check_recovered(queue: Queue, cursor: Any) -> None:
    claim, other = queue.claims()
    recovered = recovery.recover_claims(cursor, [WORKER], schema=queue.schema, keeping=KEEPING)
    assert recovered.job_ids == (other.id,)
    (cancelled,) = recovered.cancelled
    assert (cancelled.job.id, cancelled.job.attempts, cancelled.job.key) == (claim.id, 2, "key 1")
    assert (cancelled.reason, cancelled.cancelled_by, cancelled.duration) == ("sent twice", "maria", None)
    queue.check_cancelled(claim, has_begun=False, told=False)


def check_stale(queue: Queue, cursor: Any) -> None:
    """A worker of Node.js that died: its lock is released after hours."""
    claim, other = queue.claims("worker-of-node")
    queue.query("update {schema}._private_jobs set locked_at = now() - interval '5 hours'")
    unlocked = recovery.release_stale_locks(cursor, schema=queue.schema, keeping=KEEPING)
    assert (unlocked.jobs, [each.job.id for each in unlocked.cancelled]) == (1, [claim.id])
    assert queue.query("select id from {schema}._private_jobs") == [(other.id,)]
    queue.check_cancelled(claim, has_begun=False, told=False)


def check_lost_answers(queue: Queue, cursor: Any) -> None:
    claim, other = queue.claims()
    held = [HeldJob(each.id, each.token, None) for each in (claim, other)]
    (cancelled,) = control.end_cancelled_claims(cursor, held, schema=queue.schema, keeping=KEEPING)
    assert cancelled.job.id == claim.id
    queue.check_cancelled(claim, has_begun=False, told=False)


def check_succeeded(queue: Queue, cursor: Any) -> None:
    """The request came too late: the job has succeeded, and the request is forgotten."""
    claim, other = queue.claims()
    assert [each.is_claimed for each in control.read_control(cursor, WORKER, schema=queue.schema).stops] == [True]
    releases.complete_jobs(cursor, [claim, other], schema=queue.schema)
    read = control.read_control(cursor, WORKER, schema=queue.schema)
    assert read.stops == ((claim.id, claim.token, "sent twice", "maria", False),)
    assert control.read_control(cursor, "another", schema=queue.schema).stops == ()
    assert control.forget_stops(cursor, read.stops, schema=queue.schema) == {claim.id}
    assert control.forget_stops(cursor, read.stops, schema=queue.schema) == set()

    claim, _ = queue.claims()
    recovery.forget_ended(cursor, schema=queue.schema)
    assert len(control.read_control(cursor, WORKER, schema=queue.schema).stops) == 1
    releases.complete_jobs(cursor, [claim], schema=queue.schema)
    recovery.forget_ended(cursor, schema=queue.schema)
    assert control.read_control(cursor, WORKER, schema=queue.schema).stops == ()
