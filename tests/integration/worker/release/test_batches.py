"""Results that the database rejects, or not so many at once: no other result waits for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest

from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Succeeded
from django_graphile_worker.worker.release.batches import REJECTED_DELAY
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

OnRow = Callable[[str, str], AbstractContextManager[None]]


def quick(payload: Any) -> None: ...


@pytest.fixture
def runner() -> Iterator[Build]:
    with stepped_workers(quick) as make:
        yield make


@pytest.fixture
def on_row(raw_connection: Callable[..., Any], worker_schema: str) -> OnRow:
    """A trigger of the site, which runs whenever a job's row is deleted or updated."""

    @contextmanager
    def install(event: str, body: str) -> Iterator[None]:
        connection = raw_connection()
        connection.execute(
            f"""create function "{worker_schema}".meddle() returns trigger language plpgsql as $$
            begin {body} return case tg_op when 'DELETE' then old else new end; end $$;
            create trigger meddle before {event} on "{worker_schema}"._private_jobs
            for each row execute function "{worker_schema}".meddle()""".encode()
        )
        try:
            yield
        finally:
            connection.execute(f'drop function if exists "{worker_schema}".meddle() cascade'.encode())

    return install


def hurried(worker: DatabaseWorker, seconds: float) -> DatabaseWorker:
    """Limit the time of the releaser's statements, and of no others."""
    statements: Any = worker.releaser._batcher._statements
    statements._database.deadline = seconds
    return worker


def claim(worker: DatabaseWorker, count: int, **options: Any) -> list[Claim]:
    """Jobs, made and claimed."""
    for _ in range(count):
        make_job("quick", **options)
    return worker.claimer.claim(max_jobs=count, max_per_queue=count).claims


def finish(worker: DatabaseWorker, claims: list[Claim]) -> None:
    for each in claims:
        worker.releaser.put(Succeeded(each, 0.0))


def later(worker: DatabaseWorker) -> None:
    """Let the delays of all rejected results be over."""
    worker.releaser._rejected._clock = lambda: math.inf


@contextmanager
def counted(worker: DatabaseWorker) -> Iterator[list[int]]:
    """Yield the number of jobs in each statement that completes jobs."""
    statements: Any = worker.releaser._batcher._statements
    complete, counts = statements.complete, []

    def count(ended: list[Succeeded]) -> set[int]:
        counts.append(len(ended))
        return set(complete(ended))

    statements.complete = count
    yield counts
    statements.complete = complete


def left() -> list[int]:
    return sorted(Job.objects.values_list("id", flat=True))


def test_more_than_fits_into_the_deadline__goes_in_parts(
    runner: Build, on_row: OnRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen rows take 1.6 seconds here, and a statement may take one."""
    worker = hurried(runner(), 1.0)
    troubles: list[BaseException] = []
    monkeypatch.setattr(worker.reports, "database_trouble", lambda name, error, delay: troubles.append(error))
    finish(worker, claim(worker, 16))
    with on_row("delete", "perform pg_sleep(0.1);"):
        worker.releaser.step()
    assert left() == []
    assert worker.releaser.pending_count == 0
    assert {type(error) for error in troubles} == {psycopg.errors.QueryCanceled}


def test_result_that_cannot_be_stored_in_time__delays_no_other(runner: Build, on_row: OnRow) -> None:
    worker = hurried(runner(), 1.0)
    claims = claim(worker, 8)
    stubborn = claims[3].id
    with on_row("delete", f"if old.id = {stubborn} then perform pg_sleep(300); end if;"):
        finish(worker, claims)
        delay = worker.releaser.step()
        assert left() == [stubborn]
        assert delay > REJECTED_DELAY / 2
        # Later results wait neither for the rejected one nor for each other.
        worker.releaser.forget_wake()
        finish(worker, claim(worker, 3))
        assert worker.releaser.was_woken()
        with counted(worker) as offered:
            worker.releaser.step()
        assert left() == [stubborn]
        assert sum(offered) == 3
        assert worker.releaser.pending_count == 1
    later(worker)
    worker.releaser.step()
    assert left() == []
    assert worker.releaser.pending_count == 0


def test_results__are_written_within_seconds_after_the_table_was_locked(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = hurried(runner(), 0.2)
    rejected, now = worker.releaser._rejected, 1000.0
    rejected._clock = lambda: now
    delays: list[float] = []
    monkeypatch.setattr(worker.reports, "database_trouble", lambda name, error, delay: delays.append(delay))
    claims = claim(worker, 4)
    locker = raw_connection(autocommit=False)
    locker.execute(f'lock table "{worker_schema}"._private_jobs in access exclusive mode'.encode())
    finish(worker, claims)
    for _ in range(2):
        worker.releaser.step()
        now += REJECTED_DELAY
    assert len(delays) >= 8
    assert max(delays) <= REJECTED_DELAY
    locker.rollback()
    hurried(worker, 30.0)
    worker.releaser.step()
    assert left() == []
    assert worker.releaser.pending_count == 0


def test_result_that_breaks_the_connection__delays_no_other(runner: Build, on_row: OnRow) -> None:
    worker = runner()
    claims = claim(worker, 20)
    deadly = claims[0].id
    finish(worker, claims)
    with on_row("delete", f"if old.id = {deadly} then perform pg_terminate_backend(pg_backend_pid()); end if;"):
        for _ in range(8):
            worker.releaser.attempt()
        assert left() == [deadly]
    worker.releaser.step()
    assert left() == []


def test_job_that_cannot_be_returned__delays_no_other(runner: Build, on_row: OnRow) -> None:
    worker = runner()
    claims = claim(worker, 5)
    stubborn = claims[2].id
    refuse = f"if new.id = {stubborn} and new.locked_by is null then raise exception 'not this one'; end if;"
    with on_row("update", refuse):
        worker.releaser.return_jobs([Interrupted(each, 0.0) for each in claims], [])
        worker.releaser.step()
        assert [job.id for job in Job.objects.filter(locked_by=worker.worker_id)] == [stubborn]
        assert worker.may_claim()
    later(worker)
    worker.releaser.step()
    assert not Job.objects.exclude(locked_by=None).exists()


def test_remaining_items_that_cannot_be_stored__are_returned_whole_and_delay_no_other(runner: Build) -> None:
    worker = runner()
    whole, partly_done, unstorable = claim(worker, 3)
    worker.releaser.return_jobs(
        [Interrupted(whole, 0.0), Interrupted(partly_done, 0.0, "[2]"), Interrupted(unstorable, 0.0, "[not JSON")], []
    )
    worker.releaser.step()
    assert not Job.objects.exclude(locked_by=None).exists()
    assert set(Job.objects.values_list("attempts", flat=True)) == {0}
    assert dict(Job.objects.values_list("id", "payload"))[partly_done.id] == [2]


def test_connection_that_breaks_between_two_batches__loses_neither(runner: Build) -> None:
    worker = runner()
    statements: Any = worker.releaser._batcher._statements
    return_jobs, answers = statements.return_jobs, iter([True, False, True])

    def return_or_break(ended: list[Interrupted]) -> set[int]:
        if not next(answers):
            raise psycopg.OperationalError("the connection broke")
        return set(return_jobs(ended))

    statements.return_jobs = return_or_break
    worker.releaser._batcher.batch_size = 1
    worker.releaser.return_jobs([Interrupted(each, 0.0) for each in claim(worker, 2)], [])
    worker.releaser.attempt()
    worker.releaser.attempt()
    assert not Job.objects.exclude(locked_by=None).exists()
    assert worker.releaser.pending_count == 0


def test_queue__is_released_only_with_the_last_of_its_jobs(runner: Build, on_row: OnRow) -> None:
    worker = runner()
    claims = claim(worker, 3, queue_name="q")
    refuse = f"if new.id = {claims[1].id} and new.last_error is not null then raise exception 'not this one'; end if;"
    with on_row("update", refuse):
        for each in claims:
            worker.releaser.put(Failed(each, 0.0, "no luck"))
        assert claims[0].queue_id is not None
        worker.releaser.put(HeldQueue(claims[0].queue_id, claims[0].token))
        assert worker.releaser.step() > 1
        assert JobQueue.objects.get().locked_by == worker.worker_id
    later(worker)
    worker.releaser.step()
    assert JobQueue.objects.get().locked_by is None
    assert worker.releaser.pending_count == 0


def test_shutdown__sends_rejected_results_again_soon(runner: Build, on_row: OnRow) -> None:
    worker = hurried(runner(), 0.2)
    (job,) = claim(worker, 1)
    finish(worker, [job])
    with on_row("delete", "perform pg_sleep(300);"):
        worker.releaser.step()
        for pending in worker.releaser._rejected.all:
            pending.retry_at += 60
        worker.releaser.hurry()
        assert worker.releaser._rejected.until_next() <= REJECTED_DELAY
        assert worker.releaser.was_woken()
