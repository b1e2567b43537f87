"""Jobs that wait for a limit, changed by SQL: they get their true run_at back, and are sorted again."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.limited_jobs import LimitedJobs, field_of


@pytest.fixture
def parked(shared_connection: psycopg.Connection[Any], worker_schema: str) -> LimitedJobs:
    """A job with the key 'k' of a key that is full."""
    jobs = LimitedJobs(shared_connection, worker_schema, account={"concurrency": 1})
    jobs.add(1, account=1)
    jobs.add(1, account=1, options="job_key => 'k', run_at => '2024-05-06 07:08+00'")
    jobs.sort_all()
    jobs.close_key("account", "1", 3600)
    assert jobs.claim_all() == []
    return jobs


PRESERVE = "select {schema}.add_job('limited', '{\"account\": 2}', job_key => 'k', job_key_mode => 'preserve_run_at')"


@pytest.mark.parametrize(
    "statement",
    [
        PRESERVE,
        """select {schema}.add_jobs(array[('limited', '{"account": 2}', null, null, null, 'k', null, null)
            ::{schema}.job_spec], true)""",
    ],
)
def test_preserve_run_at__makes_the_key_of_the_new_payload(parked: LimitedJobs, statement: str) -> None:
    parked.execute(statement)
    parked.sort_all()
    (claim,) = parked.claim_all()
    assert field_of([claim], "account") == [2]
    assert claim.run_at_epoch == parked.value("select extract(epoch from timestamptz '2024-05-06 07:08+00')::float8")


IDS = "array(select id from {schema}._private_jobs where key = 'k')"


@pytest.mark.parametrize(
    "call",
    [
        "add_job('limited', '{\"account\": 1}', job_key => 'k', job_key_mode => 'preserve_run_at')",
        "add_job('limited', '{\"account\": 1}', job_key => 'k', job_key_mode => 'unsafe_dedupe')",
        f"reschedule_jobs({IDS}, priority => 3)",
        f"permanently_fail_jobs({IDS}, 'no')",
        f"complete_jobs({IDS})",
        "remove_job('k')",
    ],
)
def test_functions__return_the_true_run_at(parked: LimitedJobs, call: str) -> None:
    """psycopg cannot read infinity."""
    assert parked.value(f"select run_at from {{schema}}.{call}").year == 2024


def test_a_priority__does_not_leave_the_job_to_this_package_alone(parked: LimitedJobs) -> None:
    """Without a worker that sorts, Node.js runs what has a finite run_at."""
    parked.execute(f"select {{schema}}.reschedule_jobs({IDS}, priority => 3)")
    assert parked.count("_private_jobs", "key = 'k' and run_at < now() and priority = 3") == 1
    parked.sort_all()
    assert parked.value("select priority from {schema}._private_limited_jobs as w order by run_at limit 1") == 3
