"""Lanes and keys that nothing needs are deleted in batches, and each batch costs the same however many there are."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql.limits import FORGET_KEYS, FORGET_LANES, MAX_FORGOTTEN
from django_graphile_worker.sql.statements import statement
from tests.support.buffers import MeasuringCursor
from tests.support.limited_jobs import LimitedJobs

MANY = 20_000


@pytest.fixture
def jobs(shared_connection: psycopg.Connection[Any], worker_schema: str) -> LimitedJobs:
    """A key with a job that waits."""
    jobs = LimitedJobs(shared_connection, worker_schema, account={"concurrency": 1, "rate": "5/d"})
    jobs.add(1, account="waiting")
    jobs.sort_all()
    return jobs


def add_unused(jobs: LimitedJobs, number: int) -> None:
    """Add old keys, each with an empty lane."""
    jobs.execute(
        """with key as (
            insert into {schema}._private_limit_keys (limit_name, key_text, created_at)
            select 'account', number::text, now() - interval '2 days' from generate_series(1, %s) as number
            returning id
        ), lane as (
            insert into {schema}._private_limit_lanes (
                task_id, key_ids, queue_id, flags, state, priority, head_run_at, head_id, turn, sorted_at)
            select 1, array[key.id], 0, '{}', 0, 0, now(), 1, now(), now() - interval '1 day' from key
            returning id, key_ids
        )
        insert into {schema}._private_limit_lane_keys (key_id, lane_id) select lane.key_ids[1], lane.id from lane""",
        [number],
    )


def test_many_lanes_and_keys__are_deleted_in_batches_that_read_what_they_delete(jobs: LimitedJobs) -> None:
    add_unused(jobs, MANY)
    for table in ("keys", "lanes", "lane_keys"):
        jobs.execute(f"vacuum analyze {{schema}}._private_limit_{table}")
    cursor = MeasuringCursor(jobs.connection)
    # To compare each key with each lane reads no buffers, but takes minutes.
    jobs.execute("set statement_timeout = '20s'")
    parameters = {
        "seconds": 3600,
        "most": MAX_FORGOTTEN,
        "after": None,
        "limit_names": jobs.numbers["limit_names"],
        "rate_windows": jobs.numbers["rate_windows"],
    }
    for each in (FORGET_LANES, FORGET_KEYS):
        cursor.execute(statement(each, jobs.schema), parameters)
        # Some probes of indexes for each row, not the whole tables.
        assert cursor.buffers < 40 * MAX_FORGOTTEN
    assert jobs.forget(seconds=3600) == pytest.approx(2 * MANY / MAX_FORGOTTEN, abs=3)
    assert jobs.count("_private_limit_keys") == jobs.count("_private_limit_lanes") == 1
    assert jobs.count("_private_limit_lane_keys") == 1
    assert len(jobs.claim_all()) == 1


def test_keys_in_use__stay(jobs: LimitedJobs) -> None:
    """A start within the window, a place and a lane keep a key, also while others are deleted."""
    add_unused(jobs, 100)
    jobs.execute(
        """insert into {schema}._private_limit_starts (key_id, number, started_at)
        select id, 0, now() - interval '20 hours' from {schema}._private_limit_keys where key_text = '17'"""
    )
    jobs.execute(
        """insert into {schema}._private_limit_places (key_id, job_id, token, taken_at)
        select id, 1, 'worker-1/1', now() from {schema}._private_limit_keys where key_text = '18'"""
    )
    jobs.close_key("account", "19", 60)
    jobs.forget(seconds=3600)
    found = jobs.value("select array_agg(key_text order by id) from {schema}._private_limit_keys")
    assert found == ["waiting", "17", "18", "19"]


def test_starts_within_the_window_of_an_operator__keep_a_key(jobs: LimitedJobs) -> None:
    """The number of the code has a window of a day."""
    add_unused(jobs, 100)
    jobs.execute(
        """insert into {schema}._private_limit_overrides (limit_name, rate_count, rate_seconds, changed_by)
        values ('account', 5, 604800, 'an operator')"""
    )
    jobs.execute(
        """insert into {schema}._private_limit_starts (key_id, number, started_at)
        select id, 0, now() - interval '3 days' from {schema}._private_limit_keys where key_text = '17'"""
    )
    jobs.forget(seconds=3600)
    found = jobs.value("select array_agg(key_text order by id) from {schema}._private_limit_keys")
    assert found == ["waiting", "17"]
