"""Jobs that stand behind many that cannot run are found, although each claim looks at a part only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import claims
from django_graphile_worker.worker.fetching.scan import MAX_PRIORITIES, Scan

TASKS = 100
HELD = 3000
FREE = HELD + 1
FLAG = """'{"paused": true}'"""


class Backlog:
    """Three thousand held queues, a free one, and a worker that claims."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self.execute(
            f"insert into {{schema}}._private_tasks (identifier) select 't' || n from generate_series(1, {TASKS}) as n"
        )
        self.execute(
            "insert into {schema}._private_job_queues (queue_name, locked_at, locked_by)"
            f" select 'held' || n, now(), 'other' from generate_series(1, {HELD}) as n"
        )
        self.execute("insert into {schema}._private_job_queues (queue_name) values ('free')")

    def add(
        self,
        count: int,
        *,
        task: str = "1",
        queue: str = "null",
        flags: str = "null",
        priority: int | str = 0,
        minutes: int = 60,
    ) -> int:
        """Add jobs, which are due since some minutes; return the last id."""
        ids = self.execute(
            "insert into {schema}._private_jobs (task_id, job_queue_id, flags, priority, run_at)"
            f" select {task}, {queue}, {flags}::jsonb, {priority}, now() - interval '{minutes} minutes'"
            f" from generate_series(1, {count}) as n returning id"
        ).fetchall()
        return int(ids[-1][0])

    def claims_until(self, job_id: int, **options: Any) -> int:
        """Return the number of claims until the worker has the job."""
        for number, claimed in self.each_claim(**options):
            if any(claim.id == job_id for claim in claimed.claims):
                return number
        raise AssertionError("not within 400 claims")

    def claims_of_a_pass(self, **options: Any) -> int:
        """Return the number of claims until everything was seen."""
        for number, claimed in self.each_claim(**options):
            if not claimed.has_more:
                return number
        raise AssertionError("not within 400 claims")

    def each_claim(self, **options: Any) -> Iterator[tuple[int, claims.Claimed]]:
        """Claim as a worker does, a hundred times a second."""
        self.execute("vacuum analyze {schema}._private_jobs, {schema}._private_job_queues")
        scan = Scan()
        for number in range(1, 400):
            now = number / 100
            claimed = self.claim(number, behind=scan.behind(now, ()), **options)
            scan.note(replace(claimed, seconds=0.0), ended=now)
            yield number, claimed
            assert claimed.has_more or scan.until_next_pass(now) is not None, "the worker would be idle"

    def claim(self, number: int, *, flags: list[str] | None = None, tasks: int = 2, **options: Any) -> claims.Claimed:
        return claims.claim_jobs(
            self.connection.cursor(binary=True),
            schema=self.schema,
            token=f"worker/{number}",
            task_ids=range(1, tasks + 1),
            forbidden_flags=flags,
            **{"max_per_queue": 1, **options},
        )

    def execute(self, statement: str) -> psycopg.Cursor[Any]:
        return self.connection.execute(statement.replace("{schema}", f'"{self.schema}"').encode())


@pytest.fixture
def backlog(shared_connection: psycopg.Connection[Any], worker_schema: str) -> Backlog:
    return Backlog(shared_connection, worker_schema)


def test_free_queue_behind_held_ones__is_found_while_other_jobs_keep_claims_full(backlog: Backlog) -> None:
    backlog.add(HELD, queue="n", minutes=90)
    hidden = backlog.add(1, queue=str(FREE))
    backlog.add(5000, minutes=30)
    assert backlog.claims_until(hidden, max_jobs=10) < 50


@pytest.mark.parametrize("is_first", [pytest.param(True, marks=pytest.mark.chaos), False])
def test_free_queue_behind_held_ones__is_found_behind_flagged_jobs_of_a_better_priority(
    backlog: Backlog, is_first: bool
) -> None:
    """The steps over the queues find it while claims still look at the flagged jobs, or after that."""
    free = 5 if is_first else FREE
    backlog.execute(f"update {{schema}}._private_job_queues set locked_at = null, locked_by = null where id = {free}")
    backlog.add(11_000, flags=FLAG)
    for priority in (0, 1):
        backlog.add(HELD, queue=f"case when n = {free} then {HELD} else n end", priority=priority, minutes=90)
    hidden = backlog.add(1, queue=str(free), priority=1)
    assert backlog.claims_until(hidden, max_jobs=10, flags=["paused"]) < 150


def test_job_behind_flagged_jobs_of_its_queue__is_found_while_other_jobs_keep_claims_full(backlog: Backlog) -> None:
    backlog.add(3000, queue=str(FREE), flags=FLAG, minutes=90)
    hidden = backlog.add(1, queue=str(FREE))
    backlog.add(5000, minutes=30)
    assert backlog.claims_until(hidden, max_jobs=10, flags=["paused"]) < 50


def test_job_behind_queues_whose_rows_are_locked__is_found(backlog: Backlog) -> None:
    backlog.execute(
        "insert into {schema}._private_job_queues (queue_name) select 'q' || n from generate_series(1, 60) n"
    )
    backlog.add(60, queue=f"{FREE} + n", minutes=90)
    hidden = backlog.add(1)
    with psycopg.connect(backlog.connection.info.dsn) as other:
        other.execute(
            f"select from \"{backlog.schema}\"._private_job_queues where queue_name like 'q%' for update".encode()
        )
        assert backlog.claims_until(hidden, max_jobs=1) < 10


def test_job_behind_a_few_flagged_jobs_of_a_free_queue__is_found_behind_many_held_queues(backlog: Backlog) -> None:
    """The first steps end before the queue, and have seen no reason to look behind the first jobs."""
    backlog.add(1500, queue="1 + n % 150", minutes=90)
    backlog.add(25, queue=str(FREE), flags=FLAG)
    hidden = backlog.add(1, queue=str(FREE), minutes=30)
    assert backlog.claims_until(hidden, max_jobs=10, flags=["paused"]) < 60


def test_job_behind_queues_that_wait_for_limited_jobs__is_found_with_one_slot(backlog: Backlog) -> None:
    backlog.add(200, queue="1", minutes=120)
    free_some_queues(backlog)
    for task in "21":
        backlog.add(60, task=task, queue="100 + n", minutes=90)
    backlog.add(300, queue="1", minutes=70)
    hidden = backlog.add(1)
    assert backlog.claims_until(hidden, max_jobs=1, limited_tasks=[2], tasks=1) < 10


def test_jobs_of_many_tasks__are_found_behind_flagged_jobs_of_one(backlog: Backlog) -> None:
    backlog.add(11_000, flags=FLAG, minutes=90)
    hidden = backlog.add(2 * TASKS, task=f"1 + n % {TASKS}")
    assert backlog.claims_until(hidden, max_jobs=10, flags=["paused"], tasks=TASKS) < 50


def free_some_queues(backlog: Backlog) -> None:
    backlog.execute(
        "update {schema}._private_job_queues set locked_at = null, locked_by = null where id between 101 and 160"
    )


def test_limited_job_behind_many_flagged_ones__is_not_overtaken_in_its_queue(backlog: Backlog) -> None:
    backlog.add(60, task="2", queue=str(FREE), flags=FLAG, minutes=90)
    backlog.add(1, task="2", queue=str(FREE))
    later = backlog.add(1, queue=str(FREE), minutes=30)
    claimed = claims.claim_jobs(
        backlog.connection.cursor(binary=True),
        schema=backlog.schema,
        token="worker/1",
        task_ids=[1],
        max_jobs=10,
        max_per_queue=1,
        forbidden_flags=["paused"],
        limited_tasks=[2],
    )
    assert later not in [claim.id for claim in claimed.claims]


@pytest.mark.chaos
def test_job_behind_flagged_jobs_of_many_priorities__is_found(backlog: Backlog) -> None:
    """Of more priorities than a worker remembers, each with more flagged jobs than a claim passes over."""
    backlog.execute(
        "insert into {schema}._private_jobs (task_id, priority, flags, run_at)"
        f" select 1, priority, {FLAG}, now() - interval '90 minutes'"
        f" from generate_series(1, {MAX_PRIORITIES + 2}) as priority cross join generate_series(1, 5500)"
    )
    hidden = backlog.add(1, priority=MAX_PRIORITIES + 3)
    assert backlog.claims_until(hidden, max_jobs=10, flags=["paused"]) < 3 * MAX_PRIORITIES


@pytest.mark.chaos
def test_pass_over_flagged_jobs_of_free_queues__reads_each_once(backlog: Backlog) -> None:
    backlog.execute("update {schema}._private_job_queues set locked_at = null, locked_by = null")
    backlog.add(25 * HELD, queue=f"1 + n % {HELD}", flags=FLAG, minutes=90)
    # 5,000 jobs, and 105 steps from queue to queue.
    assert backlog.claims_of_a_pass(max_jobs=10, flags=["paused"]) < 25 * HELD / 5000 + HELD / 105 + 5


def test_free_queue_behind_held_ones__is_found_while_large_jobs_keep_claims_full(backlog: Backlog) -> None:
    backlog.add(HELD, queue="n", minutes=90)
    hidden = backlog.add(1, queue=str(FREE))
    backlog.add(1000, priority=1, minutes=30)
    large = f"to_json(repeat('{'x' * 50}', 1 + (random() * 50)::int))"
    backlog.execute(f"update {{schema}}._private_jobs set payload = {large} where priority = 1")
    assert backlog.claims_until(hidden, max_jobs=50, max_bytes=20_000) < 50


def test_jobs_left_by_a_claim_of_large_jobs__are_claimed_in_order_by_the_next(backlog: Backlog) -> None:
    for priority in (0, 1):
        backlog.add(10, priority=priority, minutes=60)
        backlog.add(2, queue=str(FREE), priority=priority, minutes=50)
    backlog.execute("update {schema}._private_jobs set payload = to_json(repeat(md5(id::text), 62))")
    order = [row[0] for row in backlog.execute("select id from {schema}._private_jobs order by priority, run_at, id")]
    found: list[int] = []
    behind = claims.START
    while len(found) < 20:
        claimed = backlog.claim(len(found), max_jobs=50, max_per_queue=4, max_bytes=5000, behind=behind)
        assert claimed.has_more
        behind = claimed.continuation
        found += [claim.id for claim in claimed.claims]
    assert found == order[: len(found)]


@pytest.mark.parametrize("locked", [20, 50])
def test_candidates_that_a_claim_has_no_room_for__are_found_by_the_next(backlog: Backlog, locked: int) -> None:
    """While others hold many locks, a round looks at more jobs than the claim has room for."""
    first = backlog.add(locked, minutes=90)
    free = {backlog.add(1, task=str(1 + n % 2), minutes=80 - n) for n in range(8)}
    backlog.add(3, priority=5)
    with psycopg.connect(backlog.connection.info.dsn) as other:
        other.execute(f'select from "{backlog.schema}"._private_jobs where id <= {first} for update'.encode())
        one = backlog.claim(1, max_jobs=5)
        two = backlog.claim(2, max_jobs=5, behind=one.continuation)
    assert {claim.id for claim in (*one.claims, *two.claims)} >= free


def test_claim__ends_although_others_have_locked_everything(backlog: Backlog) -> None:
    backlog.execute("update {schema}._private_job_queues set locked_at = null, locked_by = null")
    backlog.execute(
        "insert into {schema}._private_jobs (task_id, job_queue_id, run_at) select 1 + n / 2 % 2,"
        " case when n % 2 = 0 then n end, now() - (5000 - n) * interval '1 second' from generate_series(1, 2000) as n"
    )
    with psycopg.connect(backlog.connection.info.dsn) as other:
        for table in ("jobs", "job_queues"):
            other.execute(f'select from "{backlog.schema}"._private_{table} for update'.encode())
        assert backlog.claim(1, max_jobs=10).claims == []
