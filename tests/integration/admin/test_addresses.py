"""Every address of the admin that is not a page of the navigation: who may use it, and how."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.jobs import bulk_action
from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.integration.admin.conftest import MakeClient
from tests.integration.admin.test_security import HOSTILE, forbidden_markup
from tests.support import admin_pages as pages
from tests.support.admin_pages import body
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]
# The permissions that each address needs, all of them.
NEEDED = {
    "job/export/": {"view_job"},
    "job/action/{action}/": {"view_job", "reschedule_job"},
    "job/{job}/edit/": {"view_job", "reschedule_job", "view_payload", "add_job"},
    "job/{job}/payload/": {"view_job", "view_payload"},
    "event/": {"view_event"},
    "pastattempt/export/": {"view_pastattempt"},
}
ALL = sorted(set.union(*NEEDED.values(), {"add_job", "complete_job", "dismiss_event"}))
SECRET = "grace@example.org"


@pytest.fixture
def names(db: None) -> dict[str, Any]:
    """What the addresses name: a failed job, and an action of every user."""
    return {"job": make_failed_job("send", payload={"email": SECRET}), "action": uuid4()}


def store_action(client: Client, action: UUID, job_id: int) -> None:
    """Store an action that the user has not confirmed."""
    owner = bulk_steps.Owner(action, "retry", str(client.session["_auth_user_id"]))
    progress = bulk_action.BulkProgress(*owner[1:], str(action), counts={"failed": 1}, found=1, back=pages.JOBS)
    execute("delete from {schema}._private_actions")
    execute("delete from {schema}._private_action_steps")
    with connection.cursor() as cursor:
        bulk_steps.begin_action(cursor, owner, progress.stored(), schema=SCHEMA)
    execute(
        "insert into {schema}._private_action_steps (action_id, number, action, made_by, job_ids)"
        " values (%s, 0, 'retry', %s, %s)",
        [action, owner.made_by, [job_id]],
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
    assert Client().get(url).status_code == 302, "the login"


@pytest.mark.parametrize("address", ["job/action/{action}/", "job/{job}/edit/", "event/dismiss/"])
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
    assert execute("select count(*) from {schema}._private_action_steps") == [(1,)]


def test_nothing__has_a_payload_without_the_permission(client_with: MakeClient, names: dict[str, Any]) -> None:
    client, sees = client_with("reschedule_job", "complete_job"), client_with("view_payload")
    execute("update {schema}._private_jobs set last_error = %s", [f"KeyError: x\n\ntoken={SECRET}"])
    addresses = [f"job/export/?format={each}" for each in ("csv", "json")] + ["job/"]
    for each in addresses:
        url = pages.BASE + each
        shown = [
            b"".join(page) for page in (client.get(url), client.get(url, headers={"X-Graphile-Worker-Refresh": "x"}))
        ]
        assert SECRET.encode() not in b"".join(shown), each
        assert SECRET.encode() in b"".join(sees.get(url)), each
    # Neither the number of rows nor a file may depend on a hidden text.
    for query in (f"payload:{SECRET}", f"-payload:{SECRET}", f"payload.email:{SECRET}", f"-error:{SECRET}"):
        page = client.get(pages.JOBS, {"q": query})
        assert page.context["cl"].search.errors, query
        assert not page.context["cl"].result_list
        assert client.get(pages.JOBS + "export/", {"q": query}).status_code == 302


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
        admin_page.get(pages.JOBS, {"q": hostile, "task": hostile, "queue": hostile, "o": hostile, "p": "1"}),
        admin_page.get(pages.JOBS, {hostile: hostile}, follow=True),
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
