"""The order, the pages and the counts of the job list."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser
from django.db import connection, transaction
from django.http import QueryDict
from django.test import Client, RequestFactory
from pytest_django import DjangoDbBlocker

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.jobs.job_list import list_options, list_view
from django_graphile_worker.admin.jobs.job_list.pagination import JobsPage, read_page
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection.job_search import search
from tests.support import admin_pages as pages
from tests.support.factories import make_job, minutes_ago

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


# Every kind of job that an index treats apart.
KINDS: list[dict[str, Any]] = [
    {},
    {"queue_name": "q1"},
    {"queue_name": "q2", "flags": {"a": True}},
    {"flags": {"a": True}},
    {"flags": {"b": True}, "attempts": 1, "last_error": "E: x"},
    {"attempts": 25, "last_error": "F: x"},
    {"attempts": 25, "last_error": None, "queue_name": "q1"},
    {"locked_by": "w"},
]


ORDERS = {
    "ready": ("is_available and run_at <= now()", "priority, run_at, id"),
    "scheduled": ("is_available and run_at > now() and attempts = 0", "run_at, id"),
    "retrying": ("is_available and run_at > now() and attempts > 0", "run_at, id"),
    "running": ("locked_at is not null", "locked_at, id"),
    "failed": ("locked_at is null and attempts >= max_attempts", "updated_at desc, id desc"),
    "all": ("true", "id desc"),
}

# A search by names lists the jobs in any state by their states.
BY_STATE = """case when locked_at is not null then 1 when not is_available then 4
    when run_at <= now() then 2 else 3 end,
    case when locked_at is not null then locked_at end,
    case when is_available and run_at <= now() then priority end, case when is_available then run_at end,
    case when locked_at is null and not is_available then updated_at end desc,
    case when locked_at is null and not is_available then -id else id end"""


SORTS = [
    ("ready", "time", "run_at, id"),
    ("ready", "-time", "run_at desc, id desc"),
    ("ready", "-priority", "priority desc, run_at desc, id desc"),
    ("scheduled", "priority", "priority, run_at, id"),
    ("scheduled", "-priority", "priority desc, run_at desc, id desc"),
    ("scheduled", "-time", "run_at desc, id desc"),
    ("retrying", "-time", "run_at desc, id desc"),
    ("running", "-time", "locked_at desc, id desc"),
    ("failed", "time", "updated_at, id"),
    ("all", "id", "id"),
]
SORTABLE = {
    "ready": {"priority", "time"},
    "scheduled": {"priority", "time"},
    "retrying": {"time"},
    "running": {"time"},
    "failed": {"time"},
    "limited": {"id"},
    "all": {"id"},
}


SQL_OF = {
    "task:task0": f"task_id = (select id from \"{SCHEMA}\"._private_tasks where identifier = 'task0')",
    "task:task1": f"task_id = (select id from \"{SCHEMA}\"._private_tasks where identifier = 'task1')",
    "queue:q1": f"job_queue_id = (select id from \"{SCHEMA}\"._private_job_queues where queue_name = 'q1')",
    "queue:q2": f"job_queue_id = (select id from \"{SCHEMA}\"._private_job_queues where queue_name = 'q2')",
    "flag:a": "flags ? 'a'",
    "priority:0": "priority = 0",
}


def _make_many_jobs() -> None:
    chance = random.Random(3)
    for number in range(160):
        kind = KINDS[number % len(KINDS)]
        when = minutes_ago(chance.choice([10, 5, 5, 1, -1, -5, -5, -10]))
        changed = minutes_ago(chance.choice([1, 2, 2, 3]))
        make_job(f"task{number % 3}", priority=chance.choice([-1, 0, 0, 2]), run_at=when, updated_at=changed, **kind)


def _ids(condition: str, order: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f'select id from "{SCHEMA}"._private_jobs where {condition} order by {order}')
        return [job_id for (job_id,) in cursor.fetchall()]


def _shown_ids(page: Any) -> list[int]:
    return [line.id for line in page.context["rows"]]


def _read(rf: RequestFactory, size: int, parameters: dict[str, str], **positions: str | None) -> JobsPage:
    """Read a page as the list does, without showing it."""
    jobs: Any = admin.site._registry[Job]
    request = rf.get(pages.JOBS, parameters)
    request.user = AnonymousUser()
    with databases.reading("default") as session:
        query = jobs.parse_query(request, session, parameters.get("q", ""))
        state = jobs.requested_state(parameters.get("state"), query.criteria)
        criteria = replace(query.criteria, state=state)
        options = list_options.read_options(request, criteria)
        return read_page(session, criteria, limit=size, order=options.order if options.sort else None, **positions)


def _walk(rf: RequestFactory, *, size: int, **parameters: str) -> list[JobsPage]:
    """Return all pages, from the first on."""
    found = [_read(rf, size, parameters)]
    while found[-1].after:
        found.append(_read(rf, size, parameters, after=found[-1].after))
        assert len(found) < 100
    return found


def _check_previous_pages(rf: RequestFactory, seen: list[JobsPage], *, size: int, **parameters: str) -> None:
    """Walk back from the last page, and compare with the pages that were seen on the way there."""
    page = seen[-1]
    for expected in seen[-2::-1]:
        assert page.before
        page = _read(rf, size, parameters, before=page.before)
        assert list(page.ids) == list(expected.ids), parameters
    assert not page.before


@pytest.fixture(scope="class")
def many_jobs(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Jobs that all tests of a class read, in a transaction around those of the tests."""
    with django_db_blocker.unblock(), transaction.atomic():
        _make_many_jobs()
        yield
        transaction.set_rollback(True)


@pytest.mark.usefixtures("many_jobs")
class TestOrderAndPages:
    @pytest.mark.parametrize("query", ["", "task:task1", "queue:q1", "flag:a", "priority:0", "task:task0 queue:q2"])
    @pytest.mark.parametrize("state", ORDERS)
    def test_pages_contain_all_jobs_in_order(self, rf: RequestFactory, state: str, query: str) -> None:
        condition, order = ORDERS[state]
        if state == "all" and {"task", "queue", "flag"} & set(query.replace(":", " ").split()):
            order = BY_STATE
        extra = " and ".join(SQL_OF[term] for term in query.split()) or "true"
        expected = _ids(f"{condition} and {extra}", order)
        seen = [page.ids for page in _walk(rf, size=7, state=state, q=query)]
        assert list(chain(*seen)) == expected

    @pytest.mark.parametrize("query", ["", "queue:q1", "flag:a"])
    @pytest.mark.parametrize("state", ORDERS)
    def test_previous_pages_are_the_pages_before(self, rf: RequestFactory, state: str, query: str) -> None:
        seen = _walk(rf, size=5, state=state, q=query)
        assert len(seen) > 1 or query
        _check_previous_pages(rf, seen, size=5, state=state, q=query)

    def test_sorted_pages_contain_all_jobs_in_order_in_both_directions(
        self, admin_page: Client, rf: RequestFactory
    ) -> None:
        for state, sort, order in SORTS:
            expected = _ids(ORDERS[state][0], order)
            seen = _walk(rf, size=7, state=state, sort=sort)
            assert list(chain(*(page.ids for page in seen))) == expected, (state, sort)
            _check_previous_pages(rf, seen, size=7, state=state, sort=sort)
            direction = "descending" if sort.startswith("-") else "ascending"
            page = admin_page.get(pages.JOBS, {"state": state, "sort": sort})
            (header,) = [each for each in page.context["headers"] if each.direction]
            assert (header.name, header.direction) == (sort.removeprefix("-"), direction)
            assert f'aria-sort="{direction}"' in pages.body(page)

    @pytest.mark.parametrize("parameters", ["state=scheduled", "state=ready&sort=-time&q=task:task1", "q=flag:a"])
    def test_links_lead_to_the_next_and_the_previous_pages(
        self, admin_page: Client, rf: RequestFactory, monkeypatch: pytest.MonkeyPatch, parameters: str
    ) -> None:
        monkeypatch.setattr(list_options, "DEFAULT_SIZE", 7)
        expected = [list(page.ids) for page in _walk(rf, size=7, **QueryDict(parameters).dict())]
        page = admin_page.get(f"{pages.JOBS}?{parameters}")
        seen = [_shown_ids(page)]
        while url := page.context["next_url"]:
            page = admin_page.get(url)
            seen.append(_shown_ids(page))
        assert seen == expected
        assert len(seen) > 1
        for before in seen[-2::-1]:
            page = admin_page.get(page.context["previous_url"])
            assert _shown_ids(page) == before
        assert not page.context["previous_url"]

    def test_an_order_without_an_index_is_not_offered(self, admin_page: Client) -> None:
        for state, expected in SORTABLE.items():
            page = admin_page.get(pages.JOBS, {"state": state, "sort": "attempts"})
            assert page.context["sort"] == ""
            assert {each.name for each in page.context["headers"] if each.url} == expected

    def test_counts_are_exact_below_the_cap(self, admin_page: Client) -> None:
        counts = {tab["state"]: tab["count"] for tab in admin_page.get(pages.JOBS).context["tabs"]}
        for state, (condition, _) in ORDERS.items():
            with connection.cursor() as cursor:
                cursor.execute(f'select count(*) from "{SCHEMA}"._private_jobs where {condition}')
                (number,) = cursor.fetchone()
            assert counts[state] == str(number)

    def test_counts_stop_at_the_cap(self, admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(list_view, "MOST_COUNTED", 5)
        counts = {tab["state"]: tab["count"] for tab in admin_page.get(pages.JOBS).context["tabs"]}
        assert counts["ready"] == "5+"

    def test_a_search_stops_after_a_limit_and_can_be_continued(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(search, "MOST_EXAMINED_OF_MANY", 20)
        wanted = make_job("task0", {"needle": "yes"}, run_at=minutes_ago(60), priority=5)
        page = admin_page.get(pages.JOBS, {"state": "ready", "q": "payload.needle:yes"})
        looks = 1
        while not page.context["rows"]:
            assert page.context["examined"] == "20"
            page = admin_page.get(page.context["next_url"])
            looks += 1
        assert [line.id for line in page.context["rows"]] == [wanted]
        assert looks > 2
