"""Sorting: which jobs get into which lanes, and what repairs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import limits
from django_graphile_worker.sql.install import indexes, installer
from tests.support.limited_jobs import LimitedJobs, field_of


@pytest.fixture
def make(raw_connection: Callable[..., psycopg.Connection[Any]], worker_schema: str) -> Callable[..., LimitedJobs]:
    return lambda **limits: LimitedJobs(raw_connection(), worker_schema, **limits)


@pytest.fixture
def jobs(make: Callable[..., LimitedJobs]) -> LimitedJobs:
    return make(account={"concurrency": 2})


def test_sorted_jobs__are_parked_and_keep_their_run_at(jobs: LimitedJobs) -> None:
    jobs.add(2, account=1)
    jobs.add(1, account=2)
    due = jobs.value("select array_agg(run_at order by id) from {schema}._private_jobs")

    assert jobs.sort() == 3
    assert jobs.count("_private_jobs", "run_at = 'infinity'") == 3
    assert jobs.count("_private_limit_lanes", "state = 1") == 2
    assert jobs.value("select array_agg(run_at order by job_id) from {schema}._private_limited_jobs") == due
    claims = jobs.claim_all()
    assert jobs.value("select array_agg(run_at order by id) from {schema}._private_jobs") == due
    assert len(claims) == 3


def test_future_failed_and_running_jobs__are_not_sorted(jobs: LimitedJobs) -> None:
    jobs.add(1, account=1, options="run_at => now() + interval '1 hour'")
    jobs.add(1, account=1, options="max_attempts => 1, job_key => 'failed'")
    jobs.add(1, account=1, options="job_key => 'running'")
    jobs.execute("update {schema}._private_jobs set attempts = 1 where key = 'failed'")
    jobs.execute("update {schema}._private_jobs set locked_at = now(), locked_by = 'other' where key = 'running'")
    assert jobs.sort() == 0


def test_the_last_jobs__are_sorted_with_the_first(jobs: LimitedJobs) -> None:
    jobs.add(100, account="large")
    jobs.add(1, account="small")
    jobs.sort(most=10)
    assert set(field_of(jobs.claim_all(), "account")) == {"large", "small"}


def test_two_sorters__pick_different_jobs(jobs: LimitedJobs, make: Callable[..., LimitedJobs]) -> None:
    jobs.add(20, account=1)
    other = make(account={"concurrency": 2})
    with other.connection.cursor() as cursor, other.connection.transaction():
        picked = limits.pick_unsorted(
            cursor, schema=other.schema, task_ids=[other.task_id], max_jobs=10, idle_seconds=60
        )
        assert len(picked.jobs) == 10
        jobs.sort_all()
    assert jobs.count("_private_limited_jobs") == 10


def test_a_sorter_that_stands_still__does_not_keep_jobs_locked(
    jobs: LimitedJobs, make: Callable[..., LimitedJobs], wait_until: Callable[..., None]
) -> None:
    jobs.add(3, account=1)
    other = make(account={"concurrency": 2})
    other.execute("begin")
    with other.connection.cursor() as cursor:
        limits.pick_unsorted(cursor, schema=other.schema, task_ids=[other.task_id], max_jobs=10, idle_seconds=0.1)
    wait_until(lambda: jobs.sort() == 3)


def test_a_more_urgent_job__changes_the_head_of_its_lane(jobs: LimitedJobs) -> None:
    jobs.add(1, account=1, options="priority => 5")
    jobs.sort_all()
    jobs.add(1, account=1, options="priority => 1")
    jobs.sort_all()
    assert jobs.value("select priority from {schema}._private_limit_lanes") == 1
    jobs.claim(1)
    assert jobs.value("select priority from {schema}._private_limit_lanes") == 5


def test_a_task_without_limits_any_more__ends_the_parking_of_its_jobs(
    jobs: LimitedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No claim looks at their lanes, so their emptiness must be noted, or they are never deleted."""
    monkeypatch.setattr(limits, "MAX_UNPARKED", 3)
    jobs.add_many(10, "account", keys=10)
    jobs.sort_all()
    with jobs.connection.cursor() as cursor:
        found = [limits.unpark_tasks(cursor, [jobs.task_id], schema=jobs.schema) for _ in range(5)]
    assert found == [3, 3, 3, 1, 0]
    assert jobs.count("_private_jobs", "run_at <= now()") == 10
    assert jobs.count("_private_limit_lanes", "state > 0") == 0


def test_lanes_with_a_forbidden_flag__are_not_ready(jobs: LimitedJobs) -> None:
    """Otherwise the keeper would have the claims look again and again."""
    jobs.add(1, account=1, options="flags => array['paused']")
    jobs.sort_all()
    assert jobs.pick().has_ready
    assert not jobs.pick(forbidden_flags=["paused"]).has_ready


def test_a_time_that_has_come__is_left_to_a_claim(jobs: LimitedJobs) -> None:
    """While no slot is free, the keeper must not look again at once."""
    jobs.add(1, account=1)
    jobs.sort_all()
    jobs.close_key("account", "1", 60)
    jobs.claim_all()
    closed = jobs.pick()
    assert not closed.has_ready
    assert closed.seconds_until_next == pytest.approx(60, abs=30)
    jobs.execute("update {schema}._private_limit_keys set opens_at = pg_catalog.now()")
    assert (jobs.pick().has_ready, jobs.pick().seconds_until_next) == (True, None)


def test_a_sweep__frees_the_places_of_dead_workers(jobs: LimitedJobs) -> None:
    jobs.add(4, account=1)
    jobs.sort_all()
    jobs.claim_all()
    jobs.execute("update {schema}._private_jobs set locked_by = null, locked_at = null where locked_by is not null")
    assert jobs.sweep() == 1
    assert jobs.count("_private_limit_places") == 0
    jobs.sort_all()
    assert len(jobs.claim_all()) == 2


def test_a_sweep__makes_lanes_ready_whose_queue_is_free(jobs: LimitedJobs) -> None:
    """The end of a pause frees a queue, and no job of it has ended."""
    jobs.add(2, account=1, options="queue_name => 'held'")
    jobs.add(2, account=2, options="queue_name => 'freed'")
    jobs.add(1, account=2, options="queue_name => 'freed too'")
    jobs.sort_all()
    jobs.execute("update {schema}._private_job_queues set locked_by = 'pause', locked_at = 'infinity'")
    assert jobs.claim_all() == []
    assert jobs.sweep() == 0
    jobs.execute(
        "update {schema}._private_job_queues set locked_by = null, locked_at = null where queue_name like 'freed%'"
    )
    assert jobs.sweep() == 2
    assert sorted(claim.queue_name or "" for claim in jobs.claim_all()) == ["freed", "freed too"]


def test_uninstalling__ends_all_parking(jobs: LimitedJobs, worker_schema: str) -> None:
    jobs.add(2, account=1)
    jobs.sort_all()
    with jobs.connection.transaction(force_rollback=True), jobs.connection.cursor() as cursor:
        for index in indexes.wanted_indexes(schema=worker_schema):
            cursor.execute(f'drop index "{worker_schema}".{index.name}'.encode())
        installer.uninstall(cursor.execute, schema=worker_schema)
        assert jobs.count("_private_jobs", "run_at = 'infinity'") == 0
