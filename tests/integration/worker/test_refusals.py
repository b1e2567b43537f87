"""Results that the database will not take, or not so many at once: nobody else waits for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection as django_connection

from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Succeeded
from django_graphile_worker.worker.release.refused import REFUSED_DELAY
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, SteppedRunner, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

OnRow = Callable[[str, str], AbstractContextManager[None]]


def quick(payload: Any) -> None: ...


@pytest.fixture
def runner() -> Iterator[Build]:
    with stepped_workers(quick) as make:
        yield make


@pytest.fixture
def on_row(raw_connection: Callable[..., Any], worker_schema: str) -> OnRow:
    """Something of the site's that happens whenever a job's row is deleted or updated."""

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


def hurried(worker: SteppedRunner, seconds: float) -> SteppedRunner:
    """Let the releaser's statements take so long; those of the others take what the machine needs."""
    ledger: Any = worker.releaser._settlement._ledger
    ledger._database.deadline = seconds
    return worker


def claim(worker: SteppedRunner, count: int, **options: Any) -> list[Claim]:
    """Jobs, made and claimed."""
    for _ in range(count):
        make_job("quick", **options)
    return worker.claimer.claim(max_jobs=count, max_queues=count, max_per_queue=count).claims


def finish(worker: SteppedRunner, claims: list[Claim]) -> None:
    for each in claims:
        worker.releaser.put(Succeeded(each, 0.0))


def later(worker: SteppedRunner) -> None:
    """The time has come for whatever was put off."""
    worker.releaser._refused._clock = lambda: math.inf


@contextmanager
def counted(worker: SteppedRunner) -> Iterator[list[int]]:
    """How many were offered to be completed, statement by statement."""
    ledger: Any = worker.releaser._settlement._ledger
    complete, counts = ledger.complete, []

    def count(ended: list[Claim]) -> set[int]:
        counts.append(len(ended))
        return set(complete(ended))

    ledger.complete = count
    yield counts
    ledger.complete = complete


def left() -> list[int]:
    return sorted(Job.objects.values_list("id", flat=True))


def test_more_than_fits_into_the_deadline__goes_in_parts(runner: Build, on_row: OnRow) -> None:
    """Sixty rows take three seconds here, and a statement may take one."""
    worker = hurried(runner(), 1.0)
    troubles: list[BaseException] = []
    worker.releaser._on_trouble = lambda name, error, delay: troubles.append(error)
    finish(worker, claim(worker, 60))
    with on_row("delete", "perform pg_sleep(0.05);"):
        worker.releaser.step()
    assert left() == []
    assert worker.releaser.in_hand == 0
    assert {type(error) for error in troubles} == {psycopg.errors.QueryCanceled}


def test_portions__grow_again(runner: Build) -> None:
    worker = runner()
    worker.releaser._settlement._offering.portion = 1
    finish(worker, claim(worker, 40))
    worker.releaser.step()
    assert left() == []
    assert worker.releaser._settlement._offering.portion == 64


def test_one_that_cannot_be_completed_in_time__keeps_no_other(runner: Build, on_row: OnRow) -> None:
    worker = hurried(runner(), 1.0)
    claims = claim(worker, 20)
    stubborn = claims[7].id
    with on_row("delete", f"if old.id = {stubborn} then perform pg_sleep(300); end if;"):
        finish(worker, claims)
        delay = worker.releaser.step()
        assert left() == [stubborn]
        assert delay > REFUSED_DELAY / 2
        # What comes meanwhile does not wait until it is that one's turn, nor for each other.
        worker.releaser.forget_wake()
        finish(worker, claim(worker, 3))
        assert worker.releaser.was_woken()
        with counted(worker) as offered:
            worker.releaser.step()
        assert left() == [stubborn]
        assert sum(offered) == 3
        assert worker.releaser.in_hand == 1
    later(worker)
    worker.releaser.step()
    assert left() == []
    assert worker.releaser.in_hand == 0


def test_results__are_written_within_seconds_after_the_table_was_locked(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    worker = hurried(runner(), 0.2)
    refused, now = worker.releaser._refused, 1000.0
    refused._clock = lambda: now
    delays: list[float] = []
    worker.releaser._on_trouble = lambda name, error, delay: delays.append(delay)
    claims = claim(worker, 4)
    locker = raw_connection(autocommit=False)
    locker.execute(f'lock table "{worker_schema}"._private_jobs in access exclusive mode'.encode())
    finish(worker, claims)
    for _ in range(2):
        worker.releaser.step()
        now += REFUSED_DELAY
    assert len(delays) >= 8
    assert max(delays) <= REFUSED_DELAY
    locker.rollback()
    worker.releaser.step()
    assert left() == []
    assert worker.releaser.in_hand == 0


def test_one_that_breaks_the_connection__keeps_no_other(runner: Build, on_row: OnRow) -> None:
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


def test_job_that_cannot_be_given_back__keeps_no_other(runner: Build, on_row: OnRow) -> None:
    worker = runner()
    claims = claim(worker, 5)
    stubborn = claims[2].id
    refuse = f"if new.id = {stubborn} and new.locked_by is null then raise exception 'not this one'; end if;"
    with on_row("update", refuse):
        worker.releaser.put_back([Interrupted(each, 0.0) for each in claims], [])
        worker.releaser.step()
        assert [job.id for job in Job.objects.filter(locked_by=worker.worker_id)] == [stubborn]
        assert worker.may_claim()
    later(worker)
    worker.releaser.step()
    assert not Job.objects.exclude(locked_by=None).exists()


def test_remains_that_cannot_be_stored__go_back_whole_and_keep_no_other(runner: Build) -> None:
    worker = runner()
    whole, partly_done, unstorable = claim(worker, 3)
    worker.releaser.put_back(
        [Interrupted(whole, 0.0), Interrupted(partly_done, 0.0, "[2]"), Interrupted(unstorable, 0.0, "[not JSON")], []
    )
    worker.releaser.step()
    assert not Job.objects.exclude(locked_by=None).exists()
    assert set(Job.objects.values_list("attempts", flat=True)) == {0}
    assert dict(Job.objects.values_list("id", "payload"))[partly_done.id] == [2]


def test_connection_that_breaks_between_two_portions__loses_neither(runner: Build) -> None:
    worker = runner()
    ledger: Any = worker.releaser._settlement._ledger
    give_back, answers = ledger.give_back, iter([True, False, True])

    def give_back_or_break(ended: list[Claim]) -> set[int]:
        if not next(answers):
            raise psycopg.OperationalError("the connection broke")
        return set(give_back(ended))

    ledger.give_back = give_back_or_break
    worker.releaser._settlement._offering.portion = 1
    worker.releaser.put_back([Interrupted(each, 0.0) for each in claim(worker, 2)], [])
    worker.releaser.attempt()
    worker.releaser.attempt()
    assert not Job.objects.exclude(locked_by=None).exists()
    assert worker.releaser.in_hand == 0


def test_queue__is_let_go_only_with_the_last_of_its_jobs(runner: Build, on_row: OnRow) -> None:
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
    assert worker.releaser.in_hand == 0


def test_shutdown__offers_again_soon_what_was_refused(runner: Build, on_row: OnRow) -> None:
    worker = hurried(runner(), 1.0)
    (job,) = claim(worker, 1)
    finish(worker, [job])
    with on_row("delete", "perform pg_sleep(300);"):
        worker.releaser.step()
        for hand in worker.releaser._refused:
            hand.offer_at += 60
        worker.releaser.hurry()
        assert worker.releaser._refused.until_next() <= REFUSED_DELAY
        assert worker.releaser.was_woken()


@pytest.mark.parametrize("limit", ["statement_timeout", "transaction_timeout"])
def test_time_limits_of_a_database__do_not_apply_to_the_machinery(
    runner: Build, raw_connection: Callable[..., Any], limit: str
) -> None:
    owner = raw_connection()
    if owner.info.server_version < 170000 and limit == "transaction_timeout":
        pytest.skip("needs PostgreSQL 17")
    name = django_connection.settings_dict["NAME"]
    database = Database("default", runner(statement_timeout=45.0, worker_timeout=90.0).settings, part="test")
    owner.execute(f'alter database "{name}" set {limit} = 50'.encode())
    try:
        with database.cursor() as cursor:
            cursor.execute("select pg_sleep(0.2)")
            assert cursor.execute("show statement_timeout").fetchone() == ("45s",)
    finally:
        owner.execute(f'alter database "{name}" reset {limit}'.encode())
        database.close()
