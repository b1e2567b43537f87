"""Jobs that wait for a limit are parked at infinity: what reads jobs shows when they are due in truth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import (
    JobKeyMode,
    JobSpec,
    add_job,
    add_jobs,
    complete_jobs,
    conf,
    get_job,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
    task,
)
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql.inspection import job_list
from django_graphile_worker.sql.inspection.job_detail import job_detail
from django_graphile_worker.sql.inspection.job_list import Count, Criteria, State, count_states
from django_graphile_worker.sql.inspection.queue_depths import held_first
from django_graphile_worker.testing import jobs
from tests.support.factories import make_job, minutes_ago
from tests.support.limits import make_key, park_job

pytestmark = pytest.mark.django_db

DUE = datetime(2024, 5, 6, 7, 8, tzinfo=UTC)


@pytest.fixture
def parked() -> int:
    with tasks.isolated():
        task("task")(lambda payload: None)
        return park_job(make_key("account:{account}", "account:1"), run_at=DUE, key="k", queue_name="q")


def test_get_job__tells_the_true_run_at(parked: int) -> None:
    assert [getattr(get_job(which), "run_at", None) for which in (parked, "k")] == [DUE, DUE]
    assert [job.run_at for job in jobs()] == [DUE]


@pytest.mark.parametrize(
    "change",
    [
        lambda job_id: reschedule_jobs([job_id], priority=3)[0],
        lambda job_id: permanently_fail_jobs([job_id], "no")[0],
        lambda job_id: complete_jobs([job_id])[0],
        lambda job_id: remove_job("k"),
        lambda job_id: add_job("task", {}, job_key="k", job_key_mode=JobKeyMode.PRESERVE_RUN_AT),
        lambda job_id: add_job("task", {}, job_key="k", job_key_mode=JobKeyMode.UNSAFE_DEDUPE),
        lambda job_id: add_jobs([JobSpec("task", {}, job_key="k", job_key_mode=JobKeyMode.PRESERVE_RUN_AT)])[0],
    ],
)
def test_changed_jobs__have_the_true_run_at(parked: int, change: Any) -> None:
    changed = change(parked)
    assert (changed.id, changed.run_at) == (parked, DUE)


def test_a_job_of_the_year_9999__is_not_parked() -> None:
    job_id = make_job("task", run_at="infinity")
    job = get_job(job_id)
    assert job is not None
    assert job.run_at.year == 9999
    with connection.cursor() as cursor:
        (row,) = job_list.rows(cursor, [job_id], schema=conf.current().schema)
    assert row.state is State.SCHEDULED


def test_lists__have_a_state_for_parked_jobs(parked: int) -> None:
    other = park_job(make_key("account:{account}", "account:2"), "other", run_at=minutes_ago(1), attempts=2)
    ready, waiting = make_job("task"), make_job("task", run_at=datetime.now(UTC) + timedelta(hours=1))
    schema = conf.current().schema
    with connection.cursor() as cursor:

        def ids(**criteria: Any) -> list[int]:
            return job_list.job_ids(cursor, Criteria(**criteria), schema=schema, limit=50)

        assert ids(state=State.LIMITED) == [parked, other]
        assert ids(state=State.LIMITED, tasks=("other",)) == [other]
        assert ids(state=State.LIMITED, queues=("q",)) == [parked]
        assert ids(state=State.SCHEDULED) == [waiting]
        assert ids(state=State.READY) == [ready]
        assert ids(state=State.RETRYING) == []
        counts = count_states(cursor, Criteria(), schema=schema)
        assert counts[State.LIMITED] == Count(number=2, is_more=False)
        assert counts[State.SCHEDULED].number == counts[State.READY].number == 1
        (row,) = job_list.rows(cursor, [parked], schema=schema)
        assert (row.state, row.run_at, row.moment) == (State.LIMITED, DUE, DUE)
        detail = job_detail(cursor, parked, schema=schema, timeout=60)
        assert detail is not None
        assert (detail.state, detail.run_at) == (State.LIMITED, DUE)
        (queue,) = held_first(cursor, schema=schema, limit=5)
        assert queue.oldest == DUE


def test_pages__continue_after_the_last_parked_job() -> None:
    key = make_key("account:{account}", "account:1")
    made = [park_job(key) for _ in range(5)]
    criteria, schema = Criteria(state=State.LIMITED), conf.current().schema
    with connection.cursor() as cursor:
        pages = [job_list.job_ids(cursor, criteria, schema=schema, limit=2, offset=start) for start in (0, 2, 4, 6)]
    assert pages == [made[:2], made[2:4], made[4:], []]
