"""The page of pauses, and the notice about pauses on every page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_graphile_worker import pause, pauses
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import log_entries, messages, text
from tests.support.factories import make_job, make_queue, minutes_ago

RESUME = pages.PAUSES + "resume/"


def test_every_page__shows_what_is_paused(admin_page: Client) -> None:
    job_id = make_job("send")
    pause(queue="mail", reason="provider is down", by="ann", create=True)
    for url in (*pages.ALL_PAGES, pages.job_url(job_id)):
        shown = text(admin_page.get(url))
        assert "mail" in shown, url
        assert "provider is down" in shown, url
        assert "ann" in shown, url


def test_pages_without_pauses__show_no_notice(admin_page: Client) -> None:
    assert "until it is resumed" not in text(admin_page.get(pages.OVERVIEW))


def test_form__pauses_and_leaves_an_entry(admin_page: Client) -> None:
    make_queue("mail")
    data = {"kind": "queue", "name": "mail", "until": "2099-01-01T12:00", "reason": "provider"}
    response = admin_page.post(pages.PAUSES, data, follow=True)
    assert messages(response) == ["Paused the queue mail."]
    (paused,) = pauses()
    assert (paused.kind, paused.name, paused.reason, paused.by) == ("queue", "mail", "provider", "root")
    assert paused.until is not None
    assert paused.until.year == 2099
    assert log_entries() == [("queue mail", "Paused until Jan. 1, 2099, noon UTC. Reason: provider")]


@pytest.mark.parametrize(("length", "minutes"), [("", None), ("15", 15), ("60", 60), ("1440", 1440)])
def test_form__pauses_for_a_length(admin_page: Client, length: str, minutes: int | None) -> None:
    admin_page.post(pages.PAUSES, {"kind": "flag", "name": "bulk", "length": length})
    (paused,) = pauses()
    if minutes is None:
        assert paused.until is None
    else:
        assert paused.until is not None
        assert abs((paused.until - timezone.now()).total_seconds() - 60 * minutes) < 30


def test_form__prefers_a_time_that_was_filled_in(admin_page: Client) -> None:
    data = {"kind": "flag", "name": "bulk", "length": "15", "until": "2099-01-01T12:00"}
    admin_page.post(pages.PAUSES, data)
    (paused,) = pauses()
    assert paused.until is not None
    assert paused.until.year == 2099


def test_form__suggests_tasks_and_queues(admin_page: Client, client_with: MakeClient, settings: Any) -> None:
    make_job("send", queue_name="mail")
    suggested = admin_page.get(pages.PAUSES).context["names"]
    assert {("send", "task"), ("mail", "queue")} <= set(suggested)
    assert client_with().get(pages.PAUSES).context["names"] == [], "without the permission to pause"
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    assert admin_page.get("/restricted/graphile_worker/pausedwork/").context["names"] == []


def test_form__shows_why_something_cannot_be_paused(admin_page: Client) -> None:
    make_queue("mail")
    shown = text(admin_page.post(pages.PAUSES, {"kind": "queue", "name": "mall"}))
    assert "Did you mean 'mail'? To pause it before its first job is added: tick “Also if it is unknown”." in shown
    assert "in the future" in text(
        admin_page.post(pages.PAUSES, {"kind": "flag", "name": "bulk", "until": "2000-01-01T12:00"})
    )
    assert pauses() == []
    admin_page.post(pages.PAUSES, {"kind": "queue", "name": "mall", "create": "on"})
    assert [paused.name for paused in pauses()] == ["mall"]


def test_button__resumes_and_leaves_an_entry(admin_page: Client) -> None:
    pause(flag="bulk")
    response = admin_page.post(RESUME, {"kind": "flag", "name": "bulk"}, follow=True)
    assert messages(response) == ["Resumed the flag bulk."]
    assert pauses() == []
    assert log_entries() == [("flag bulk", "Resumed.")]
    response = admin_page.post(RESUME, {"kind": "flag", "name": "bulk"}, follow=True)
    assert messages(response) == ["The flag bulk was not paused."]


@pytest.mark.parametrize("data", [{}, {"kind": "planet", "name": "x"}, {"kind": "flag", "name": ""}])
def test_resuming_nonsense__is_not_found(admin_page: Client, data: dict[str, str]) -> None:
    assert admin_page.post(RESUME, data).status_code == 404


def test_pausing__needs_its_permission(client_with: MakeClient) -> None:
    make_queue("mail")
    pause(flag="bulk")
    viewer = client_with()
    page = viewer.get(pages.PAUSES)
    assert "bulk" in text(page)
    assert '<form method="post"' not in pages.body(page).split('id="content-main"')[1]
    assert viewer.post(pages.PAUSES, {"kind": "queue", "name": "mail"}).status_code == 403
    assert viewer.post(RESUME, {"kind": "flag", "name": "bulk"}).status_code == 403
    assert [paused.name for paused in pauses()] == ["bulk"]
    assert client_with("pause_work").post(RESUME, {"kind": "flag", "name": "bulk"}).status_code == 302
    assert pauses() == []


def test_user_without_the_page__sees_the_notice_without_a_link(client_with: MakeClient) -> None:
    pause(flag="bulk", reason="audit")
    response = client_with(views=("view_job",)).get(pages.JOBS)
    assert "audit" in text(response)
    assert pages.PAUSES not in pages.body(response)


def test_queues_page__shows_pauses_and_the_job_that_still_runs(admin_page: Client) -> None:
    running = make_job("send", queue_name="mail", locked_by="worker-1", locked_at=minutes_ago(2))
    make_queue("mail", locked_by="worker-1", locked_at=minutes_ago(2))
    pause(queue="mail", by="ann")
    page = admin_page.get(pages.QUEUES)
    shown = text(page)
    assert "paused until it is resumed , by ann" in shown.replace("resumed, by", "resumed , by")
    assert f"send #{running}" in shown
    assert "Force-unlock" not in shown
    assert "Resume" in shown


def test_many_pauses__are_counted(admin_page: Client) -> None:
    for number in range(12):
        pause(flag=f"flag {number:02}")
    shown = text(admin_page.get(pages.OVERVIEW))
    assert "flag 09" in shown
    assert "flag 10" not in shown
    assert "… and 2 more." in shown


def test_text_of_operators__is_escaped(admin_page: Client, settings: Any) -> None:
    pause(flag="<b>", reason="<script>alert(1)</script>", by="<i>")
    assert "<script>alert" not in pages.body(admin_page.get(pages.OVERVIEW))
