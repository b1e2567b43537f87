"""Recovery: which workers are dead, and what becomes of their jobs and queues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_graphile_worker.sql import claims, recovery, workers
from django_graphile_worker.sql.claims import Claimed
from tests.support.factories import cancel_claimed, make_job, make_task, minutes_ago

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
def dead(cursor: Any, worker_schema: str) -> str:
    long_ago = datetime.now(UTC) - timedelta(minutes=10)
    workers.register_worker(cursor, WORKER_ID, {}, schema=worker_schema, now=long_ago)
    return WORKER_ID


def recover(cursor: Any, schema: str) -> recovery.Recovered:
    return recovery.recover(cursor, schema=schema, timeout=60.0)


def test_frees_jobs_and_queues_of_a_silent_worker(
    dead: str, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    make_job(queue_name="q")
    (claimed,) = claim().claims
    recovered = recover(cursor, worker_schema)
    assert recovered.dead_worker_ids == (dead,)
    assert recovered.job_ids == (claimed.id,)
    assert recovered.queue_ids == (claimed.queue_id,)
    stored = row(cursor, claimed.id, worker_schema)
    assert stored is not None
    assert (stored["attempts"], stored["locked_by"]) == (0, None)
    assert recover(cursor, worker_schema).dead_worker_ids == ()


def test_finds_a_claim_that_committed_after_its_worker_was_removed(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    make_job()
    (claimed,) = claim(now=minutes_ago(-5)).claims or claim(now=minutes_ago(0)).claims
    cursor.execute(f"""update "{worker_schema}"._private_jobs set locked_at = now() - interval '2 minutes'""")
    assert recover(cursor, worker_schema).job_ids == (claimed.id,)


def test_releases_jobs_of_unregistered_workers_after_four_hours(cursor: Any, worker_schema: str) -> None:
    young = make_job(locked_by="pool-1", locked_at=minutes_ago(239), attempts=1)
    old = make_job(locked_by="pool-1", locked_at=minutes_ago(241), attempts=1)
    assert recover(cursor, worker_schema).job_ids == ()
    assert recovery.release_stale_locks(cursor, schema=worker_schema) == recovery.Unlocked(jobs=1, queues=0)
    stored = row(cursor, old, worker_schema)
    kept = row(cursor, young, worker_schema)
    assert stored is not None
    assert kept is not None
    assert (stored["locked_by"], stored["attempts"]) == (None, 1)
    error = stored["last_error"].removeprefix("django_graphile_worker.exceptions.WorkerDiedError: ")
    assert error == "The worker pool-1 had held this job for 4.0 hours and was taken for dead."
    assert kept["locked_by"] == "pool-1"


def test_returns_the_jobs_of_unregistered_workers_that_have_no_attempt_left(cursor: Any, worker_schema: str) -> None:
    held: dict[str, Any] = {"locked_by": "pool-1", "locked_at": minutes_ago(300), "attempts": 2}
    more, last = make_job(max_attempts=3, **held), make_job("doomed", max_attempts=2, **held)
    unlocked = recovery.release_stale_locks(cursor, schema=worker_schema)
    assert (unlocked.jobs, unlocked.queues) == (2, 0)
    (exhausted,) = unlocked.exhausted
    job, seconds = exhausted.job, exhausted.seconds
    assert (job.id, job.task_identifier, job.locked_by) == (last, "doomed", "pool-1")
    assert 5 * 3600 <= seconds < 5 * 3600 + 60
    assert "pool-1 had held this job for 5.0 hours" in str(job.last_error)
    stored = [row(cursor, job_id, worker_schema) or {} for job_id in (more, last)]
    assert [(each["locked_by"], each["is_available"]) for each in stored] == [(None, True), (None, False)]


def test_the_third_death_costs_the_attempt(cursor: Any, worker_schema: str) -> None:
    job_id = make_job()
    attempts = []
    for number in range(4):
        holder = f"{workers.WORKER_PREFIX}{number}"
        workers.register_worker(cursor, holder, {}, schema=worker_schema, now=minutes_ago(10))
        cursor.execute(
            f"""update "{worker_schema}"._private_jobs
            set locked_by = %s, locked_at = now(), attempts = attempts + 1""",
            [holder],
        )
        recover(cursor, worker_schema)
        stored = row(cursor, job_id, worker_schema)
        assert stored is not None
        attempts.append(stored["attempts"])
    assert attempts == [0, 0, 1, 2]


def test_returns_the_jobs_that_have_no_attempt_left(cursor: Any, worker_schema: str) -> None:
    last = make_job("doomed", max_attempts=1, payload={"a": 1}, queue_name="q")
    more = make_job(max_attempts=2)
    told = []
    for number in range(3):
        holder = f"{workers.WORKER_PREFIX}{number}"
        workers.register_worker(cursor, holder, {}, schema=worker_schema, now=minutes_ago(10))
        cursor.execute(
            f"""update "{worker_schema}"._private_jobs
            set locked_by = %s, locked_at = now() - interval '90 seconds', attempts = attempts + 1,
                updated_at = now() - interval '90 seconds'""",
            [holder],
        )
        recovered = recover(cursor, worker_schema)
        assert set(recovered.job_ids) == {last, more}
        told.append(recovered.exhausted)
    first, second, (exhausted,) = told
    assert (first, second) == ((), ())
    job, seconds = exhausted.job, exhausted.seconds
    assert (job.id, job.task_identifier, job.queue_name, job.payload) == (last, "doomed", "q", {"a": 1})
    assert (job.attempts, job.max_attempts, job.locked_by) == (1, 1, holder)
    assert job.locked_at is not None
    assert 90 <= seconds < 100
    assert "3 times" in str(job.last_error)


CANCELLED = pytest.mark.parametrize(
    ("kind", "payload", "is_kept"),
    [
        ("removed", {"a": 1}, False),
        ("removed", [1, 2], False),
        ("replaced", {"a": 1}, False),
        ("replaced", [1, 2], True),
    ],
)


@CANCELLED
def test_a_cancelled_job_of_a_dead_worker_runs_again_only_if_its_payload_is_nowhere_else(
    dead: str, claim: Callable[..., Claimed], cursor: Any, worker_schema: str, kind: str, payload: Any, is_kept: bool
) -> None:
    job_id = make_job(key="k", payload=payload, max_attempts=1)
    claim()
    cancel_claimed(job_id, kind)
    recovered = recover(cursor, worker_schema)
    assert (recovered.job_ids, recovered.exhausted) == ((job_id,), ())
    stored = row(cursor, job_id, worker_schema)
    assert (stored is not None) == is_kept
    if stored is not None:
        assert (stored["attempts"], stored["key"], stored["is_available"]) == (0, None, True)


@CANCELLED
def test_a_cancelled_job_of_an_unregistered_worker_runs_again_only_if_its_payload_is_nowhere_else(
    cursor: Any, worker_schema: str, kind: str, payload: Any, is_kept: bool
) -> None:
    held: dict[str, Any] = {"locked_by": "pool-1", "locked_at": minutes_ago(300), "attempts": 1}
    job_id = make_job(key="k", payload=payload, max_attempts=1, **held)
    cancel_claimed(job_id, kind)
    assert recovery.release_stale_locks(cursor, schema=worker_schema) == recovery.Unlocked(jobs=1, queues=0)
    stored = row(cursor, job_id, worker_schema)
    assert (stored is not None) == is_kept
    if stored is not None:
        assert (stored["attempts"], stored["is_available"]) == (0, True)


def test_a_marker_that_is_older_than_an_unregistered_workers_lock_has_no_effect(
    cursor: Any, worker_schema: str
) -> None:
    """The name of a worker of Node.js is the same in every claim it makes."""
    job_id = make_job(locked_by="pool-1", locked_at=minutes_ago(300), attempts=1)
    cancel_claimed(job_id, "removed")
    cursor.execute(f"""update "{worker_schema}"._private_cancellations set cancelled_at = now() - interval '6 hours'""")
    recovery.release_stale_locks(cursor, schema=worker_schema)
    assert row(cursor, job_id, worker_schema) is not None


def test_deaths_belong_to_the_job_and_not_to_its_row(
    dead: str, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    """A job that is replaced under its key is another job, though it has the same row."""
    job_id = make_job(key="k", max_attempts=1)
    cursor.execute(
        f'insert into "{worker_schema}"._private_job_recoveries (job_id, recoveries) values (%s, 7)', [job_id]
    )
    claim()
    recover(cursor, worker_schema)
    stored = row(cursor, job_id, worker_schema)
    assert stored is not None
    assert (stored["attempts"], stored["is_available"]) == (0, True)
    assert "the first time" in stored["last_error"]
    cursor.execute(f'select recoveries from "{worker_schema}"._private_job_recoveries')
    assert cursor.fetchone() == (1,)


def test_a_queue_is_released_only_with_the_last_of_its_jobs(
    dead: str, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    """Otherwise a job that is released already would start before a job that comes first."""
    job_ids = [make_job(queue_name="q", run_at=minutes_ago(minutes)) for minutes in (1, 1, 1, 9)]
    claim()
    freed: list[int] = []
    for _ in range(3):
        recovered = recovery.recover_claims(cursor, [dead], schema=worker_schema, limit=1)
        freed += recovered.job_ids
        assert (recovered.queue_ids, recovered.is_partial) == ((), True)
        assert claim(token=OTHER).claims == []
    recovered = recovery.recover_claims(cursor, [dead], schema=worker_schema, limit=2)
    assert len(recovered.queue_ids) == 1
    assert {*freed, *recovered.job_ids} == set(job_ids)
    assert [each.id for each in claim(token=OTHER).claims] == [job_ids[3], *job_ids[:3]]


def test_a_worker_has_the_timeout_of_its_own_row(cursor: Any, worker_schema: str) -> None:
    def register(name: str, silent_minutes: float, **promise: float) -> None:
        now = minutes_ago(silent_minutes)
        workers.register_worker(cursor, f"django-worker-{name}", {}, schema=worker_schema, now=now, **promise)

    register("slow", 2, timeout=600.0, heartbeat=60.0)
    register("quick", 0.1, timeout=5.0, heartbeat=1.0)
    # Those of graphile_worker for Rust state no timeout: they have the five minutes that they give each other.
    register("rust", 4.9)
    register("dead-rust", 5.1)
    assert set(recover(cursor, worker_schema).dead_worker_ids) == {"django-worker-quick", "django-worker-dead-rust"}
    register("rust-of-patient-settings", 9)
    assert recovery.recover(cursor, schema=worker_schema, timeout=600.0).dead_worker_ids == ()


def test_a_worker_that_has_beaten_since_it_was_found_silent_is_left_alone(
    dead: str, cursor: Any, worker_schema: str
) -> None:
    late = recovery.read_fleet(cursor, schema=worker_schema, timeout=60.0).late
    assert [worker.id for worker in late] == [dead]
    workers.beat(cursor, dead, {}, schema=worker_schema)
    assert recovery.remove_dead_workers(cursor, late, schema=worker_schema) == []


def test_a_look_reads_some_locks_and_the_next_goes_on_behind_them(cursor: Any, worker_schema: str) -> None:
    workers.register_worker(cursor, WORKER_ID, {}, schema=worker_schema)
    cursor.execute(
        f"""insert into "{worker_schema}"._private_jobs (task_id, locked_by, locked_at)
        select %s, '{WORKER}', now() - interval '2 hours' + number * interval '1 second'
        from generate_series(1, 2500) as number""",
        [make_task("task")],
    )
    orphan = make_job(locked_by="django-worker-orphan/1", locked_at=minutes_ago(2))
    looks = 0
    fleet = recovery.read_fleet(cursor, schema=worker_schema, timeout=60.0)
    while not fleet.orphans:
        assert fleet.reached is not None
        fleet = recovery.read_fleet(cursor, schema=worker_schema, timeout=60.0, go_on_at=fleet.reached)
        looks += 1
    assert (looks, fleet.orphans, fleet.reached) == (2, ["django-worker-orphan"], None)
    assert recover(cursor, worker_schema).job_ids == (orphan,)


def test_a_lock_since_ever_is_recovered_with_the_others(
    versioned_connection: psycopg.Connection[Any], worker_schema: str
) -> None:
    """Any program can write the column, and before PostgreSQL 17 an infinite time has no difference to another."""
    insert = f'''insert into "{worker_schema}"._private_jobs (task_id, locked_by, locked_at, attempts, max_attempts)
        values (1, %s, %s, 1, 1) returning id'''

    def locked(by: str) -> set[int]:
        times = ("-infinity", "epoch")
        rows = [versioned_connection.execute(insert.encode(), [by, since]).fetchone() for since in times]
        return {row[0] for row in rows if row is not None}

    versioned_connection.execute(
        f'''insert into "{worker_schema}"._private_tasks (id, identifier) overriding system value
        values (1, 'since_ever') on conflict do nothing'''.encode()
    )
    orphans, stale = locked("django-worker-orphan/1"), locked("worker-of-node")
    cursor = versioned_connection.cursor()
    assert set(recover(cursor, worker_schema).job_ids) == orphans
    released = recovery.release_stale_locks(cursor, schema=worker_schema)
    assert {each.job.id for each in released.exhausted} == stale
    assert recover(cursor, worker_schema) == recovery.Recovered()


def test_markers_and_deaths_of_what_has_ended_are_forgotten(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    ended, running = make_job(), make_job()
    claim()
    for job_id in (ended, running):
        cancel_claimed(job_id, "removed")
        cursor.execute(f'insert into "{worker_schema}"._private_job_recoveries (job_id) values (%s)', [job_id])
    cursor.execute(f'delete from "{worker_schema}"._private_jobs where id = %s', [ended])
    recovery.forget_ended(cursor, schema=worker_schema)
    for table in ("_private_cancellations", "_private_job_recoveries"):
        cursor.execute(f'select job_id from "{worker_schema}".{table}')
        assert cursor.fetchall() == [(running,)]


def test_a_long_job_is_never_stale_while_its_worker_lives(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str
) -> None:
    workers.register_worker(cursor, WORKER_ID, {}, schema=worker_schema)
    job_id = make_job(key="k")
    claim()
    cursor.execute(
        f"""update "{worker_schema}"._private_jobs set locked_at = now() - interval '5 hours',
        updated_at = now() - interval '6 hours'"""
    )
    workers.renew_claims(cursor, WORKER_ID, schema=worker_schema)
    stored = row(cursor, job_id, worker_schema)
    assert stored is not None
    assert stored["locked_at"] > minutes_ago(1)
    assert stored["updated_at"] < stored["locked_at"]


def test_renewing_spares_the_given_jobs(claim: Callable[..., Claimed], cursor: Any, worker_schema: str) -> None:
    """The row of an atomic task must not change: at REPEATABLE READ its transaction could not delete it any more."""
    atomic, other = make_job(), make_job()
    claim()
    cursor.execute(f"""update "{worker_schema}"._private_jobs set locked_at = now() - interval '5 hours'""")
    workers.renew_claims(cursor, WORKER_ID, schema=worker_schema, spared=[atomic])
    cursor.execute(f'select id from "{worker_schema}"._private_jobs where locked_at = now()')
    assert cursor.fetchall() == [(other,)]


@pytest.mark.django_db(transaction=True)
def test_renewing_waits_for_no_transaction_of_the_site(
    claim: Callable[..., Claimed], cursor: Any, worker_schema: str, raw_connection: Callable[..., Any]
) -> None:
    busy, other = make_job(), make_job()
    claim()
    cursor.execute(f"""update "{worker_schema}"._private_jobs set locked_at = now() - interval '5 hours'""")
    site = raw_connection(autocommit=False)
    site.execute(f'select from "{worker_schema}"._private_jobs where id = {busy} for update'.encode())
    cursor.execute("set lock_timeout = '10s'")
    workers.renew_claims(cursor, WORKER_ID, schema=worker_schema)
    cursor.execute(f"""select id from "{worker_schema}"._private_jobs where locked_at > now() - interval '1 hour'""")
    assert cursor.fetchall() == [(other,)]
    site.rollback()
