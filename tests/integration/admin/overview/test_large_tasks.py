"""The numbers of tasks with many jobs: exact up to five thousand, from the latest sample beyond."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_graphile_worker.admin.overview import readings
from django_graphile_worker.sql import statistics
from tests.integration.admin.overview.test_time_limits import SlowDatabase, empty_cache
from tests.support import admin_pages as pages
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute

__all__ = ["empty_cache"]


def add(task: str, number: int, **values: Any) -> None:
    job = make_job(task, **values)
    execute(
        "insert into {schema}._private_jobs (task_id, run_at, attempts, last_error)"
        " select task_id, run_at, attempts, last_error from {schema}._private_jobs, generate_series(2, %s)"
        " where id = %s",
        [number, job],
    )


def sample(schema: str, *, age: float = 0.0, most: int = 100_000) -> None:
    with connection.cursor() as cursor:
        now = timezone.now() - timedelta(seconds=age)
        assert statistics.sample_backlog(cursor, schema=schema, now=now, most=most)


def numbers(client: Client) -> dict[str, tuple[str, str, str]]:
    rows = client.get(pages.OVERVIEW).context["tasks"]
    return {row.identifier: (row.ready, row.retrying, row.note) for row in rows}


@pytest.mark.parametrize("is_sampled", [True, False])
def test_numbers_up_to_five_thousand__are_exact(admin_page: Client, worker_schema: str, is_sampled: bool) -> None:
    add("small", 500, run_at=minutes_ago(9))
    add("large", 3_000, run_at=minutes_ago(9))
    add("retried", 4_321, run_at=minutes_ago(-9), attempts=1, last_error="no")
    if is_sampled:
        sample(worker_schema, most=0)
        add("large", 7, run_at=minutes_ago(9))
    expected = {"small": ("500", "", ""), "large": ("3,000", "", ""), "retried": ("", "4,321", "")}
    assert numbers(admin_page) == expected | ({"large": ("3,007", "", "")} if is_sampled else {})


def test_larger_numbers__are_rounded_and_say_how_old_they_are(admin_page: Client, worker_schema: str) -> None:
    # Without the pages of rows that earlier tests have rolled back: the estimate reads some of all pages.
    execute("truncate {schema}._private_jobs")
    add("large", 6_789, run_at=minutes_ago(9))
    sample(worker_schema, age=130)
    assert numbers(admin_page) == {"large": ("about 6,790", "", "Counted 2 min ago")}
    execute("delete from {schema}._private_backlog_samples")
    assert numbers(admin_page)["large"][0] == "about 6,800", "without a worker, it is estimated"


def test_last_sample__stands_in_while_nothing_can_be_counted(
    admin_page: Client, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("large", 6_789, run_at=minutes_ago(99))
    sample(worker_schema, age=1_800)
    monkeypatch.setattr(readings, "LONGEST_READ", 0.5)
    with connection.execute_wrapper(SlowDatabase("count-states", "task-backlog", "estimate-backlog")):
        response = admin_page.get(pages.OVERVIEW)
    (row,), tile = response.context["tasks"], response.context["tiles"][0]
    assert (row.ready, row.note) == ("about 6,790", "Counted 30 min ago")
    assert (tile.value, tile.note) == ("about 6,790", "Counted 30 min ago")
