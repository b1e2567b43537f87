"""No page links to a page that its user may not see."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urldefrag, urljoin

import pytest
from django.test import Client

from tests.integration.admin.conftest import VIEWS, MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, make_worker, record_statistics
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.schedule_rows import make_run, make_schedule

# The permissions of staff users: each page alone, each change alone, and changes with the pages that offer them.
KINDS: dict[str, tuple[str, ...]] = {
    **{view: (view,) for view in VIEWS},
    "adds jobs": ("add_job",),
    "sees and adds jobs": ("view_job", "add_job"),
    "sees payloads": ("view_job", "view_payload"),
    "changes jobs": ("view_job", "reschedule_job", "complete_job", "cancel_job"),
    "repairs errors": ("view_errorgroup", "view_job", "reschedule_job", "complete_job"),
    "sees errors and changes jobs unseen": ("view_errorgroup", "reschedule_job", "complete_job"),
    "pauses queues": ("view_jobqueue", "pause_work"),
    "pauses": ("view_pausedwork", "pause_work"),
    "unlocks queues": ("view_jobqueue", "unlock_worker"),
    "unlocks workers": ("view_worker", "unlock_worker"),
    "changes limits": ("view_limitkey", "override_limit"),
    "sees recurring tasks": ("view_recurringtask",),
    "runs recurring tasks": ("view_recurringtask", "run_recurringtask", "pause_recurringtask"),
    "changes schedules": ("view_schedule", "change_schedule", "delete_schedule", "run_schedule", "pause_schedule"),
    "adds schedules": ("view_schedule", "add_schedule"),
    "has all": (*VIEWS, "add_job", "view_payload", "reschedule_job", "complete_job", "cancel_job"),
}
# These addresses end the session or belong to Django.
FOREIGN = re.compile(r"/(logout|password_change|jsi18n)/")


@pytest.fixture
def busy_queue(worker_schema: str, db: None) -> None:
    """Rows for which the pages have links: jobs in each state, a held queue, workers, figures."""
    make_job("send", queue_name="eu", key="k")
    held = make_job("held", locked_by="w1", queue_name="us")
    make_queue("us", locked_by="w1")
    make_job("later", run_at="2030-01-01")
    make_failed_job("broken", error="KeyError: 'x'")
    make_worker("w1", running=[{"job_id": held, "task": "held", "started_at": 1}], tasks=["send"])
    make_worker("gone", silent=900)
    record_statistics(worker_schema, "send", succeeded=3, failed=1)
    schedule = make_schedule("nightly", "refresh_search_index", last_missed_at=minutes_ago(5))
    make_run(schedule, job_id=held)
    make_run(schedule, kind="missed", minutes_ago=5)
    # Nothing tells what became of its job.
    make_run(schedule, job_id=999_999_999)
    make_schedule("gone", "no_such_task")


def links(response: object, address: str) -> list[str]:
    """Return the addresses that a page links to, on the same site."""
    found = re.findall(r'<a\b[^>]*\shref="([^"]*)"', body(response))
    assert "" not in found, f"{address} has a link without an address"
    inside = (urldefrag(urljoin(address, unescape(each))).url for each in found)
    return [each for each in inside if each.startswith("/admin/") and not FOREIGN.search(each)]


def kind_of(address: str) -> str:
    """Return what addresses of the same page have in common: the path without ids, and the names of the parameters."""
    return re.sub(r"=[^&]*|[0-9]+", "", address)


def crawl(client: Client) -> dict[str, int]:
    """Follow the links from the index to each kind of page, and return the status of each address."""
    statuses: dict[str, int] = {}
    seen: set[str] = set()
    waiting = ["/admin/"]
    while waiting:
        address = waiting.pop(0)
        if kind_of(address) in seen:
            continue
        seen.add(kind_of(address))
        response = client.get(address)
        statuses[address] = response.status_code
        if response.status_code == 200 and not response.streaming:
            waiting += links(response, address)
    return statuses


@pytest.mark.parametrize("kind", KINDS)
def test_links__lead_only_to_pages_that_the_user_may_see(client_with: MakeClient, busy_queue: None, kind: str) -> None:
    client = client_with(*KINDS[kind], views=())
    statuses = crawl(client)
    assert {address: status for address, status in statuses.items() if status not in (200, 302)} == {}
    own = [view for view in KINDS[kind] if view in VIEWS]
    assert len([address for address in statuses if address.startswith(pages.BASE)]) >= len(own)
    if kind == "adds jobs":
        statuses_of_form = {each: client.get(each).status_code for each in links(client.get(pages.ADD), pages.ADD)}
        assert set(statuses_of_form.values()) == {200}
