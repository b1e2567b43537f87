"""Claims that go on where the last one ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_graphile_worker.sql import releases
from django_graphile_worker.sql.claims import Claim, Claimed, Continuation
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.fetching.scan import END, MIN_REST
from tests.support.factories import make_job, make_queue, make_task, minutes_ago
from tests.support.stepped_worker import Build, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Connect = Callable[..., psycopg.Connection[Any]]
Wait = Callable[..., None]


def test_resumes_behind_the_last_job_without_a_queue(runner: Build) -> None:
    """Where the claimed jobs of a queue end says nothing of the jobs without one."""
    worker = runner()
    queued = [make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 20)]
    plain = [make_job("quick", run_at=minutes_ago(minute)) for minute in (50, 40, 30)]
    other = make_job("quick", flags={"f": True}, run_at=minutes_ago(30))
    claimed = worker.claimer.claim(max_jobs=3, max_per_queue=3)
    assert [claim.id for claim in claimed.claims] == [queued[0], *plain[:2]]
    assert claimed.has_more
    claimed = worker.claimer.claim(max_jobs=4, max_per_queue=3)
    assert [claim.id for claim in claimed.claims] == [plain[2], other]


def test_jobs_before_the_place_of_resumption_are_not_forgotten(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    for number in range(20):
        make_job("quick", {"n": number})
    worker = runner(concurrency=5)
    worker.fetcher.step()
    make_job("quick", {"n": 99}, run_at=minutes_ago(60))
    wait_until(lambda: worker.pool.is_idle)
    run_all(worker, wait_until)
    assert sorted(ran) == [*range(20), 99]


def test_next_job_of_a_queue_that_was_released_is_claimed_wherever_it_stands(runner: Build) -> None:
    worker = runner()
    first, second = (make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 50))
    (claim,) = worker.claimer.claim(max_jobs=10, max_per_queue=1).claims
    assert (claim.id, claim.queue_id) == (first, make_queue("q"))
    rest_from_the_start(worker)
    release(worker, claim)
    assert worker.claimer.claim(max_jobs=10, max_per_queue=1).claims == [], "it stands before the place"
    worker.claimer.note_freed_queues({make_queue("q")})
    assert [claim.id for claim in worker.claimer.claim(max_jobs=10, max_per_queue=1).claims] == [second]


def test_released_queue_is_not_forgotten_by_a_claim_that_is_full(runner: Build) -> None:
    worker = runner()
    rest_from_the_start(worker)
    queued = make_job("quick", queue_name="q", run_at=minutes_ago(30))
    others = [make_job("quick", priority=-1) for _ in range(3)]
    worker.claimer.note_freed_queues({make_queue("q")})
    found = [claim.id for _ in range(3) for claim in worker.claimer.claim(max_jobs=1, max_per_queue=1).claims]
    assert found == others
    assert claim_the_rest(worker) == [queued]


def test_released_queue_whose_row_is_locked_is_tried_again_soon(runner: Build, raw_connection: Connect) -> None:
    worker = runner()
    rest_from_the_start(worker)
    queued = make_job("quick", queue_name="q", run_at=minutes_ago(30))
    worker.claimer.note_freed_queues({make_queue("q")})
    with raw_connection(autocommit=False) as other:
        other.execute(f'select from "{worker.settings.schema}"._private_job_queues for update'.encode())
        claimed = worker.claimer.claim(max_jobs=10, max_per_queue=1)
        assert claimed.seconds_until_next == pytest.approx(MIN_REST)
        assert claimed.claims == []
        assert not claimed.has_more
    assert claim_the_rest(worker) == [queued]


def test_job_that_comes_in_during_a_pass_of_several_claims_is_looked_for_soon(runner: Build) -> None:
    """Its notification has called for a claim, which went on behind it."""
    worker = runner()
    make_job("quick", queue_name="q", run_at=minutes_ago(60))
    hold_queues(worker, 3000, run_at=minutes_ago(90))
    assert worker.claimer.claim(max_jobs=10, max_per_queue=1).is_cut
    late = make_job("quick", run_at=minutes_ago(30))
    assert claim_the_rest(worker) == []
    until_next = worker.claimer.scan.until_next_pass(time.monotonic())
    assert until_next is not None
    worker.claimer.scan.begin_again()
    assert claim_the_rest(worker) == [late]


def hold_queues(worker: DatabaseWorker, number: int, *, run_at: datetime) -> None:
    """Add queues that another worker holds, with a job in each."""
    schema, task_id = worker.settings.schema, make_task("quick")
    with connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{schema}"._private_job_queues (queue_name, locked_at, locked_by)'
            " select 'held' || n, now(), 'other' from generate_series(1, %s) as n",
            [number],
        )
        cursor.execute(
            f'insert into "{schema}"._private_jobs (task_id, job_queue_id, run_at) select %s, queue.id, %s'
            f" from \"{schema}\"._private_job_queues as queue where queue.locked_by = 'other'",
            [task_id, run_at],
        )


def claim_the_rest(worker: DatabaseWorker) -> list[int]:
    """Claim as long as the claims say that there is more; return the ids of the jobs."""
    found: list[int] = []
    for _ in range(50):
        claimed = worker.claimer.claim(max_jobs=10, max_per_queue=1)
        found += [claim.id for claim in claimed.claims]
        if not claimed.has_more:
            return found
    raise AssertionError("there is always more")


def release(worker: DatabaseWorker, claim: Claim) -> None:
    """End a claim, and release its queue."""
    with connection.cursor() as cursor:
        releases.complete_jobs(cursor, [claim], schema=worker.settings.schema)
        queue = HeldQueue(make_queue("q"), claim.token)
        assert releases.release_queues(cursor, [queue], schema=worker.settings.schema) == {queue.id}


def rest_from_the_start(worker: DatabaseWorker, *, has_more: bool = False) -> None:
    """Have the next claims look at what is new: passes through the backlog take long."""
    scan = worker.claimer.scan
    terms = (tuple(worker.directory.ids), frozenset[str]())
    slow = Claimed(
        claims=[],
        seconds_until_next=None,
        has_more=has_more,
        continuation=Continuation(queue=0, seen_priority=0 if has_more else END, seen_until=minutes_ago(1).isoformat()),
        seconds=1.0,
    )
    for _ in range(2):
        scan.begin_again()
        scan.behind(time.monotonic(), terms)
        scan.note(slow, ended=time.monotonic())
