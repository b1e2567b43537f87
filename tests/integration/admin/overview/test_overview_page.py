"""The overview page."""

from __future__ import annotations

from django.test import Client

from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, record_statistics, text
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago


def test_tiles_count_each_job_once(admin_page: Client) -> None:
    make_job("send", run_at=minutes_ago(90))
    make_job("send", run_at=minutes_ago(-5))
    make_job("send", run_at=minutes_ago(-5), attempts=2, last_error="no")
    make_job("send", locked_by="worker")
    make_failed_job("send")
    make_worker("django-worker-1", tasks=["send"])
    shown = text(admin_page.get(pages.OVERVIEW))
    expected = "1 Ready 1 h Oldest ready job 1 Scheduled 1 Running 1 Retrying 1 Failed 1 Workers alive"
    assert expected in shown


def test_charts_and_tables_show_what_workers_recorded(admin_page: Client, worker_schema: str) -> None:
    make_queue("eu")
    make_job("send", queue_name="eu")
    record_statistics(worker_schema, "send", succeeded=1234, failed=5, permanently_failed=1)
    for span in ("hour", "day", "week"):
        shown = text(admin_page.get(pages.OVERVIEW, {"span": span}))
        assert "1,234 jobs succeeded" in shown
        assert "6 attempts failed" in shown
        assert "p50" in shown
    assert "send 1" in shown
    assert "eu 1" in shown


def test_charts_of_a_task_leave_other_tasks_out(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "send", succeeded=10)
    record_statistics(worker_schema, "charge", succeeded=7)
    assert "7 jobs succeeded" in text(admin_page.get(pages.OVERVIEW, {"task": "charge"}))
