"""The export of jobs: exactly those that match, as a file that is written while it is sent."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.signals import request_finished
from django.test import AsyncClient, Client
from django.urls import reverse

from django_graphile_worker import add_job
from django_graphile_worker.admin import databases
from django_graphile_worker.admin.jobs import exporting
from django_graphile_worker.sql.inspection import job_detail, job_list
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import log_entries
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

EXPORT = pages.JOBS + "export/"


def content(response: Any) -> str:
    assert response.streaming
    return bytes(response.getvalue()).decode()


def exported(client: Client, **query: str) -> list[dict[str, Any]]:
    return list(json.loads(content(client.get(EXPORT, {"format": "json", **query}))))


def test_file__has_exactly_what_matches(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "STEP", 3)
    earlier = minutes_ago(20)
    wanted = [
        make_job("send", {"n": n}, priority=n % 3, run_at=minutes_ago(9 - n), updated_at=earlier) for n in range(8)
    ]
    make_job("other")
    make_job("send", run_at="2040-01-01")
    assert sorted(row["id"] for row in exported(admin_page, q="task:send", state="ready")) == wanted
    for query in ({"q": "task:send", "state": "ready"}, {"q": "priority:1", "o": "1"}):
        listed = admin_page.get(pages.JOBS, query).context["cl"].result_list
        assert [row["id"] for row in exported(admin_page, **query)] == [job.pk for job in listed]
    assert len(exported(admin_page)) == 10
    assert exported(admin_page, q="priority:99") == []


def test_csv__has_a_name_and_a_type_and_no_formulas(admin_page: Client) -> None:
    make_job("=1+1", {"a": 1}, priority=-5, key="@key")
    response = admin_page.get(EXPORT, {"format": "csv"})
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"].startswith('attachment; filename="jobs-')
    assert response["Content-Disposition"].endswith('.csv"')
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in response["Cache-Control"]
    (row,) = csv.DictReader(io.StringIO(content(response), newline=""))
    assert (row["task"], row["key"], row["priority"], row["state"]) == ("'=1+1", "'@key", "-5", "ready")
    assert json.loads(row["payload"]) == {"a": 1}


def test_payloads__need_the_permission_and_never_have_secrets(client_with: MakeClient) -> None:
    make_failed_job("send", payload={"email": "ada@example.com", "password": "hunter2"}, error="E: token=hunter2")
    (hidden,) = exported(client_with())
    assert "payload" not in hidden
    assert "hunter2" not in json.dumps(hidden)
    (shown,) = exported(client_with("view_payload"))
    assert shown["payload"] == {"email": "ada@example.com", "password": "••••••"}
    assert client_with(views=("view_overview",)).get(EXPORT).status_code == 403


def test_headers__need_the_permission_on_every_page_and_never_have_secrets(client_with: MakeClient) -> None:
    headers = {"tenant": "acme-inc", "password": "hunter2", "quotes": '"' * 3_800}
    long = add_job("a", headers=headers, flags=["slow"]).id
    short = add_job("a", headers={"tenant": "acme-inc", "password": "hunter2"}).id
    for codenames in ((), ("view_payload",)):
        client = client_with(*codenames, "add_job")
        page = "".join(
            client.get(url).content.decode()
            for url in (pages.JOBS, *(f"{pages.JOBS}{id_}/change/" for id_ in (long, short)))
        )
        assert ("acme-inc" in page) is ("hunter2" in page) is bool(codenames)
    rows = exported(client_with(), o="1")
    assert sorted(row["flags"] for row in rows) == ['{"slow": true}', "{}"]
    assert not any("acme-inc" in json.dumps(row) for row in rows)
    rows = exported(client_with("view_payload"))
    assert [(row["headers"]["tenant"], row["headers"]["password"]) for row in rows] == [("acme-inc", "••••••")] * 2


def test_payload_that_is_too_large__is_left_out(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_detail, "MAX_WHOLE_PAYLOAD", 100)
    make_job("send", {"text": "x" * 100})
    make_job("send", {"text": "y" * 10})
    assert [(row["payload"], row["payload_is_left_out"]) for row in exported(admin_page)] == [
        ({"text": "y" * 10}, False),
        (None, True),
    ]


def test_export__is_logged(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_job("send", updated_at=minutes_ago(1))
    content(admin_page.get(EXPORT, {"q": "task:send", "state": "ready"}))
    assert log_entries() == [("Export", "Export as CSV of “Ready task:send”: 1 row.")]
    response = admin_page.get(EXPORT, {"format": "json"})
    next(iter(response))
    # The receiver of this signal closes the connection of the test.
    monkeypatch.setattr(request_finished, "send", lambda **arguments: [])
    response.close()
    assert log_entries()[-1] == ("Export", "Export as JSON of “All”: stopped. Rows: 1.")


def test_search_with_a_mistake__exports_nothing(admin_page: Client) -> None:
    make_job("send")
    response = admin_page.get(EXPORT, {"q": "priority:x"}, follow=True)
    assert "Nothing was exported" in " ".join(pages.messages(response))


def test_job_that_changes_meanwhile__is_not_there_twice(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job that is read moves to the end of the list at once."""
    monkeypatch.setattr(exporting, "STEP", 2)
    ids = [make_job("send", run_at=minutes_ago(9 - n), updated_at=minutes_ago(20)) for n in range(6)]
    read = job_list.rows

    def read_and_move(cursor: Any, found: Any, **options: Any) -> Any:
        rows = read(cursor, found, **options)
        change = "update {schema}._private_jobs set run_at = now(), updated_at = now() + interval '1 hour'"
        execute(f"{change} where id = any (%s)", [list(found)])
        return rows

    monkeypatch.setattr(job_list, "rows", read_and_move)
    assert [row["id"] for row in exported(admin_page, state="ready")] == ids


def test_users_who_see_some_jobs__export_these(admin_page: Client, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    mine = make_job("mine%x")
    make_job("other")
    response = admin_page.get(reverse("restricted:graphile_worker_job_export"), {"format": "json"})
    assert [row["id"] for row in json.loads(content(response))] == [mine]


def test_database_error__is_a_page_before_the_file_begins(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def time_out(*args: Any, **options: Any) -> Any:
        raise databases.PageTimeoutError("STATEMENT_TIMEOUT")

    monkeypatch.setattr(job_list, "all_job_ids", time_out)
    assert admin_page.get(EXPORT).status_code == 503


def test_memory__does_not_grow_with_the_number_of_jobs(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "STEP", 50)
    make_job("send", {"text": "x" * 1_000})
    copy = "insert into {schema}._private_jobs (task_id, payload) select task_id, payload from {schema}._private_jobs"
    peaks, sizes = [], []
    for doublings in (7, 3):
        for _ in range(doublings):
            execute(copy, [])
        tracemalloc.start()
        sizes.append(sum(len(part) for part in admin_page.get(EXPORT)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[1] > 1_000_000
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 5


@pytest.mark.django_db(transaction=True)
def test_server_with_an_event_loop__gets_the_file_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "STEP", 2)
    for _ in range(5):
        make_job("send")
    client = AsyncClient()
    client.force_login(User.objects.create_superuser("root"))

    async def read_parts() -> list[bytes]:
        response: Any = await client.get(EXPORT, {"format": "csv"})
        assert response.is_async
        return [part async for part in response]

    parts = async_to_sync(read_parts)()
    assert len(parts) > 2
    assert b"".join(parts).count(b"send") == 5
