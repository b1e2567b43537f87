"""Columns and page size of the list of jobs."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, make_worker, text
from tests.support.factories import make_job
from tests.support.operating import execute


def columns(client: Client, **query: str) -> list[str]:
    return [header.name for header in client.get(pages.JOBS, query).context["headers"]]


def test_payload__is_a_column_with_the_permission(client_with: MakeClient) -> None:
    make_job("send", {"email": "ada@example.com", "password": "hunter2", "text": "x" * 200})
    sees = client_with("view_payload")
    shown = sees.get(pages.JOBS)
    assert '{"email": "ada@example.com", "password": ••••••, "text": "xxx' in text(shown)
    assert "x" * 81 not in body(shown)
    assert "hunter2" not in body(shown)
    hides = client_with()
    assert "payload" not in columns(hides, columns="payload")
    assert "ada@example.com" not in body(hides.get(pages.JOBS))


def test_large_payload__is_not_read(admin_page: Client) -> None:
    job_id = make_job("send")
    execute(
        "update {schema}._private_jobs set payload = (select json_agg(md5(n::text)) from generate_series(1, 9000) as n)"
        " where id = %s",
        [job_id],
    )
    assert "too large for a list" in text(admin_page.get(pages.JOBS))


def test_columns_and_size__are_remembered_and_in_the_address(admin_page: Client) -> None:
    for _ in range(26):
        make_job("send")
    page = admin_page.get(f"{pages.JOBS}?size=25&columns=&columns=created")
    assert len(page.context["rows"]) == 25
    assert "size=25" in page.context["next_url"]
    assert "columns=created" in page.context["next_url"]
    assert len(admin_page.get(pages.JOBS).context["rows"]) == 25, "remembered"
    assert {"created", "payload"} & set(columns(admin_page)) == {"created"}
    assert {"created", "payload"} & set(columns(admin_page, columns="")) == set()
    assert {"created", "payload"} & set(columns(admin_page)) == set()
    for odd in ("0", "9999", "x", "-1", "\x00"):
        assert admin_page.get(pages.JOBS, {"size": odd, "columns": odd, "sort": odd}).status_code == 200
        assert admin_page.get(pages.JOBS).context["size"] == 25


def test_running_jobs__have_their_worker(admin_page: Client, client_with: MakeClient) -> None:
    make_worker("worker/1 ü")
    make_job("send", locked_by="worker/1 ü")
    assert "worker" not in columns(admin_page)
    page = admin_page.get(pages.JOBS, {"state": "running"})
    (row,) = page.context["rows"]
    assert row.worker_url.startswith(f"{pages.WORKERS}#gw-worker-")
    assert row.worker_url in body(page)
    sees_no_workers = client_with(views=("view_job",)).get(pages.JOBS, {"state": "running"})
    assert pages.WORKERS not in body(sees_no_workers)
    assert row.worker in text(sees_no_workers)


@pytest.mark.parametrize("state", ["all", "ready", "running"])
def test_rows__have_a_cell_for_each_header(admin_page: Client, state: str) -> None:
    make_job("send")
    make_job("send", locked_by="w")
    content = body(admin_page.get(f"{pages.JOBS}?state={state}&columns=payload,created"))
    table = content.split("<thead>")[1]
    head, first_row = table.split("</thead>")[0], table.split("<tbody>")[1].split("</tr>")[0]
    assert head.count("<th ") == first_row.count("<td")
