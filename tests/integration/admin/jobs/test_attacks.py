"""What users of the list of jobs must not be able to find out, to slow down or to change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.jobs import bulk_action, change_list
from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import ACT, JOBS, SCHEDULES, action_url, confirm, listed, make_worker, messages
from tests.support.factories import make_failed_job, make_job, make_task, minutes_ago
from tests.support.operating import execute


@pytest.mark.parametrize(
    "query", ["payload__icontains=hunter2", "last_error__regex=Zs.c", "priority=1", "task__identifier__startswith=s"]
)
@pytest.mark.parametrize("url", [JOBS, f"{JOBS}export/"])
def test_lookups_that_are_no_filters__are_refused(client_with: MakeClient, url: str, query: str) -> None:
    make_failed_job("send", payload={"password": "hunter2"}, last_error="ValueError: Zsecret")
    assert client_with("view_payload").get(f"{url}?{query}").status_code == 400
    assert client_with().get(f"{url}?{query}").status_code == 400


def test_lookups_of_payloads_of_schedules__are_refused(client_with: MakeClient) -> None:
    for query in ("payload__password__startswith=h", "name__regex=(", "cron=%00"):
        assert client_with().get(f"{SCHEDULES}?{query}").status_code == 400


def test_a_search_has_at_most_thirty_terms(admin_page: Client) -> None:
    page = admin_page.get(JOBS, {"q": "a " * 999})
    assert len(page.context["cl"].chips()) <= 31
    assert "at most" in page.context["cl"].search.errors[0]
    assert len(page.content) < 100_000


def test_all_that_match_a_search__are_all(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_list, "MAX_SEARCHED", 10)
    monkeypatch.setattr(change_list, "STEP", 4)
    for _ in range(25):
        make_job("send", priority=1)
    exported = b"".join(admin_page.get(f"{JOBS}export/?q=priority:1&format=json"))
    assert len(json.loads(exported)) == 25
    asked = admin_page.post(
        f"{JOBS}?q=priority:1", {"action": "delete", "select_across": "1", "index": "0"}, follow=True
    )
    assert "Delete 25 jobs?" in pages.text(asked)
    confirm(admin_page, asked)
    assert not Job.objects.exists()


def test_jobs_are_collected_by_their_ids(admin_page: Client) -> None:
    """With the statistics of a table of 120,000 jobs, a join would compare each job with each id."""
    fill = "insert into {{schema}}._private_jobs (task_id) select {} from generate_series(1, 1000)"
    execute(f"with filled as ({fill.format(make_task('send'))} returning 1) select count(*) from filled")
    plans: list[Any] = []

    def explain(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "gw:collect " in sql and not plans:
            plans.append("")
            with connection.cursor() as cursor:
                cursor.execute(f"explain (format json) {sql}", params)
                plans.append(cursor.fetchone()[0])
        return run(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("analyze")
    execute("update pg_class set reltuples = 120000 where oid = '{schema}._private_jobs'::regclass")
    with connection.execute_wrapper(explain):
        admin_page.post(JOBS, {"action": "fail", "select_across": "1", "index": "0"})
    text = json.dumps(plans)
    assert "jobs_pkey" in text
    assert "Semi" not in text


def test_a_job_that_a_live_worker_has_run_for_hours__is_left_alone(admin_page: Client) -> None:
    worker = make_worker("django-worker-alive", tasks=["send"])
    running = make_job("send", locked_by=worker, attempts=1, locked_at=minutes_ago(300))
    forgotten = make_job("send", locked_by="nobody", attempts=1, locked_at=minutes_ago(300))
    for action in ("delete", "retry"):
        asked = admin_page.post(
            JOBS, {"action": action, "_selected_action": [running, make_failed_job("send")], "index": "0"}, follow=True
        )
        confirm(admin_page, asked)
        assert (Job.objects.get(pk=running).attempts, Job.objects.get(pk=running).locked_at is None) == (1, False)
    confirm(
        admin_page,
        admin_page.post(JOBS, {"action": "delete", "_selected_action": forgotten, "index": "0"}, follow=True),
    )
    assert not Job.objects.filter(pk=forgotten).exists()


def test_an_export_of_redacted_errors__cuts_them_afterwards(client_with: MakeClient) -> None:
    secret = "".join(f"S{number:03}" for number in range(100))
    make_failed_job("send", last_error=f"E: x\n{'a' * 600} password={secret}")
    exported = b"".join(client_with().get(f"{JOBS}export/"))
    assert b"E: x" in exported
    assert b"S099" not in exported


def test_of_two_confirmations__the_first_counts(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_steps, "STEP", 2)
    monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 0.0)
    for _ in range(6):
        make_failed_job("send")
    url = action_url(pages.act_on_all(admin_page, "retry", state="failed"))
    load = bulk_action.load

    def load_late(*arguments: Any) -> Any:
        found = load(*arguments)
        monkeypatch.setattr(bulk_action, "load", load)
        admin_page.post(url, {})
        return found

    monkeypatch.setattr(bulk_action, "load", load_late)
    page = admin_page.post(url, {}, follow=True)
    while action_url(page):
        page = admin_page.post(url, {}, follow=True)
    assert messages(page) == ["6 jobs will be retried now."]


def test_a_flag__is_searched_by_the_operator_of_postgresql(admin_page: Client) -> None:
    job_id = make_job("send", flags={"1": True})
    make_job("send")
    execute("create schema evil")
    execute("create function evil.f(jsonb, jsonb) returns bool language sql as 'select 1 / 0 = 1'")
    execute("create operator evil.? (function = evil.f, leftarg = jsonb, rightarg = jsonb)")
    execute("set search_path = public, evil")
    try:
        for query in ("flag:1", '"1"'):
            assert [job.pk for job in listed(admin_page.get(JOBS, {"q": query}))] == [job_id]
        assert len(listed(admin_page.get(JOBS, {"q": "-flag:1"}))) == 1
    finally:
        execute("set search_path to default")
        execute("drop schema evil cascade")


@pytest.mark.parametrize("query", ["created:..", "-created:..", "due:.."])
def test_an_empty_period__is_an_error(admin_page: Client, query: str) -> None:
    make_job("send")
    page = admin_page.get(JOBS, {"q": query})
    assert (listed(page), len(page.context["cl"].search.errors)) == ([], 1)


def test_values_that_cannot_be_meant__are_no_server_error(admin_page: Client) -> None:
    for query in ("p=-1", "task=%00", "_changelist_filters=x"):
        assert admin_page.get(f"{JOBS}export/?{query}").status_code < 500
    for url in (JOBS, SCHEDULES):
        assert (
            admin_page.post(url, {"action": "delete", "_selected_action": ["abc", ""], "index": "0"}).status_code < 500
        )
    given = {"action": "delete", "id": "9" * 5_000, "q": "a\x00", "back": "/\x00"}
    assert admin_page.post(ACT, given).status_code < 500
    assert admin_page.post(ACT, {**given, "all": "1"}).status_code < 500
