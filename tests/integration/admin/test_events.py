"""The page of events, and the button that dismisses alarms."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

import django_graphile_worker as gw
from django_graphile_worker.sql import events
from django_graphile_worker.sql.events import ERROR, INFORMATION, NewEvent
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, log_entries, messages, text
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute

DISMISS = pages.EVENTS + "dismiss/"


@pytest.fixture
def add(worker_schema: str, admin_page: Client) -> Any:
    def add(kind: str, subject: str, severity: int = INFORMATION, *, worker_id: Any = None, **details: Any) -> None:
        event = NewEvent(kind=kind, subject=subject, severity=severity, details=details, worker_id=worker_id)
        with connection.cursor() as cursor:
            events.add(cursor, event, schema=worker_schema)

    return add


def told(page: Any) -> str:
    """Return what a user reads, without the spaces that take the place of tags around names."""
    return re.sub(r" (?=[.),])|(?<=\() ", "", text(page))


def user_with(*codenames: str) -> Client:
    user = User.objects.create_user("cleo", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def test_events__are_listed_the_newest_first(admin_page: Client, add: Any) -> None:
    assert "No events." in text(admin_page.get(pages.EVENTS))
    pages.make_worker("django-worker-2", host="web-2")
    add("worker_started", "web-1", worker_id="django-worker-1", host="web-1")
    add("worker_lost", "web-1", ERROR, worker_id="django-worker-1", silent_seconds=62, jobs=7)
    add("jobs_recovered", "web-1", worker_id="django-worker-1", jobs=7, by="django-worker-2")
    gw.pause(queue="<i>eu</i>", reason="<b>why</b>", by="ann", create=True)
    page = admin_page.get(pages.EVENTS)
    shown = told(page)
    assert "Worker lost: web-1 (no heartbeat for 1 min 2 s). 7 jobs were returned by web-2." in shown
    assert shown.index("Queue paused") < shown.index("Worker lost") < shown.index("Worker started")
    assert "<b>why" not in body(page)
    assert '<a href="/admin/graphile_worker/event/?worker=django-worker-1"><bdi>web-1</bdi></a>' in body(page)
    assert "/admin/graphile_worker/job/?q=queue%3A" in body(page)
    assert 'id="gw-events" data-refresh' in body(page)


def test_filters__select_events(admin_page: Client, add: Any) -> None:
    add("worker_started", "web-1", worker_id="django-worker-1")
    add("worker_lost", "web-2", ERROR, worker_id="django-worker-2")
    add("schedule_paused", "nightly")
    execute("update {schema}._private_events set last_at = last_at - interval '2 hours' where subject = 'web-1'")

    def numbers(**query: str) -> int:
        return len(admin_page.get(pages.EVENTS, query).context["rows"])

    assert numbers() == numbers(show="odd", span="odd", before="odd") == 3
    assert numbers(show="problems") == numbers(show="schedules") == 1
    assert numbers(show="workers") == numbers(span="hour") == 2
    assert numbers(worker="django-worker-2") == numbers(worker="web-2") == numbers(q="NIGHT") == 1
    assert "No events match." in text(admin_page.get(pages.EVENTS, {"q": "nothing\x00"}))


def test_pages__end_with_the_oldest_event(admin_page: Client, add: Any) -> None:
    for number in range(60):
        add("schedule_paused", f"item {number:02}")
    first = admin_page.get(pages.EVENTS, {"show": "schedules"})
    second = admin_page.get(first.context["next_url"])
    assert (len(first.context["rows"]), len(second.context["rows"]), second.context["next_url"]) == (50, 10, "")
    assert "item 09" in text(second)
    assert "item 10" not in text(second)


def test_dismissed_alarm__is_gone_from_the_overview_and_named_in_the_list(admin_page: Client, add: Any) -> None:
    add("worker_lost", "web-1", ERROR, worker_id="django-worker-1", silent_seconds=62, jobs=0)
    overview = admin_page.get(pages.OVERVIEW)
    lost = r"Worker lost: web-1 \(no heartbeat for 1 min 2 s\)\. It held no jobs\. (now|[\d.]+ s ago) Dismiss"
    assert re.search(lost, told(overview))
    add("worker_lost", "web-2", ERROR, worker_id="django-worker-2", silent_seconds=70)
    assert "Worker lost 2 times in the last hour: last web-2." in told(admin_page.get(pages.OVERVIEW))
    answer = admin_page.post(DISMISS, {**pages.fields(overview)}, follow=True)
    assert messages(answer) == ["1 event dismissed."]
    assert ("worker_lost", "Dismissed.") in log_entries()
    assert "Worker lost: web-2" in told(answer)
    assert "Dismissed by root." in text(admin_page.get(pages.EVENTS))


def test_permissions__guard_the_page_the_button_and_the_links(add: Any) -> None:
    add("work_paused", "eu", what="queue", name="eu")
    add("schedule_missed", "nightly", events.WARNING, name="nightly", ticks=1)
    viewer = user_with("view_event", "view_overview")
    page = viewer.get(pages.EVENTS)
    assert page.status_code == 200
    assert "/job/?q=" not in body(page)
    assert "show=audit" not in body(page)
    assert viewer.get(pages.EVENTS, {"show": "audit"}).status_code == 403
    assert "Schedule missed: 1 run of nightly." in told(viewer.get(pages.OVERVIEW))
    assert "Dismiss" not in text(viewer.get(pages.OVERVIEW))
    alarm = {"kind": "schedule_missed", "until": "2999-01-01T00:00:00+00:00"}
    assert viewer.post(DISMISS, alarm).status_code == 403


def test_dismissing__refuses_what_is_not_an_alarm(admin_page: Client) -> None:
    assert admin_page.get(DISMISS).status_code == 405
    for odd in ({}, {"kind": "odd", "until": "2026-01-01"}, {"kind": "worker_lost", "until": "2026-99-01T00:00"}):
        assert admin_page.post(DISMISS, odd).status_code == 404


def test_audit_log__shows_what_users_changed(admin_page: Client, add: Any) -> None:
    admin_page.post(pages.PAUSES, {"kind": "queue", "name": "eu", "create": "on", "reason": "repair"})
    assert "root queue eu Paused. Reason: repair" in text(admin_page.get(pages.EVENTS, {"show": "audit"}))
    job_id = make_job("send", run_at=minutes_ago(-60))
    pages.act(admin_page, "run_now", job_id)
    assert f'<a href="{pages.job_url(job_id)}"><bdi>#{job_id}</bdi></a>' in body(
        admin_page.get(pages.EVENTS, {"show": "audit"})
    )
    assert "No changes by users." in text(admin_page.get(pages.EVENTS, {"show": "audit", "before": "1"}))


@pytest.mark.parametrize(
    "details",
    ["[]", "null", '{"jobs": 1e5000}', f'{{"jobs": {"9" * 400}.5, "silent_seconds": 1e400}}', "[" * 5000 + "]" * 5000],
    ids=["array", "null", "many digits", "infinite", "deep"],
)
def test_events__whose_details_python_cannot_read_break_no_page(admin_page: Client, details: str) -> None:
    """Any program with rights to the table can write the details."""
    values = "values ('worker_lost', 3, 'web-1', 'w', now(), now(), %s)"
    columns = "(kind, severity, subject, worker_id, first_at, last_at, details)"
    execute(f"insert into {{schema}}._private_events {columns} {values}", [details])
    for url in (pages.EVENTS, pages.OVERVIEW):
        assert "Worker lost: web-1" in told(admin_page.get(url))


def test_dismiss__leads_to_a_page_that_the_user_may_see(add: Any) -> None:
    response = user_with("dismiss_event").post(DISMISS, {"kind": "worker_lost", "until": "2026-01-01T00:00:00Z"})
    assert response.headers["Location"] == "/admin/"
