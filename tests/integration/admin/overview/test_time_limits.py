"""What the overview shows while the database is slow, and how many of its open pages read at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection, connections
from django.test import Client, RequestFactory

from django_graphile_worker.admin.formatting import EMPTY_VALUE
from django_graphile_worker.admin.overview import figures, readings
from django_graphile_worker.admin.refreshed_regions import HEADER
from django_graphile_worker.sql import events
from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, text
from tests.support.factories import make_job, minutes_ago

EXPENSIVE = ("count-states", "oldest-ready", "busiest-queues", "task-ages", "task-backlog")


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


class SlowDatabase:
    """An execute wrapper that makes the statements with some tags take longer than they may."""

    def __init__(self, *tags: str) -> None:
        self.tags = tags

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if any(f"gw:{tag} */" in sql for tag in self.tags):
            return execute("select pg_catalog.pg_sleep(600)", None, False, context)
        return execute(sql, params, many, context)


def value(response: Any, label: str = "Ready") -> str:
    return str(next(tile.value for tile in response.context["tiles"] if tile.label == label))


def opened(client: Client, slow: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(readings, "LONGEST_READ", 0.05)
    with connection.execute_wrapper(SlowDatabase(*slow)):
        response = client.get(pages.OVERVIEW)
    monkeypatch.setattr(readings, "LONGEST_READ", 60.0)
    return response


def test_figures_that_take_too_long__are_those_of_the_last_time(
    admin_page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job("send", run_at=minutes_ago(5), queue_name="eu")
    before = admin_page.get(pages.OVERVIEW)
    assert "takes long to count" not in text(before)
    make_job("send", run_at=minutes_ago(1))
    late = opened(admin_page, EXPENSIVE, monkeypatch)
    assert (value(late), [each.ready for each in late.context["tasks"]]) == ("1", ["1"])
    assert [each["name"] for each in late.context["queues"]] == ["eu"]
    assert late.context["is_late"]
    assert "takes long to count" in text(late)
    assert value(admin_page.get(pages.OVERVIEW)) == "2"


def test_figures_that_were_never_read__are_missing_and_alarms_are_not(
    admin_page: Client, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = events.NewEvent(kind="tasks_unserved", subject="", severity=events.WARNING, details={"tasks": ["send"]})
    with connection.cursor() as cursor:
        events.add(cursor, event, schema=worker_schema)
    make_job("send")
    make_worker("django-worker-1", silent=300, tasks=["send"])
    late = opened(admin_page, (*EXPENSIVE, "estimate-backlog"), monkeypatch)
    assert (value(late), value(late, "Oldest ready job"), late.context["tasks"]) == (EMPTY_VALUE, EMPTY_VALUE, [])
    causes = " ".join(str(each.cause) for each in [*late.context["problems"], *late.context["more_problems"]])
    assert "Jobs are ready, but no worker is running." in causes
    assert "Worker lost" in causes
    assert ">send<" in causes


def test_jobs_of_a_task_that_cannot_be_counted__are_not_none(
    admin_page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job("send", run_at=minutes_ago(5))
    (row,) = opened(admin_page, ("task-backlog",), monkeypatch).context["tasks"]
    assert (row.ready, row.oldest, row.failed) == ("1+", "5 min", "")


def test_page_of_a_task__has_the_same_limits(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_job("send", run_at=minutes_ago(5))
    monkeypatch.setattr(readings, "LONGEST_READ", 0.05)
    with connection.execute_wrapper(SlowDatabase("count-states", "error-groups")):
        late = admin_page.get(pages.OVERVIEW, {"task": "send"})
    assert (value(late), late.context["is_late"]) == (EMPTY_VALUE, True)


class Clock:
    """The time of the module that shares figures."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(figures, "time", found)
    return found


class Page:
    """A page that shows one figure, whose reading takes some seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seconds, self.number = clock, 0.0, 0
        # What another request does while this one reads, and what it has shown.
        self.meanwhile: list[Any] = []
        self.shown: list[int] = []

    def __call__(self, *, is_refresh: bool = True) -> Any:
        request = RequestFactory().get("/", headers={HEADER: "none"} if is_refresh else {})
        shown: Any = figures.shared(request, "default", ("page",), self.read)
        return shown.number

    def read(self, last: Any) -> Any:
        self.number += 1
        number = self.number
        if self.meanwhile:
            self.shown.append(self.meanwhile.pop()())
        self.clock.now += self.seconds
        return Figures(number)


class Reader:
    readings: dict[str, Any] = {}


class Figures:
    reader = Reader()

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.fixture
def page(clock: Clock) -> Page:
    return Page(clock)


def test_figures__are_shown_three_times_as_long_as_reading_them_took(clock: Clock, page: Page) -> None:
    page.seconds = 4.0
    assert page() == 1
    clock.now += 11.9
    assert page() == 1
    clock.now += 0.2
    assert page() == 2


def test_one_request__reads_while_the_others_show_the_old_figures(clock: Clock, page: Page) -> None:
    page()
    clock.now += 5
    page.meanwhile = [page]
    assert (page(), page.shown) == (2, [1])
    clock.now += 5
    assert page() == 3, "the lock ends with the reading"
    clock.now += figures.LONGEST_SHOWN + 1
    page.meanwhile = [page]
    assert (page(), page.shown) == (4, [1, 5]), "old figures are not shown for longer"


def test_sites_with_other_services__have_figures_of_their_own(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = connections["default"].settings_dict
    seen = []
    for service in ("one", "two", "one"):
        monkeypatch.setitem(settings, "OPTIONS", {**settings["OPTIONS"], "service": service})
        seen.append(page())
    assert seen == [1, 2, 1]
