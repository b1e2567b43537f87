"""Every address of the admin that is not a page of the navigation: who may use it, and how."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_graphile_worker.admin.jobs.actions import bulk_progress
from django_graphile_worker.models import Job, SavedView
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.integration.admin.conftest import MakeClient
from tests.integration.admin.test_security import HOSTILE, forbidden_markup
from tests.support import admin_pages as pages
from tests.support.admin_pages import body
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

# The permissions that each address needs, all of them.
NEEDED = {
    "job/complete/?typed=task:": {"view_job"},
    "job/export/": {"view_job"},
    "job/views/": {"view_job"},
    "job/undo/{action}/": {"view_job", "reschedule_job"},
    "job/{job}/edit/": {"view_job", "reschedule_job", "view_payload", "add_job"},
    "job/{job}/payload/": {"view_job", "view_payload"},
    "event/": {"view_event"},
    "pastattempt/export/": {"view_pastattempt"},
}
ALL = sorted(set.union(*NEEDED.values(), {"add_job", "complete_job", "dismiss_event", "share_savedview"}))
SECRET = "grace@example.org"


@pytest.fixture
def names(db: None) -> dict[str, Any]:
    """What the addresses name: a failed job, and an action of every user."""
    return {"job": make_failed_job("send", payload={"email": SECRET}), "action": uuid4()}


def store_action(client: Client, action: UUID, job_id: int) -> None:
    columns = "(action_id, number, action, made_by, job_ids, done_at, changed_ids)"
    execute("delete from {schema}._private_action_steps")
    execute(
        f"insert into {{schema}}._private_action_steps {columns} values (%s, 0, 'retry', %s, %s, now(), %s)",
        [action, str(client.session["_auth_user_id"]), [job_id], [job_id]],
    )


@pytest.mark.parametrize("address", NEEDED)
def test_address__needs_all_its_permissions(client_with: MakeClient, names: dict[str, Any], address: str) -> None:
    url, needed = pages.BASE + address.format(**names), NEEDED[address]
    for held in (set(), *({each} for each in ALL), *(set(ALL) - {each} for each in ALL), set(ALL)):
        client = client_with(*held, views=())
        store_action(client, names["action"], names["job"])
        response = client.get(url)
        assert response.status_code == (200 if held >= needed else 403), held
        if held >= needed:
            assert "no-store" in response.headers["Cache-Control"]
        else:
            assert client.post(url, {"name": "x", "payload": "{}", "revision": "0"}).status_code == 403
    assert Job.objects.get().payload == {"email": SECRET}
    assert not SavedView.objects.exists()
    assert Client().get(url).status_code == 302, "the login"


@pytest.mark.parametrize("address", ["job/views/", "job/undo/{action}/", "job/{job}/edit/", "event/dismiss/"])
def test_change__needs_a_token_and_post(admin_page: Client, names: dict[str, Any], address: str) -> None:
    store_action(admin_page, names["action"], names["job"])
    url = pages.BASE + address.format(**names)
    fields = {"name": "x", "payload": "{}", "revision": "0", "kind": "worker_lost", "until": "2026-01-01T00:00:00Z"}
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())
    before = [*Job.objects.values_list()]
    assert strict.post(url, fields).status_code == 403
    assert admin_page.get(url, fields).status_code in (200, 405)
    assert [*Job.objects.values_list()] == before
    assert not SavedView.objects.exists()
    assert execute("select count(*) from {schema}._private_action_steps") == [(1,)]


def test_nothing__has_a_payload_without_the_permission(client_with: MakeClient, names: dict[str, Any]) -> None:
    client, sees = client_with("reschedule_job", "complete_job"), client_with("view_payload")
    execute("update {schema}._private_jobs set last_error = %s", [f"KeyError: x\n\ntoken={SECRET}"])
    addresses = [f"job/export/?format={each}" for each in ("csv", "json")] + ["job/?columns=payload,created"]
    for each in addresses:
        url = pages.BASE + each
        shown = [
            b"".join(page) for page in (client.get(url), client.get(url, headers={"X-Graphile-Worker-Refresh": "x"}))
        ]
        assert SECRET.encode() not in b"".join(shown), each
        assert SECRET.encode() in b"".join(sees.get(url)), each
    # Neither the number of rows nor a file or a completion may depend on a hidden text.
    for query in (
        f"id:0 OR payload:{SECRET}",
        f"NOT payload:{SECRET}",
        f"(payload.email:{SECRET})",
        f"-(error:{SECRET})",
    ):
        page = client.get(pages.JOBS, {"q": query})
        assert page.context["mistakes"], query
        other = client.get(pages.JOBS, {"q": query.replace(SECRET, "other")})
        assert len(page.context["rows"]) == len(other.context["rows"])
        assert client.get(pages.JOBS + "export/", {"q": query}).status_code == 302
    for typed in ("payload:", f"payload:{SECRET[:3]}", "error:", "limit:", SECRET[:3]):
        assert SECRET not in body(client.get(pages.JOBS + "complete/", {"typed": typed}))


def test_views_of_others__are_not_changed(client_with: MakeClient) -> None:
    owner, other, sharer = client_with(), client_with(), client_with("share_savedview")
    owner.post(pages.JOBS + "views/", {"name": "private", "q": "task:send"})
    view = SavedView.objects.get()
    for client in (other, sharer):
        for change in ("rename", "delete", "share", "unshare"):
            sent = {"view": view.pk, "change": change, "name": "mine"}
            assert client.post(pages.JOBS + "views/", sent).status_code == 404
    assert owner.post(pages.JOBS + "views/", {"view": view.pk, "change": "share"}).status_code == 403
    SavedView.objects.update(is_shared=True)
    for change in ("rename", "delete", "unshare"):
        assert other.post(pages.JOBS + "views/", {"view": view.pk, "change": change, "name": "x"}).status_code == 403
    assert SavedView.objects.get().name == "private"


def test_progress__is_of_its_user_and_action(client_with: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_steps, "STEP", 1)
    monkeypatch.setattr(bulk_progress, "LONGEST_REQUEST", 0.0)
    for _ in range(3):
        make_job("send", run_at=minutes_ago(-9))
    own, other = client_with("reschedule_job"), client_with("reschedule_job", "complete_job")
    page = own.post(pages.ACT, {"action": "run_now", "all": "1", "confirmed": "1"})
    sent = dict(page.context["hidden_fields"])
    before = Job.objects.filter(run_at__gt=minutes_ago(0)).count()
    assert 0 < before < 3
    assert other.post(pages.ACT, sent).status_code == 404
    assert own.post(pages.ACT, {**sent, "action": "run_next"}).status_code == 404
    assert own.post(pages.ACT, {**sent, "progress": sent["progress"][:-2] + "xx"}).status_code == 404
    assert Job.objects.filter(run_at__gt=minutes_ago(0)).count() == before
    assert own.post(pages.ACT, sent).status_code in (200, 302)
    assert Job.objects.filter(run_at__gt=minutes_ago(0)).count() < before


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text__becomes_markup(admin_page: Client, hostile: str) -> None:
    failed = make_failed_job(hostile[:120], payload={hostile: hostile}, error=f"{hostile}: x", queue_name=hostile[:120])
    make_job(hostile[:120], key=hostile, flags={hostile: True}, run_at=minutes_ago(-9))
    kinds = ("worker_lost", "work_paused", "limit_changed", "schedule_missed", "tasks_unserved", hostile)
    keys = ("name", "by", "by_host", "reason", "host", "what", "holder", "workers", "error")
    details = {**dict.fromkeys(keys, hostile), "tasks": [hostile], "job_ids": [1]}
    columns = "(kind, severity, subject, worker_id, first_at, last_at, details, dismissed_by)"
    for kind in kinds:
        execute(
            f"insert into {{schema}}._private_events {columns} values (%s, 3, %s, %s, now(), now(), %s, %s)",
            [kind, hostile, hostile, json.dumps(details), hostile],
        )
    responses = [
        admin_page.post(pages.JOBS + "views/", {"name": hostile, "q": hostile, "sort": hostile}, follow=True),
        admin_page.get(pages.JOBS + "views/", {"q": hostile, "columns": hostile, "size": hostile, "sort": hostile}),
        admin_page.get(pages.EVENTS, {"worker": hostile}),
        admin_page.get(pages.EVENTS),
        admin_page.get(pages.OVERVIEW, {"of": f"queue:{hostile}", "tasks": hostile}),
        admin_page.get(pages.JOBS, headers={"X-Graphile-Worker-Refresh": "none"}),
        admin_page.get(pages.EVENTS, headers={"X-Graphile-Worker-Refresh": hostile.encode("ascii", "ignore").decode()}),
        admin_page.get(f"{pages.JOBS}{failed}/edit/"),
        admin_page.post(f"{pages.JOBS}{failed}/edit/", {"payload": hostile, "revision": "0"}),
    ]
    for response in responses:
        assert response.status_code == 200, response.request
        assert forbidden_markup(response) == [], response.request
        assert "14{%" not in body(response)
    completed = admin_page.get(pages.JOBS + "complete/", {"typed": "task:"})
    assert completed.headers["Content-Type"] == "application/json"
