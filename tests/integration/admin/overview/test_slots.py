"""Which tasks have the slots of the workers."""

from __future__ import annotations

from typing import Any

from django.test import Client

from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, record_statistics, text
from tests.support.factories import make_failed_job, make_job, minutes_ago


def hold(task: str, number: int, *, minutes: float = 20, worker: str = "django-worker-1") -> None:
    for _ in range(number):
        make_job(task, locked_by=worker, locked_at=minutes_ago(minutes))


def running(response: Any) -> list[tuple[str, str]]:
    return [(row.identifier, row.running) for row in response.context["tasks"]]


def problems(response: Any) -> list[str]:
    shown = [*response.context["problems"], *response.context["more_problems"]]
    return [str(each.cause) for each in shown if "slot" in str(each.cause)]


def test_task_that_has_all_slots__is_first_and_a_problem_for_others(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "busy", succeeded=9, failed=2)
    make_failed_job("fails")
    make_worker("django-worker-1", tasks=["slow", "busy", "fails"], concurrency=3)
    make_worker("django-worker-2", tasks=["slow", "busy", "fails"], concurrency=1)
    hold("slow", 3)
    hold("slow", 1, worker="django-worker-2")
    # The worker has claimed them, but no slot is free.
    hold("busy", 2, minutes=1)
    response = admin_page.get(pages.OVERVIEW)
    assert running(response) == [("slow", "4 of 4 slots"), ("busy", ""), ("fails", "")]
    assert problems(response) == [], "no other job waits"
    make_job("busy", run_at=minutes_ago(1))
    response = admin_page.get(pages.OVERVIEW)
    assert problems(response) == ["All 4 slots run slow, for 20 min or longer."]
    row = response.context["tasks"][0]
    assert len(pages.listed(admin_page.get(row.state_urls["running"]))) == 4
    assert "Start more workers" in text(response)


def test_task_that_has_all_slots_for_a_short_time__is_no_problem(admin_page: Client) -> None:
    make_worker("django-worker-1", tasks=["slow", "busy"], concurrency=2)
    hold("slow", 1)
    hold("slow", 1, minutes=0.5)
    make_job("busy", run_at=minutes_ago(1))
    assert problems(admin_page.get(pages.OVERVIEW)) == []


def test_jobs_that_run__are_counted_for_each_task(admin_page: Client) -> None:
    make_worker("django-worker-1", tasks=["slow", "busy"], concurrency=4)
    hold("slow", 2)
    hold("busy", 1)
    hold("busy", 3, worker="node-worker")
    make_job("busy", run_at=minutes_ago(1))
    response = admin_page.get(pages.OVERVIEW)
    assert sorted(running(response)) == [("busy", "4"), ("slow", "2")]
    assert problems(response) == []
