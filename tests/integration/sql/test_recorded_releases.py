"""The statements that end claims and record them, on each supported version of PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker.sql import recovery, releases, results
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import CompletedJobs, Failure, KeptResults, StoppedRun
from django_graphile_worker.sql.results import ResultKeeping
from tests.conftest import RawConnection
from tests.support.buffers import MeasuringCursor
from tests.support.slot import make_claim

WORKER = "django-worker-1"
ROWS_A_DAY = 20_000
KEEPING = ResultKeeping(seconds={}, default=60.0, has_history=True)


class Queue:
    """A worker schema with claimed jobs."""

    def __init__(self, connection: RawConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        (self.task_id,) = self.query("insert into {schema}._private_tasks (identifier) values ('t') returning id")[0]

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(text.replace("{schema}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def claim(self, number: int, count: int = 1, *, max_attempts: int = 25) -> list[Claim]:
        """Insert jobs that the worker has claimed with the claim statement of this number."""
        token = f"{WORKER}/{number}"
        rows = self.query(
            "insert into {schema}._private_jobs (task_id, attempts, max_attempts, locked_by, locked_at)"
            " select %s, 1, %s, %s, now() from generate_series(1, %s) returning id",
            self.task_id,
            max_attempts,
            token,
            count,
        )
        return [make_claim(id=row[0], task_id=self.task_id, token=token) for row in rows]

    def complete(self, claims: list[Claim], kept: KeptResults | None = None) -> set[int]:
        completed = CompletedJobs(
            claims=claims,
            durations=[5] * len(claims),
            identifiers={self.task_id: "t"},
            has_history=True,
            results=kept,
        )
        with self.connection.cursor() as cursor:
            return releases.complete_recorded(cursor, completed, schema=self.schema)


@pytest.fixture
def queue(shared_connection: RawConnection, worker_schema: str) -> Queue:
    return Queue(shared_connection, worker_schema)


def test_statements__end_what_is_claimed_and_record_it(queue: Queue) -> None:
    with queue.connection.cursor() as cursor:
        assert results.make_history_partitions(cursor, schema=queue.schema) == 3
    check_completions(queue)
    check_failures(queue)
    check_returned_and_recovered(queue)
    queue.query("update {schema}._private_results set expires_at = now()")
    queue.query("delete from {schema}._private_jobs")
    with queue.connection.cursor() as cursor:
        while results.prune_results(cursor, schema=queue.schema, most=3).reached is not None:
            pass
    assert queue.query("select count(*) from {schema}._private_results") == [(0,)]


def check_completions(queue: Queue) -> None:
    first, second = queue.claim(1, 3), queue.claim(2, 2)
    queue.query("update {schema}._private_jobs set locked_by = 'another' where id = %s", first[1].id)
    kept = KeptResults([1] * 5, [60.0, 60.0, None, 60.0, None], ["1", "2", None, '"\\u00e4\\""', None], [True] * 5)
    ended = queue.complete([*first, *second], kept)
    assert ended == {claim.id for claim in (*first, *second)} - {first[1].id}
    rows = queue.query("select job_id, value, payload from {schema}._private_results order by job_id")
    assert rows == [(first[0].id, "1", "{}"), (second[0].id, '"\\u00e4\\""', "{}")]
    many = queue.claim(3, 500)
    assert queue.complete(many) == {claim.id for claim in many}
    assert queue.query("select count(*) from {schema}._private_history where outcome = 1") == [(504,)]


def check_failures(queue: Queue) -> None:
    again, last = queue.claim(4), queue.claim(5, max_attempts=1)
    attempt: dict[str, Any] = {"duration": 2, "ago": 1, "exception_class": "builtins.ValueError", "keep": 60.0}
    failures = [Failure(claim=claim, error="no", **attempt) for claim in (*again, *last)]
    with queue.connection.cursor() as cursor:
        stored = releases.fail_jobs(cursor, failures, schema=queue.schema, keeping=KEEPING)
    assert stored == {again[0].id: pytest.approx(2.718, abs=0.01), last[0].id: None}
    rows = queue.query("select status from {schema}._private_results where job_id = any(%s) order by 1", list(stored))
    assert rows == [(0,), (2,)]
    # The result of a job that is tried again is kept until the next attempt has had the time to end.
    rows = queue.query(
        "select expires_at > now() + interval '61 seconds' from {schema}._private_results where job_id = any(%s)"
        " order by status",
        list(stored),
    )
    assert rows == [(True,), (False,)]


def check_returned_and_recovered(queue: Queue) -> None:
    begun, waiting, lost = queue.claim(6)[0], queue.claim(7)[0], queue.claim(8)[0]
    returned = [StoppedRun(begun, 7, payload_text="[1]"), StoppedRun(waiting)]
    with queue.connection.cursor() as cursor:
        options: dict[str, Any] = {"schema": queue.schema, "keeping": KEEPING}
        assert releases.return_stopped(cursor, returned, **options) == {begun.id, waiting.id}
        recovered = recovery.recover_claims(cursor, [WORKER], **options)
    assert recovered.job_ids == (lost.id,)
    rows = queue.query("select job_id, outcome from {schema}._private_history where outcome in (4, 5) order by 1")
    assert rows == [(begun.id, 4), (lost.id, 5)]
    assert queue.query("select payload::text from {schema}._private_jobs where id = %s", begun.id) == [("[1]",)]


FIND = {
    "job_id": "select * from {schema}._private_history where job_id = 30011",
    "job_key": "select * from {schema}._private_history where job_key = 'order 30000'",
    "task": "select * from {schema}._private_history where task_identifier = 'rare' order by ended_at desc limit 50",
    "trouble": "select * from {schema}._private_history where outcome <> 1 order by ended_at desc limit 50",
    "task of a day": """select * from {schema}._private_history where task_identifier = 'often'
        and ended_at >= timestamptz '{today}' - interval '2 days'
        and ended_at < timestamptz '{today}' - interval '1 day' order by ended_at desc limit 50""",
}


def test_history__is_found_in_few_pages(queue: Queue) -> None:
    """A row of an order of last Tuesday, among days of many rows; the day of today has no B-trees yet."""
    queue.query("set timezone = 'UTC'")
    # Read once: a day may begin meanwhile.
    ((today,),) = queue.query("select date_trunc('day', now())")
    with queue.connection.cursor() as cursor:
        for day in (3, 2, 1, 0):
            moment = today - timedelta(days=day)
            queue.query("select {schema}._private_make_history_partitions(0, %s)", moment)
            queue.query(
                "insert into {schema}._private_history (ended_at, added_at, run_at, job_id, attempt, outcome,"
                " task_identifier, worker_id, job_key) select %s + n * interval '1 millisecond', now(), now(),"
                f" (3 - %s) * {ROWS_A_DAY} + n, 1, case when n %% 5000 = 0 then 2 else 1 end,"
                " case when n %% 10000 = 17 then 'rare' else 'often' end, 'django-worker-0123456789abcdef01',"
                f" case when n %% 100 = 0 then 'order ' || (3 - %s) * {ROWS_A_DAY} + n end"
                f" from generate_series(1, {ROWS_A_DAY}) as n",
                moment,
                day,
                day,
            )
        # In the first minutes of a day, the day before is not indexed yet: its last rows may still come.
        while results.index_history_days(cursor, schema=queue.schema, now=moment + timedelta(hours=1)):
            pass
    queue.query("analyze {schema}._private_history")
    (pages,) = queue.query(
        "select sum(pg_relation_size(inhrelid)) / 8192 from pg_inherits where inhparent ="
        " '{schema}._private_history'::regclass"
    )[0]
    measured = MeasuringCursor(queue.connection)
    for what, text in FIND.items():
        measured.execute(text.replace("{schema}", f'"{queue.schema}"').replace("{today}", str(today)))
        assert measured.fetchall(), what
        assert measured.buffers < pages / 8, (what, measured.buffers)
