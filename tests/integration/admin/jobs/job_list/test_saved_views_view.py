"""Saved views of the list of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_graphile_worker.admin.saved_views import saved_views
from django_graphile_worker.models import SavedView
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, log_entries, messages, text
from tests.support.factories import make_failed_job
from tests.support.operating import execute

VIEWS_PAGE = pages.JOBS + "views/"
SEARCH = {"q": "task:send", "state": "failed", "sort": "time", "columns": "created", "size": "100"}


def save(client: Client, name: str, **fields: Any) -> Any:
    return client.post(VIEWS_PAGE, {**SEARCH, "name": name, **fields}, follow=True)


def names(client: Client) -> list[str]:
    return [view.name for view in client.get(pages.JOBS).context["saved_views"]]


def change(client: Client, view: str, change: str, **fields: str) -> Any:
    chosen = SavedView.objects.get(name=view)
    return client.post(VIEWS_PAGE, {"view": chosen.pk, "change": change, **fields}, follow=True)


def test_view__leads_back_to_the_same_list(client_with: MakeClient) -> None:
    client = client_with("view_payload")
    wanted = make_failed_job("send")
    make_failed_job("other")
    page = client.get(pages.JOBS, SEARCH)
    form = client.get(page.context["save_url"])
    assert pages.fields(form).items() >= SEARCH.items()
    response = save(client, "My failures")
    assert "Saved the view “My failures”." in messages(response)
    (view,) = client.get(pages.JOBS).context["saved_views"]
    shown = client.get(view.url)
    assert [row.id for row in shown.context["rows"]] == [wanted]
    assert (shown.context["columns"], shown.context["size"], shown.context["sort"]) == (("created",), 100, "time")
    assert shown.context["saved_views"][0].is_current
    save(client, "My failures", q="task:other")
    assert SavedView.objects.get().parameters["q"] == "task:other", "the same name replaces the view"


def test_views__belong_to_their_user(client_with: MakeClient) -> None:
    mine, others = client_with(), client_with()
    save(mine, "Mine")
    assert (names(mine), names(others)) == (["Mine"], [])
    for name in ("rename", "delete", "unshare"):
        assert change(others, "Mine", name, name="Taken").status_code == 404
    assert client_with(views=("view_overview",)).get(VIEWS_PAGE).status_code == 403


def test_views__are_renamed_and_deleted(client_with: MakeClient) -> None:
    client = client_with()
    save(client, "One")
    save(client, "Two")
    change(client, "One", "rename", name="Three")
    assert names(client) == ["Three", "Two"]
    for name in ("Two", "", "x" * 101):
        assert messages(change(client, "Three", "rename", name=name))[0].startswith("Expected a name")
    change(client, "Two", "delete")
    assert names(client) == ["Three"]
    assert change(client, "Three", "nonsense").status_code == 404


def test_sharing__needs_its_permission_and_is_logged(client_with: MakeClient) -> None:
    shares, sees = client_with("share_savedview"), client_with()
    save(sees, "Private", is_shared="on")
    assert not SavedView.objects.get().is_shared
    assert change(sees, "Private", "share").status_code == 403
    save(shares, "Public", is_shared="on")
    assert names(sees) == ["Private", "Public"]
    assert log_entries() == [("Public", "Shared.")]
    assert "Shared by user" in body(sees.get(pages.JOBS))
    assert change(sees, "Public", "delete").status_code == 403
    change(client_with("share_savedview"), "Public", "unshare")
    assert names(sees) == ["Private"]


def test_names__may_have_any_characters(client_with: MakeClient) -> None:
    client = client_with("share_savedview")
    name = "\"><script>alert(1)</script>\u202e'%s"
    save(client, name, q="\x00" + "<b>", is_shared="on")
    for url in (pages.JOBS, VIEWS_PAGE):
        page = client.get(url)
        assert "<script>alert" not in body(page)
        assert "<b>" not in body(page)
    assert names(client) == [name]


def test_number_of_views__is_limited_and_they_take_one_query(
    client_with: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_views, "MOST_VIEWS", 2)
    client = client_with()
    numbers = []
    for name in ("1", "2"):
        save(client, name)
        with CaptureQueriesContext(connection) as queries:
            client.get(pages.JOBS)
        numbers.append(len(queries))
    assert numbers[0] == numbers[1]
    assert "Expected at most 2 saved views" in text(save(client, "3"))


@pytest.mark.parametrize("parameters", ["[1, 2]", '"x"', "null", '{"q": {"a": 1}, "state": null, "size": 5}'])
def test_view__that_another_program_wrote_breaks_no_page(client_with: MakeClient, parameters: str) -> None:
    columns = "(owner, owner_name, name, parameters, is_shared)"
    execute(
        f"insert into {{schema}}._private_saved_views {columns} values ('0', '<b>', '<script>', %s, true)", [parameters]
    )
    for url in (pages.JOBS, VIEWS_PAGE):
        page = client_with().get(url)
        assert "&lt;script&gt;" in body(page)
    (view,) = client_with().get(pages.JOBS).context["saved_views"]
    assert view.url == pages.JOBS
