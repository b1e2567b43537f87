"""Recovery, stepped on a real database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import signals
from django_graphile_worker.exceptions import WorkerDiedError
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql import recovery, workers
from django_graphile_worker.sql.install import indexes
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)


def quick(payload: Any) -> None: ...


@pytest.fixture
def runner() -> Iterator[Build]:
    with stepped_workers(quick) as make:
        yield make


def test_frees_what_a_dead_worker_held_and_wakes_the_others(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    listener = raw_connection()
    listener.execute('listen "jobs:insert"')
    dead = f"{workers.WORKER_PREFIX}dead"
    with raw_connection().cursor() as cursor:
        workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
    make_job("quick", queue_name="q", locked_by=dead, attempts=1)
    make_queue("q", locked_by=dead)
    worker = runner()
    worker.recovery.skips_watching = True
    worker.recovery.step()
    job = Job.objects.get()
    assert (job.locked_by, job.attempts, JobQueue.objects.get().locked_by) == (None, 0, None)
    assert [notice.channel for notice in listener.notifies(timeout=WAIT_TIMEOUT, stop_after=1)] == ["jobs:insert"]


def test_reports_a_job_that_killed_its_last_worker(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    dead = f"{workers.WORKER_PREFIX}dead"
    job_id = make_job("quick", locked_by=dead, attempts=1, max_attempts=1, last_error="It died.")
    with raw_connection().cursor() as cursor:
        workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
        cursor.execute(
            f'insert into "{worker_schema}"._private_job_recoveries (job_id, recoveries) values (%s, 2)'.encode(),
            [job_id],
        )
    worker = runner()
    worker.recovery.skips_watching = True
    heard: list[dict[str, Any]] = []

    def hear(**kwargs: Any) -> None:
        heard.append(kwargs)

    signals.job_permanently_failed.connect(hear)
    worker.recovery.step()
    worker.signal_sender.step()
    (told,) = heard
    assert set(signals.job_permanently_failed.arguments) <= told.keys()
    assert (told["worker_id"], told["job"].id, told["job"].locked_by) == (worker.worker_id, job_id, dead)
    assert isinstance(told["error"], WorkerDiedError)
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.getMessage().startswith(f"quick #{job_id} permanently failed after ")
    assert f"WorkerDiedError: The worker {dead} died while it held this job (3 times" in line.getMessage()


def test_reports_a_job_whose_last_attempt_an_unregistered_worker_had(
    runner: Build, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = make_job(
        "quick",
        locked_by="worker-node",
        locked_at=minutes_ago(241),
        attempts=1,
        max_attempts=1,
        updated_at=minutes_ago(300),
    )
    worker = runner()
    worker.recovery.skips_watching = True
    worker.recovery.step()
    worker.signal_sender.step()
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.getMessage().startswith(f"quick #{job_id} permanently failed after 4 h 1 min ")
    assert "WorkerDiedError: The worker worker-node had held this job for 4.0 hours" in line.getMessage()


def test_a_large_fleet__is_looked_at_once_per_timeout(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    """Most of it may be dead, and its last worker the only one that looks."""
    with raw_connection().cursor() as cursor:
        cursor.execute(
            f'''insert into "{worker_schema}"._private_workers (id, last_heartbeat_at)
            select '{workers.WORKER_PREFIX}' || number, now() from generate_series(1, 400) as number'''.encode()
        )
    worker = runner(worker_timeout=60.0)
    pauses = [worker.recovery.step() for _ in range(20)]
    assert max(pauses) <= 60.0
    assert min(pauses) > 15.0


@pytest.fixture
def lost_index(raw_connection: Callable[..., Any], worker_schema: str) -> Iterator[str]:
    """An index that is not there, until the end of the test."""
    index = indexes.wanted_indexes(schema=worker_schema)[0]
    connection = raw_connection()
    connection.execute(f'drop index "{worker_schema}".{index.name}'.encode())
    yield index.name
    connection.execute(index.statement.encode())


def test_reports_once_and_not_at_first_that_an_index_is_missing(
    runner: Build, lost_index: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = runner()
    worker.recovery.skips_watching = True

    def look() -> list[str]:
        caplog.clear()
        worker.recovery.step()
        worker.signal_sender.step()
        return [record.getMessage() for record in caplog.records]

    # Where a run only drains, its first job waits for its only look.
    assert look() == []
    (line,) = look()
    assert f"(missing: {lost_index}; incomplete: none)" in line
    assert 'run "manage.py graphile_worker repair"' in line
    assert look() == []


@pytest.mark.parametrize("hours", [-6, 6])
def test_leases_go_by_the_database_s_clock_whatever_the_worker_s_own_says(
    runner: Build,
    raw_connection: Callable[..., Any],
    worker_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    """Where the settings ask for it, jobs are due by the worker's clock. A lease never is."""
    worker = runner(use_local_time=True)
    own = datetime.now(UTC) + timedelta(hours=hours)
    monkeypatch.setattr(worker, "now", lambda: own)
    living, dead = f"{workers.WORKER_PREFIX}living", f"{workers.WORKER_PREFIX}dead"
    with raw_connection().cursor() as cursor:
        workers.register_worker(cursor, living, {}, schema=worker_schema)
        workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
    worker.recovery.skips_watching = True
    worker.recovery.step()
    rows = raw_connection().execute(f'select id from "{worker_schema}"._private_workers'.encode()).fetchall()
    assert {row[0] for row in rows} == {living, worker.worker_id}


def test_a_worker_with_a_short_timeout_does_not_apply_it_to_others(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    slow, quick = runner(worker_timeout=600), runner(worker_timeout=6, heartbeat_interval=2)
    connection = raw_connection()
    connection.execute(
        f'update "{worker_schema}"._private_workers set last_heartbeat_at = now() - %s where id = %s'.encode(),
        [timedelta(minutes=2), slow.worker_id],
    )
    quick.recovery.skips_watching = True
    quick.recovery.step()
    with connection.cursor() as cursor:
        fleet = recovery.read_fleet(cursor, schema=worker_schema, timeout=6.0)
    assert (fleet.size, fleet.late) == (2, [])
