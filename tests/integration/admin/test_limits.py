"""The limits page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from django_graphile_worker import Limit, task
from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.audit import message_of
from django_graphile_worker.registry import tasks
from tests.support import admin_pages as pages
from tests.support.admin_pages import text
from tests.support.factories import minutes_ago
from tests.support.limits import make_key, park_job, run_job
from tests.support.operating import execute

ACCOUNT = "account:{account}"
NUMBERS = pages.LIMITS + "numbers/"
NONE = formatting.EMPTY_VALUE


@pytest.fixture(autouse=True)
def limited_tasks() -> Iterator[None]:
    with tasks.isolated():
        task("send", limit=Limit(ACCOUNT, concurrency=3, rate="100/m", fair=True))(lambda payload: None)
        yield


def test_keys_at_their_limit__are_shown_with_who_waits_and_since_when(admin_page: Client) -> None:
    key = make_key(ACCOUNT, "account:42")
    running = run_job(key, "send")
    # The claim of this place has ended.
    run_job(key, "send", token="worker-1/2")
    execute("update {schema}._private_jobs set locked_by = null, locked_at = null where locked_by = 'worker-1/2'")
    for minutes in (30, 20):
        park_job(key, "send", run_at=minutes_ago(minutes), blocked_at=minutes_ago(minutes - 10))
    make_key(ACCOUNT, "account:idle")
    shown = text(admin_page.get(pages.LIMITS))
    ago = r"min( \d+ s)? ago"
    assert re.search(rf"account:42 send account:{{account}} 3 at once, 100/m 2 a place 20 {ago} 30 {ago} 1 / 3", shown)
    assert re.search(rf"send #{running} 1 {ago}", shown)
    assert "account:idle" not in shown
    assert f"account:{{account}} fair 3 100/m {NONE} send code and settings Change…" in shown


@pytest.mark.parametrize(
    ("column", "minutes", "reason"),
    [
        ("closed_until", -5, "a task closed it; it opens in "),
        ("opens_at", -5, "its rate; the next start is in "),
        ("opens_at", 5, "a worker: its rate allows a start"),
        ("closed_until", 5, "a place"),
    ],
)
def test_reason__says_what_jobs_wait_for(admin_page: Client, column: str, minutes: int, reason: str) -> None:
    columns: dict[str, Any] = {column: minutes_ago(minutes)}
    park_job(make_key(ACCOUNT, "account:1", **columns), "send")
    assert reason in text(admin_page.get(pages.LIMITS))


def test_search__finds_a_key_by_its_text(admin_page: Client) -> None:
    park_job(make_key(ACCOUNT, "account:1"), "send")
    make_key(ACCOUNT, "account:2")
    shown = text(admin_page.get(pages.LIMITS, {"q": "account:2"}))
    assert f"account:2 account:{{account}} 3 at once, 100/m 0 no job waits {NONE} 0" in shown
    assert "account:1" not in shown
    assert "No job has had this key lately." in text(admin_page.get(pages.LIMITS, {"q": "account:3\x00"}))


def test_pages__follow_the_keys(admin_page: Client) -> None:
    for number in range(60):
        park_job(make_key(ACCOUNT, f"account:{number:02}"), "send")
    first = admin_page.get(pages.LIMITS)
    assert "account:49" in text(first)
    assert "account:50" not in text(first)
    second = admin_page.get(first.context["next_url"])
    assert "account:50" in text(second)
    assert "account:49" not in text(second)
    assert admin_page.get(pages.LIMITS, {"after": "x"}).context["keys"][0]["text"] == "account:00"


def test_page_of_a_job__says_which_key_it_waits_for(admin_page: Client, client_with: Any) -> None:
    job_id = park_job(make_key(ACCOUNT, "token=abc"), "send")
    assert "Waiting for the key token=abc of the limit account:{account}, since" in text(
        admin_page.get(pages.job_url(job_id))
    )
    for url in (pages.job_url(job_id), pages.LIMITS):
        assert "token=abc" not in text(client_with().get(url))
    shown = text(admin_page.get(pages.JOBS, {"state": "limited"}))
    assert f"#{job_id}" in shown
    assert "Limited" in shown


def test_numbers__are_changed_for_all_workers_with_a_permission(admin_page: Client, client_with: Any) -> None:
    key = make_key(ACCOUNT, "account:1")
    park_job(key, "send")
    form = admin_page.get(NUMBERS, {"limit": ACCOUNT})
    assert form.context["form"].initial["concurrency"] == 3
    changed = admin_page.post(NUMBERS, {"limit": ACCOUNT, "concurrency": "5", "rate": "", "burst": ""}, follow=True)
    assert pages.messages(changed) == ["The numbers of account:{account} count for all workers now."]
    assert re.search(rf"fair 5 {NONE} {NONE} send root .* , instead of 3 at once, 100/m Change", text(changed))
    stored = execute("select concurrency, rate_count, changed_by from {schema}._private_limit_overrides")
    assert stored == [(5, None, "root")]
    assert execute("select opens_at <= clock_timestamp() from {schema}._private_limit_keys") == [(True,)]
    (entry,) = LogEntry.objects.all()
    assert message_of(entry) == "Numbers: 5 at once, before: 3 at once, 100/m."
    reset = admin_page.post(NUMBERS, {"limit": ACCOUNT, "reset": "1"}, follow=True)
    assert "send code and settings" in text(reset)
    viewer = client_with()
    assert viewer.get(NUMBERS, {"limit": ACCOUNT}).status_code == 403
    assert viewer.post(NUMBERS, {"limit": ACCOUNT, "concurrency": "9"}).status_code == 403
    assert "Change…" not in text(viewer.get(pages.LIMITS))
    assert client_with("override_limit").get(NUMBERS, {"limit": ACCOUNT}).status_code == 200


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": "often"}, "rate: expected a rate like '100/m'"),
        ({"rate": "5/m", "burst": "9"}, "limit: burst: expected a whole number from 1 to 5, got 9."),
        ({"concurrency": "0"}, "Ensure this value is greater than or equal to 1."),
    ],
)
def test_numbers_that_cannot_be_used__are_refused(admin_page: Client, values: Any, message: str) -> None:
    response = admin_page.post(NUMBERS, {"limit": ACCOUNT, **values})
    assert message in text(response)
    assert execute("select count(*) from {schema}._private_limit_overrides") == [(0,)]


def test_limit_that_does_not_exist__is_not_found(admin_page: Client) -> None:
    assert admin_page.get(NUMBERS, {"limit": "nothing"}).status_code == 404


def test_project_without_limits__has_an_empty_page(admin_page: Client) -> None:
    with tasks.isolated():
        tasks._tasks.pop("send")
        shown = text(admin_page.get(pages.LIMITS))
    assert "No key is at its limit." in shown
    assert "No limits. Add one with @task(limit=Limit(…))." in shown


def test_user_that_may_see_only_some_jobs__sees_no_keys(client_with: Any, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    park_job(make_key(ACCOUNT, "account:42"), "send")
    shown = text(client_with().get(reverse("restricted:graphile_worker_limitkey_changelist")))
    assert "The keys of this page cover all jobs, so they are not shown." in shown
    assert "account:" not in shown
