"""How claims end, and that a statement ends no claim but the one it states."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_graphile_worker.sql import claims, releases
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.releases import Failure, HeldQueue, StoppedRun
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import cancel_claimed, make_job, make_task

pytestmark = pytest.mark.django_db

WORKER_ID = "django-worker-1"
WORKER, OTHER = f"{WORKER_ID}/1", "django-worker-2/1"


@pytest.fixture
def cursor() -> Any:
    with connection.cursor() as cursor:
        yield cursor


@pytest.fixture
def claim(cursor: Any, worker_schema: str) -> Callable[..., Claimed]:
    def claim(**options: Any) -> Claimed:
        parameters: dict[str, Any] = {"token": WORKER, "max_jobs": 100, "max_per_queue": 10} | options
        return claims.claim_jobs(cursor, schema=worker_schema, task_ids=[make_task("task")], **parameters)

    return claim


def row(cursor: Any, job_id: int, schema: str) -> dict[str, Any] | None:
    cursor.execute(f'select * from "{schema}"._private_jobs where id = %s', [job_id])
    values = cursor.fetchone()
    return None if values is None else dict(zip([column[0] for column in cursor.description], values, strict=True))


@pytest.fixture
def claimed(claim: Callable[..., Claimed]) -> Claim:
    make_job(payload=[1, 2])
    return claim().claims[0]


def test_completing_ends_the_claims_of_several_statements(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    for _ in range(6):
        make_job()
    claimed = [each for token in ("w/1", "w/2", "w/3") for each in claim(token=token, max_jobs=2).claims]
    mixed = claimed[::2] + claimed[1::2]
    assert releases.complete_jobs(cursor, mixed, schema=worker_schema) == {each.id for each in claimed}
    assert [row(cursor, each.id, worker_schema) for each in claimed] == [None] * 6


def test_completing_compares_each_job_with_the_token_of_its_own_claim(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    """The token of another claim of the same batch is no token of this job."""
    make_job()
    make_job()
    (first,), (second,) = claim(token="w/1", max_jobs=1).claims, claim(token="w/2", max_jobs=1).claims
    late, other = first._replace(token="w/2"), second._replace(token="w/1")
    assert releases.complete_jobs(cursor, [late, other], schema=worker_schema) == set()
    assert releases.complete_jobs(cursor, [late, second], schema=worker_schema) == {second.id}
    assert row(cursor, first.id, worker_schema) is not None


def test_a_rehearsal_changes_nothing(claimed: Claim, cursor: Any, worker_schema: str) -> None:
    before = row(cursor, claimed.id, worker_schema)
    releases.rehearse(cursor, schema=worker_schema)
    assert row(cursor, claimed.id, worker_schema) == before
    # Nor does it delete a job that no worker holds, whose token is empty.
    free = make_job()
    releases.rehearse(cursor, schema=worker_schema)
    assert row(cursor, free, worker_schema) is not None


def test_failing_keeps_the_error_and_backs_off(claimed: Claim, cursor: Any, worker_schema: str) -> None:
    failed = releases.fail_jobs(cursor, [Failure(claim=claimed, error="Oh no")], schema=worker_schema)
    assert failed == {claimed.id: pytest.approx(2.718, abs=0.01)}
    stored = row(cursor, claimed.id, worker_schema)
    assert stored is not None
    assert (stored["last_error"], stored["attempts"], stored["locked_by"]) == ("Oh no", 1, None)


def test_failing_obeys_delay_permanence_and_payload(claimed: Claim, cursor: Any, worker_schema: str) -> None:
    failure = Failure(claim=claimed, error="Oh no", delay=60.0, payload_text="[2]")
    assert releases.fail_jobs(cursor, [failure], schema=worker_schema) == {claimed.id: pytest.approx(60, abs=0.01)}
    cursor.execute(f'select payload::text from "{worker_schema}"._private_jobs where id = %s', [claimed.id])
    assert cursor.fetchone() == ("[2]",)


def test_failing_permanently_leaves_no_attempt(claimed: Claim, cursor: Any, worker_schema: str) -> None:
    failure = Failure(claim=claimed, error="Oh no", permanent=True)
    assert releases.fail_jobs(cursor, [failure], schema=worker_schema) == {claimed.id: None}
    stored = row(cursor, claimed.id, worker_schema)
    assert stored is not None
    assert stored["attempts"] == stored["max_attempts"] == 25


def test_returning_gives_the_attempt_back(claimed: Claim, cursor: Any, worker_schema: str) -> None:
    assert releases.return_jobs(cursor, [claimed], schema=worker_schema) == {claimed.id}
    stored = row(cursor, claimed.id, worker_schema)
    assert stored is not None
    assert (stored["attempts"], stored["locked_by"], stored["is_available"]) == (0, None, True)


def test_returning_what_remains_gives_the_attempt_back(claimed: Claim, cursor: Any, worker_schema: str) -> None:
    ended = [StoppedRun(claimed, payload_text="[2]")]
    assert releases.return_stopped(cursor, ended, schema=worker_schema) == {claimed.id}
    stored = row(cursor, claimed.id, worker_schema)
    assert stored is not None
    assert (stored["attempts"], stored["locked_by"], stored["is_available"]) == (0, None, True)
    cursor.execute(f'select payload::text from "{worker_schema}"._private_jobs where id = %s', [claimed.id])
    assert cursor.fetchone() == ("[2]",)


@pytest.mark.parametrize("stale", ["another worker", "another claim", "nobody"])
def test_a_lost_claim_changes_nothing(claimed: Claim, cursor: Any, worker_schema: str, stale: str) -> None:
    change = {
        "another worker": "locked_by = 'django-worker-2/1'",
        "another claim": "locked_by = 'django-worker-1/2'",
        "nobody": "locked_by = null, locked_at = null",
    }[stale]
    cursor.execute(f'update "{worker_schema}"._private_jobs set {change}')
    before = row(cursor, claimed.id, worker_schema)
    shared: dict[str, Any] = {"schema": worker_schema}
    assert releases.complete_jobs(cursor, [claimed], **shared) == set()
    assert releases.fail_jobs(cursor, [Failure(claim=claimed, error="Oh no")], **shared) == {}
    assert releases.return_jobs(cursor, [claimed], **shared) == set()
    assert releases.return_stopped(cursor, [StoppedRun(claimed, payload_text="[2]")], **shared) == set()
    assert releases.still_claimed(cursor, [claimed], **shared) == set()
    assert releases.complete_jobs(cursor, [claimed], is_patient=True, **shared) == set()
    assert row(cursor, claimed.id, worker_schema) == before


@pytest.mark.parametrize("kind", ["removed", "replaced"])
def test_a_job_that_is_cancelled_while_it_runs_may_still_be_completed(
    claimed: Claim, cursor: Any, worker_schema: str, kind: str
) -> None:
    cancel_claimed(claimed.id, kind)
    assert releases.still_claimed(cursor, [claimed], schema=worker_schema) == {claimed.id}
    assert releases.complete_jobs(cursor, [claimed], schema=worker_schema) == {claimed.id}


@pytest.mark.parametrize("kind", ["removed", "replaced"])
def test_a_job_that_is_cancelled_while_it_runs_and_fails_is_not_tried_again(
    claimed: Claim, cursor: Any, worker_schema: str, kind: str
) -> None:
    cancel_claimed(claimed.id, kind)
    failed = releases.fail_jobs(cursor, [Failure(claim=claimed, error="Oh no")], schema=worker_schema)
    assert failed == {claimed.id: None}
    stored = row(cursor, claimed.id, worker_schema)
    assert stored is not None
    assert (stored["attempts"], stored["last_error"]) == (25, "Oh no")


@pytest.mark.parametrize("payload_text", [None, "[2]"], ids=["whole", "remains"])
@pytest.mark.parametrize(
    ("kind", "payload", "is_kept"),
    [
        ("removed", {"a": 1}, False),
        ("removed", [1, 2], False),
        ("replaced", {"a": 1}, False),
        ("replaced", [1, 2], True),
    ],
)
def test_a_cancelled_job_that_is_returned_runs_again_only_if_its_payload_is_nowhere_else(
    claim: Callable[..., Claimed],
    cursor: Any,
    worker_schema: str,
    kind: str,
    payload: Any,
    is_kept: bool,
    payload_text: str | None,
) -> None:
    if payload_text and not isinstance(payload, list):
        pytest.skip("only an array is done in parts")
    job_id = make_job(payload=payload, key="k", attempts=2)
    (claimed,) = claim().claims
    cancel_claimed(job_id, kind)
    if payload_text is None:
        assert releases.return_jobs(cursor, [claimed], schema=worker_schema) == {job_id}
    else:
        ended = [StoppedRun(claimed, payload_text=payload_text)]
        assert releases.return_stopped(cursor, ended, schema=worker_schema) == {job_id}
    stored = row(cursor, job_id, worker_schema)
    assert (stored is not None) == is_kept
    if stored is not None:
        assert (stored["attempts"], stored["key"], stored["is_available"]) == (2, None, True)
        cursor.execute(f'select payload::text from "{worker_schema}"._private_jobs where id = %s', [job_id])
        assert cursor.fetchone() == (payload_text or "[1, 2]",)


def test_a_marker_of_an_earlier_claim_has_no_effect(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    """An operator has made a cancelled job available again: its next claim is not cancelled."""
    job_id = make_job(max_attempts=1)
    claim()
    cancel_claimed(job_id, "removed")
    cursor.execute(f'update "{worker_schema}"._private_jobs set attempts = 0, locked_at = null, locked_by = null')
    (again,) = claim(token=f"{WORKER_ID}/2").claims
    assert releases.return_jobs(cursor, [again], schema=worker_schema) == {job_id}
    stored = row(cursor, job_id, worker_schema)
    assert stored is not None
    assert (stored["attempts"], stored["is_available"]) == (0, True)


def test_a_statement_that_arrives_late_changes_no_later_claim_of_the_same_worker(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    """The job was returned with its attempt and claimed again: the claims differ in their number only."""
    make_job(queue_name="q", payload=[1])
    (first,) = claim().claims
    assert first.queue_id is not None
    releases.return_jobs(cursor, [first], schema=worker_schema)
    releases.release_queues(cursor, [HeldQueue(first.queue_id, first.token)], schema=worker_schema)
    (second,) = claim(token=f"{WORKER_ID}/2").claims
    assert (second.id, second.attempts) == (first.id, first.attempts)
    before = row(cursor, first.id, worker_schema)
    shared: dict[str, Any] = {"schema": worker_schema}
    assert releases.complete_jobs(cursor, [first], **shared) == set()
    assert releases.fail_jobs(cursor, [Failure(claim=first, error="Oh no")], **shared) == {}
    assert releases.return_jobs(cursor, [first], **shared) == set()
    assert releases.return_stopped(cursor, [StoppedRun(first, payload_text="[]")], **shared) == set()
    assert releases.complete_jobs(cursor, [first], is_patient=True, **shared) == set()
    assert releases.release_queues(cursor, [HeldQueue(first.queue_id, first.token)], **shared) == set()
    assert row(cursor, first.id, worker_schema) == before
    assert releases.complete_jobs(cursor, [second], **shared) == {second.id}


@pytest.mark.django_db(transaction=True)
def test_each_free_queue_has_a_notification_of_its_own(
    cursor: Any, worker_schema: str, raw_connection: Callable[..., Any]
) -> None:
    """A worker of graphile-worker wakes one slot for each notification. Every role may listen, so it names no queue."""
    for name in ("q", "r", "s"):
        make_job(queue_name=name)
    hearing = raw_connection()
    hearing.execute('listen "jobs:insert"')
    cursor.execute(f'select id from "{worker_schema}"._private_job_queues')
    queue_ids = [queue_id for (queue_id,) in cursor.fetchall()]
    sender = releases.new_sender()
    assert releases.waiting_queues(cursor, queue_ids, schema=worker_schema, sender=sender) == set(queue_ids)
    payloads = [notice.payload for notice in hearing.notifies(timeout=WAIT_TIMEOUT, stop_after=3)]
    assert all(payload.startswith(sender) for payload in payloads)
    contents = sorted(map(json.loads, payloads), key=itemgetter("number"))
    assert [content | {"r": 0} for content in contents] == [
        {"r": 0, "number": number, "count": 1} for number in (1, 2, 3)
    ]


def test_senders_differ_also_in_projects_that_seed_random() -> None:
    """Otherwise their workers would take each other's notifications for their own."""

    def seeded() -> str:
        random.seed(1)
        return releases.new_sender()

    before = random.getstate()
    try:
        assert seeded() != seeded()
    finally:
        random.setstate(before)


def test_a_queue_is_released_by_its_claim_only(claim: Callable[..., Claimed], cursor: Any, worker_schema: str) -> None:
    make_job(queue_name="q")
    waiting = make_job(queue_name="q")
    (claimed,) = claim(max_per_queue=1).claims
    queue_id, sender = claimed.queue_id or 0, releases.new_sender()

    def release(token: str) -> set[int]:
        return releases.release_queues(cursor, [HeldQueue(queue_id, token)], schema=worker_schema)

    def waits() -> set[int]:
        return releases.waiting_queues(cursor, [queue_id], schema=worker_schema, sender=sender)

    assert (release(OTHER), waits()) == (set(), set())
    assert claim().claims == []
    assert (release(WORKER), waits()) == ({queue_id}, {queue_id})
    assert [each.id for each in claim().claims] == [waiting]


@pytest.mark.django_db(transaction=True)
def test_an_atomic_completion_waits_for_a_row_that_is_locked(
    claimed: Claim, worker_schema: str, raw_connection: Callable[..., Any]
) -> None:
    """The transaction of the task would be rolled back otherwise; a plain completion leaves the row for later."""
    locking, completing = raw_connection(), raw_connection()
    completing.execute("set lock_timeout = '10ms'")
    with locking.transaction(), completing.cursor() as cursor:
        locking.execute(f'select from "{worker_schema}"._private_jobs for update'.encode())
        assert releases.complete_jobs(cursor, [claimed], schema=worker_schema) == set()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            releases.complete_jobs(cursor, [claimed], schema=worker_schema, is_patient=True)
    with completing.cursor() as cursor:
        assert releases.complete_jobs(cursor, [claimed], schema=worker_schema, is_patient=True) == {claimed.id}
