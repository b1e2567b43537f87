"""The table of tasks on the overview."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.overview import tasks
from django_graphile_worker.sql.inspection import overview as sql_overview
from tests.support import admin_pages as pages
from tests.support.admin_pages import record_statistics
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute


def test_many_tasks_are_not_read_to_show_the_busiest(admin_page: Client) -> None:
    """Fifty tasks are shown: reading every minute of every task would read up to 50,000 rows."""
    execute(
        "insert into {schema}._private_tasks (identifier) select 'task_' || n from generate_series(1, 300) as n",
    )
    # From the next minute on, which may begin before the page is read.
    execute(
        "insert into {schema}._private_statistics"
        " select period, 'task', to_timestamp(floor(extract(epoch from now()) / period) * period - period * back),"
        " 'task_' || number, array[number, 0, 0, 0, 0, 0, 0, 0, 0, 0] || array_fill(1, array[96])"
        " from (values (60), (600)) as resolution (period), generate_series(-1, 59) as back,"
        " generate_series(1, 300) as number",
    )
    for number in range(1, 301, 50):
        make_job(f"task_{number}")
    read: list[int] = []

    def count(run: Any, statement: str, parameters: Any, many: bool, context: dict[str, Any]) -> Any:
        result = run(statement, parameters, many, context)
        read.append(max(context["cursor"].rowcount, 0))
        return result

    with connection.execute_wrapper(count):
        shown = admin_page.get(pages.OVERVIEW).context["tasks"]
    assert [(line.identifier, line.runs) for line in shown[:2]] == [("task_300", "18,000"), ("task_299", "17,940")]
    assert len(shown) == 50
    assert len(read) <= 35
    assert sum(read) < 1500


def test_a_task_that_waits_is_shown_beside_those_that_ran(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "send", succeeded=3)
    make_job("waits", run_at=minutes_ago(90.5))
    make_job("waits", run_at=minutes_ago(5), priority=-1)
    make_job("waits", run_at=minutes_ago(-5))
    lines = admin_page.get(pages.OVERVIEW).context["tasks"]
    assert [(line.identifier, line.runs, line.ready, line.oldest) for line in lines] == [
        ("send", "3", "", ""),
        ("waits", "", "2", "1 h 30 min"),
    ]


def test_oldest_job__may_be_behind_more_urgent_jobs_than_are_counted(
    admin_page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_COUNTED", 200)
    monkeypatch.setattr(sql_overview, "MAX_COUNTED", 200)

    make_job("waits", run_at=minutes_ago(90.5))
    make_job("waits", run_at=minutes_ago(5), priority=-1)
    execute(
        "insert into {schema}._private_jobs (task_id, priority, run_at, job_queue_id)"
        " select task_id, priority, run_at, job_queue_id from {schema}._private_jobs, generate_series(1, 250)"
        " where priority = -1"
    )
    (line,) = admin_page.get(pages.OVERVIEW).context["tasks"]
    assert (line.identifier, line.ready, line.oldest) == ("waits", "200+", "1 h 30 min")


def test_tasks_that_fail__come_first_and_the_rest_is_announced(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "fails_now", succeeded=1, failed=5)
    execute(
        "insert into {schema}._private_statistics select period_seconds, kind, started_at, 'busy_' || number,"
        " array[1000 + number, 0] || counts[3:] from {schema}._private_statistics,"
        " generate_series(10, 69) as number where name = 'fails_now'"
    )
    make_failed_job("failed_before")
    make_job("retries", attempts=1, last_error="no", run_at=minutes_ago(-5))
    response = admin_page.get(pages.OVERVIEW)
    names = [line.identifier for line in response.context["tasks"]]
    assert names[:4] == ["fails_now", "failed_before", "retries", "busy_69"]
    assert len(names) == 50
    assert "50 of 63 tasks. Tasks with failures come first." in pages.text(response)
    second = admin_page.get(response.context["next_tasks_url"])
    assert "Tasks 51 to 63 of 63." in pages.text(second)
    assert [line.identifier for line in second.context["tasks"]][-1] == "busy_10"
    found = admin_page.get(pages.OVERVIEW, {"tasks": "BEFORE", "page": "x"})
    assert [line.identifier for line in found.context["tasks"]] == ["failed_before"]
    assert found.context["task_extent"].startswith("1 of 1 matching tasks, of 63 in all.")


def test_figures__are_links_to_the_jobs_that_they_count(admin_page: Client) -> None:
    make_job("send")
    make_failed_job("send")
    make_job("send", attempts=1, last_error="no", run_at=minutes_ago(-5))
    make_job("send", locked_by="worker")
    (line,) = admin_page.get(pages.OVERVIEW).context["tasks"]
    for url in line.state_urls.values():
        assert len(pages.listed(admin_page.get(url))) == 1, url
