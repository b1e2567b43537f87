"""The overview page."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker import pause
from django_graphile_worker.admin.formatting import EMPTY_VALUE
from django_graphile_worker.admin.overview import figures
from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, record_statistics, text
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import execute
from tests.support.recorded_statistics import WORKER_ID, append_and_fold


def test_tiles_count_each_job_once(admin_page: Client) -> None:
    make_job("send", run_at=minutes_ago(90))
    make_job("send", run_at=minutes_ago(-5))
    make_job("send", run_at=minutes_ago(-5), attempts=2, last_error="no")
    make_job("send", locked_by="worker")
    make_failed_job("send")
    make_worker("django-worker-1", tasks=["send"])
    shown = text(admin_page.get(pages.OVERVIEW))
    expected = "1 Ready 1 h Oldest ready job 1 Scheduled 1 Running 1 Retrying 1 Failed 1 Worker alive"
    assert expected in shown


def test_table_of_queues__shows_no_age_for_jobs_that_are_due_later(admin_page: Client) -> None:
    make_queue("later")
    make_job("send", queue_name="later", run_at=minutes_ago(-60))
    make_queue("due")
    # Half a minute more than the age: the clock may be set between two statements.
    make_job("send", queue_name="due", run_at=minutes_ago(61.5))
    shown = text(admin_page.get(pages.OVERVIEW))
    assert f"later 1 {EMPTY_VALUE}" in shown
    assert "due 1 1 h 1 min" in shown


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


def charts(response: Any) -> dict[str, Any]:
    """Return the charts of a page by their names, in their order."""
    return {chart.name: chart for chart in (*response.context["charts"], *response.context["more_charts"])}


def tile(response: Any, label: str) -> Any:
    return next(each for each in response.context["tiles"] if each.label == label)


def make_many(number: int, *, is_due: bool = True) -> None:
    make_job("many")
    execute(
        "insert into {schema}._private_jobs (task_id, run_at, payload) select (select id from {schema}._private_tasks"
        " where identifier = 'many'), now() + %s * interval '1 hour', '{}' from generate_series(2, %s)",
        [-1 if is_due else 1, number],
    )


def sample(**columns: int) -> None:
    names = "".join(f", {name}" for name in columns)
    places = ", %s" * len(columns)
    execute(
        f"insert into {{schema}}._private_backlog_samples (minute, sampled_at, tasks{names})"
        f" values (date_trunc('minute', now()), now() - interval '20 seconds', %s{places})",
        [json.dumps({"many": [columns["ready"], 0, 0]}), *columns.values()],
    )


def test_a_large_backlog__is_counted_by_the_samples(admin_page: Client) -> None:
    """Beyond the limit of the page the number comes from the last minute, so that a reader sees it shrink."""
    make_many(5100)
    sample(ready=61_234)
    response = admin_page.get(pages.OVERVIEW)
    ready = tile(response, "Ready")
    assert ready.value == "about 61,200"
    assert re.fullmatch("Counted 2. s ago", ready.note)
    assert response.context["tasks"][0].ready == "about 61,200"
    assert tile(response, "Scheduled").value == "0", "exact where it is cheap"


def test_a_large_backlog_without_samples__is_estimated(admin_page: Client) -> None:
    # Without the pages of rows that earlier tests have rolled back: the estimate reads some of all pages.
    execute("truncate {schema}._private_jobs")
    make_many(6000)
    ready = tile(admin_page.get(pages.OVERVIEW), "Ready")
    assert ready.note.startswith("Estimated")
    assert ready.value.startswith("about ")
    assert 5_000 <= int(ready.value.removeprefix("about ").replace(",", "")) <= 7_000


def test_oldest_ready_job__is_no_job_of_paused_work(admin_page: Client) -> None:
    paused = make_job("paused", run_at=minutes_ago(300))
    job = make_job("send", run_at=minutes_ago(7.5))
    assert pages.job_url(paused) in tile(admin_page.get(pages.OVERVIEW), "Oldest ready job").url
    pause(task="paused")
    oldest = tile(admin_page.get(pages.OVERVIEW), "Oldest ready job")
    assert (oldest.value, oldest.url) == ("7 min", pages.job_url(job))


def test_axes_and_units__are_text(admin_page: Client, worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    minute = record_statistics(worker_schema, "send", succeeded=1234)
    now = datetime.fromtimestamp(minute + 30, UTC)
    monkeypatch.setattr(figures, "timezone", SimpleNamespace(now=lambda: now))
    units = {
        "hour": "jobs per minute, 1-minute buckets",
        "day": "jobs per 10 minutes, 10-minute buckets",
        "week": "jobs per hour, 1-hour buckets",
    }
    for span, unit in units.items():
        response = admin_page.get(pages.OVERVIEW, {"span": span})
        assert "<text" not in pages.body(response)
        throughput = response.context["charts"][0]
        assert throughput.unit == f"{unit}; cancelled jobs are not counted"
        assert throughput.value_labels == ["2,000", "1,000", "0"]
        assert throughput.table[-1][1] == ["1,234", "0", "0"]
        assert throughput.table[-1][0].endswith("(so far)")


def test_charts_of_a_queue_and_a_worker(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "send", succeeded=10)
    execute(
        "insert into {schema}._private_statistics"
        " select period_seconds, each.kind, started_at, each.name, array[4] || counts[2:]"
        " from {schema}._private_statistics as known, (values ('queue', 'eu<b>'), ('worker', 'w-1'))"
        " as each (kind, name) where known.name = 'send'"
    )
    shown = admin_page.get(pages.OVERVIEW)
    assert [(label, [name for _, name, _ in options]) for label, options in shown.context["subject_groups"]] == [
        ("Tasks", ["send"]),
        ("Queues", ["eu<b>"]),
        ("Workers", [WORKER_ID, "w-1"]),
    ]
    assert [chart.name for chart in shown.context["charts"]] == ["throughput", "backlog"]
    assert [*charts(shown)][2:] == ["running", "waiting", "failures", "added"]
    for query in ({"of": "queue:eu<b>"}, {"queue": "eu<b>"}, {"worker": "w-1"}, {"of": "worker:w-1"}):
        response = admin_page.get(pages.OVERVIEW, query)
        assert "4 jobs succeeded" in text(response)
        assert [*charts(response)] == ["throughput", "running", "waiting", "failures"]
        assert "Backlog and added jobs are counted for all jobs together." in text(response)
    assert "0 jobs succeeded" in text(admin_page.get(pages.OVERVIEW, {"queue": "unheard of"}))


def test_time_without_a_worker__is_a_gap_in_the_backlog(admin_page: Client) -> None:
    for minutes in (3, 10, 11):
        execute(
            "insert into {schema}._private_backlog_samples (minute, sampled_at, ready, last_job_id) values"
            " (date_trunc('minute', now()) - %s * interval '1 minute', now() - %s * interval '1 minute', 5, %s)",
            [minutes, minutes, 5000 - 60 * minutes],
        )
    shown = charts(admin_page.get(pages.OVERVIEW))
    backlog, added = shown["backlog"], shown["added"]
    assert [values[0] for _, values in backlog.table].count("5") == 3
    assert [values[0] for _, values in backlog.table].count(EMPTY_VALUE) == 57
    assert [values[0] for _, values in added.table if values[0] != EMPTY_VALUE] == ["1"]


@pytest.mark.parametrize("history", [None, "1 day"])
def test_expired_jobs__are_counted_and_charted(
    admin_page: Client, worker_schema: str, settings: Any, history: str | None
) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"HISTORY": history and timedelta(days=1)}
    record_statistics(worker_schema, "send", succeeded=7)
    execute("select {schema}._private_count_expired(array['remind', 'remind', 'send'], now())")
    with connection.cursor() as cursor:
        append_and_fold(cursor, [], schema=worker_schema)
    for span in ("hour", "day", "week"):
        page = admin_page.get(pages.OVERVIEW, {"span": span})
        assert charts(page)["expired"].summary == "3 expired"
        rows = {row.identifier: row for row in page.context["tasks"]}
        assert (rows["remind"].expired, rows["send"].expired) == ("2 expired", "1 expired")
        assert "2 expired" in text(page)
    of_task = admin_page.get(pages.OVERVIEW, {"task": "remind"})
    assert charts(of_task)["expired"].summary == "2 expired"
    if history:
        listed = admin_page.get(rows["remind"].expired_url)
        assert (listed.status_code, "task:remind outcome:expired" in pages.body(listed)) == (200, True)
    else:
        assert rows["remind"].expired_url == ""


def test_charts__leave_out_expired_jobs_if_there_are_none(admin_page: Client, worker_schema: str) -> None:
    record_statistics(worker_schema, "send", succeeded=7)
    assert "expired" not in charts(admin_page.get(pages.OVERVIEW))


def test_table_of_queues__says_that_a_queue_is_paused(admin_page: Client) -> None:
    make_job("send", queue_name="mails", run_at=minutes_ago(2))
    pause(queue="mails")
    shown = text(admin_page.get(pages.OVERVIEW))
    assert re.search(r"mails 1 2 min (\S+ s )?paused", shown)
    assert "infinity" not in shown
