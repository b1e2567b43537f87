"""Limited jobs of a named queue start in its order: by priority, due time and id, also beside jobs without limits."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql.claims import Claim, claim_jobs
from tests.support.buffers import MeasuringCursor
from tests.support.limited_jobs import LimitedJobs, field_of

IN_QUEUE = "queue_name => 'q'"


@pytest.fixture
def jobs(shared_connection: psycopg.Connection[Any], worker_schema: str) -> LimitedJobs:
    return LimitedJobs(shared_connection, worker_schema, account={"concurrency": 1})


def add_ordinary(jobs: LimitedJobs, options: str = "priority => 0") -> int:
    added = f"select id from {{schema}}.add_job('ordinary', '{{}}', {IN_QUEUE}, {options})"
    return int(jobs.value(added))


def claim_next(jobs: LimitedJobs) -> Claim | None:
    """Claim a job as a worker does: first a limited one, then another. None if nothing may start."""
    ordinary = [jobs.value("select coalesce(max(id), 0) from {schema}._private_tasks where identifier = 'ordinary'")]
    claimed = jobs.claim(1, other_tasks=ordinary)
    while claimed.has_more and not claimed.claims:
        claimed = jobs.claim(1, other_tasks=ordinary)
    if claimed.claims:
        return claimed.claims[0]
    with jobs.connection.cursor() as cursor:
        found = claim_jobs(
            cursor,
            schema=jobs.schema,
            token="worker-2/1",
            task_ids=ordinary,
            max_jobs=5,
            max_per_queue=1,
            limited_tasks=[jobs.task_id],
        )
    return found.claims[0] if found.claims else None


def run(jobs: LimitedJobs, claim: Claim) -> None:
    """End a job, and release its queue."""
    jobs.complete([claim])
    jobs.execute("update {schema}._private_job_queues set locked_by = null, locked_at = null")
    jobs.free([claim], claim.queue_id or 0)


def run_all(jobs: LimitedJobs) -> list[int]:
    ran = []
    while (claim := claim_next(jobs)) is not None:
        ran.append(claim.id)
        run(jobs, claim)
    return ran


def in_order(jobs: LimitedJobs) -> list[int]:
    return list(jobs.value("select array_agg(id order by priority, id) from {schema}._private_jobs"))


def test_jobs_of_many_keys__start_in_order(jobs: LimitedJobs) -> None:
    chance = random.Random(7)
    for number in range(60):
        jobs.add(1, account=number, options=f"{IN_QUEUE}, priority => {chance.randrange(3)}")
        if chance.random() < 0.3:
            jobs.sort_all()
    expected = in_order(jobs)
    jobs.sort_all()
    assert run_all(jobs) == expected


def test_limited_and_other_jobs__start_in_order(jobs: LimitedJobs) -> None:
    chance = random.Random(8)
    for number in range(40):
        options = f"priority => {chance.randrange(3)}"
        if chance.random() < 0.5:
            add_ordinary(jobs, options)
        else:
            jobs.add(1, account=number, options=f"{IN_QUEUE}, {options}")
    expected = in_order(jobs)
    jobs.sort_all()
    assert run_all(jobs) == expected


def test_an_unsorted_job__is_not_passed(jobs: LimitedJobs) -> None:
    jobs.add(1, account=1, options=IN_QUEUE)
    add_ordinary(jobs)
    expected = in_order(jobs)
    assert claim_next(jobs) is None
    jobs.sort_all()
    assert run_all(jobs) == expected


def test_a_job_that_waits_for_its_key__is_passed(jobs: LimitedJobs) -> None:
    jobs.add(1, account=1)
    jobs.sort_all()
    (running,) = jobs.claim_all()
    jobs.add(1, account=1, options=IN_QUEUE)
    jobs.add(1, account=2, options=IN_QUEUE)
    last = add_ordinary(jobs)
    jobs.sort_all()

    passed = claim_next(jobs)
    assert passed is not None
    assert field_of([passed], "account") == [2]
    run(jobs, passed)
    second = claim_next(jobs)
    assert second is not None
    assert second.id == last
    jobs.end([running])
    # The queue is held: the job whose key is free now is next.
    assert claim_next(jobs) is None
    run(jobs, second)
    after = claim_next(jobs)
    assert after is not None
    assert field_of([after], "account") == [1]


def test_a_job_that_another_session_has_locked__stops_the_queue(jobs: LimitedJobs, shared_database: str) -> None:
    jobs.add(2, account=1, options=IN_QUEUE)
    jobs.sort_all()
    with psycopg.connect(shared_database) as other:
        other.execute(f'select from "{jobs.schema}"._private_jobs order by id limit 1 for update'.encode())
        assert claim_next(jobs) is None
    jobs.execute("update {schema}._private_limit_lanes set ready_at = now()")
    claim = claim_next(jobs)
    assert claim is not None
    assert claim.id == in_order(jobs)[0]


def test_the_first_job_of_a_queue__costs_the_same_beside_a_deep_queue(jobs: LimitedJobs) -> None:
    """The index by due time has the jobs of all queues, and the planner must not read them one by one."""
    jobs.execute("select {schema}.add_job('ordinary', '{}', queue_name => 'deep', priority => 0)")
    jobs.execute(
        """insert into {schema}._private_jobs (task_id, job_queue_id, payload)
        select task_id, job_queue_id, payload from {schema}._private_jobs, generate_series(1, 20000)"""
    )
    for table in ("jobs", "job_queues"):
        jobs.execute(f"vacuum analyze {{schema}}._private_{table}")
    add_ordinary(jobs)
    jobs.add(1, account=0, options=IN_QUEUE)
    jobs.add(1, account=0, options="queue_name => 'r'")
    cursor = MeasuringCursor(jobs.connection)
    cursor.execute(
        f"""select queue_id, job_id from "{jobs.schema}"._private_first_in_queues(
            array(select id from "{jobs.schema}"._private_job_queues where queue_name in ('q', 'r')),
            array(select id from "{jobs.schema}"._private_tasks), null, now())"""
    )
    assert len(cursor.fetchall()) == 2
    assert cursor.buffers < 60


@pytest.mark.parametrize("other", ["unknown", "future"])
def test_jobs_that_cannot_start__do_not_hold_up_the_queue(jobs: LimitedJobs, other: str) -> None:
    if other == "unknown":
        jobs.execute(f"select {{schema}}.add_job('unknown', '{{}}', {IN_QUEUE}, priority => -1)")
    else:
        add_ordinary(jobs, "priority => -1, run_at => now() + interval '1 hour'")
    jobs.add(1, account=1, options=IN_QUEUE)
    jobs.sort_all()
    assert claim_next(jobs) is not None
