"""The page of a task."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.test import Client

from django_graphile_worker import pause
from django_graphile_worker.admin.formatting import EMPTY_VALUE
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, make_worker, record_statistics, text
from tests.support.factories import make_failed_job, make_job, minutes_ago


def page_of(client: Client, task: str = "send") -> Any:
    return client.get(pages.OVERVIEW, {"task": task})


def tiles(response: Any) -> dict[str, str]:
    return {tile.label: tile.value for tile in response.context["tiles"]}


def test_tiles__count_the_jobs_of_the_task(admin_page: Client) -> None:
    oldest = make_job("send", run_at=minutes_ago(61.5))
    make_job("send", run_at=minutes_ago(-5))
    make_job("send", run_at=minutes_ago(-5), attempts=2, last_error="no")
    make_job("send", locked_by="worker")
    make_failed_job("send")
    make_job("other", run_at=minutes_ago(300))
    make_worker("django-worker-1", tasks=["send"], concurrency=4)
    make_worker("django-worker-2", tasks=["other"], concurrency=9)
    response = page_of(admin_page)
    assert tiles(response) == {
        "Ready": "1",
        "Oldest ready job": "1 h",
        "Scheduled": "1",
        "Running": "1",
        "Retrying": "1",
        "Failed": "1",
        "Workers that run it": "1",
        "Slots in use": "0 / 4",
    }
    by_label = {tile.label: tile.url for tile in response.context["tiles"]}
    assert by_label["Oldest ready job"] == pages.job_url(oldest)
    for state in ("Ready", "Scheduled", "Retrying", "Failed"):
        assert len(pages.listed(admin_page.get(by_label[state]))) == 1, state


def test_durations_and_failures__are_charted(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "send", succeeded=12, failed=3)
    record_statistics(worker_schema, "other", succeeded=500)
    for span in ("hour", "day", "week"):
        response = admin_page.get(pages.OVERVIEW, {"task": "send", "span": span})
        charts = {chart.name: chart.summary for chart in response.context["charts"]}
        assert [*charts] == ["throughput", "running", "waiting", "failures"]
        assert (charts["throughput"], charts["failures"]) == ("12 jobs succeeded", "3 attempts failed")
        assert all(chart.image for chart in response.context["charts"])


def test_errors__are_those_of_the_task(admin_page: Client) -> None:
    make_failed_job("send", error="KeyError: 'x'")
    make_job("send", attempts=1, last_error="KeyError: 'y'", run_at=minutes_ago(-5))
    make_failed_job("other", error="KeyError: 'z'")
    (error,) = page_of(admin_page).context["errors"]
    assert (error["name"], error["number"]) == ("KeyError", "2")
    assert len(pages.listed(admin_page.get(error["jobs_url"]))) == 2


def test_paused_task__has_no_oldest_ready_job(admin_page: Client) -> None:
    make_job("send", run_at=minutes_ago(300))
    pause(task="send")
    assert tiles(page_of(admin_page))["Oldest ready job"] == EMPTY_VALUE


def test_links__lead_to_what_the_user_may_see(admin_page: Client, client_with: MakeClient, settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"HISTORY": timedelta(days=1)}
    make_failed_job("send")
    response = page_of(admin_page)
    for name in ("jobs_url", "history_url", "pause_url", "errors_url", "overview_url"):
        assert admin_page.get(response.context[name]).status_code == 200, name
    assert "send" in body(admin_page.get(response.context["errors_url"]))
    reader = page_of(client_with(views=("view_overview",)))
    assert [reader.context[name] for name in ("jobs_url", "history_url", "pause_url", "errors_url")] == [""] * 4


def test_task_that_nobody_has_heard_of__is_a_page(admin_page: Client) -> None:
    shown = text(page_of(admin_page, "no <b>such</b> task"))
    assert "no <b>such</b> task" in shown
    assert "Task not defined in this project." in shown
