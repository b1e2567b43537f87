"""Whether the tables of the overview and of the events fit into the page, in Chromium."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import events
from django_graphile_worker.sql.events import ERROR, NewEvent
from tests.browser import showcase
from tests.support.admin_pages import make_worker, record_statistics
from tests.support.factories import make_failed_job, make_job, minutes_ago

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]
LANGUAGES = ("en", "de", "fr")
LONG = "reporting:synchronise_catalogue_with_the_external_provider_of_prices_and_availability"
# SCREENSHOTS=folder stores a screenshot of each page.
SCREENSHOTS = os.environ.get("SCREENSHOTS")
# The tables that are wider than their place.
CUT = """all => all.filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1)
    .map(node => [node.scrollWidth, node.clientWidth, node.innerText.slice(0, 80)])"""
# The names of up to nineteen letters that are on several lines.
BROKEN = """all => all.filter(node => node.innerText.length <= 19 && node.getClientRects().length > 1)
    .map(node => node.innerText)"""


def check(page: Any, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{width}.png", full_page=True)
    assert page.eval_on_selector_all(".gw-scroll", CUT) == [], width
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


@pytest.mark.parametrize("language", LANGUAGES)
def test_overview__is_not_cut(open_page: OpenPage, worker_schema: str, language: str) -> None:
    worker = make_worker("django-worker-1", tasks=["billing:invoice", "catalogue"], concurrency=4)
    for _ in range(4):
        make_job("catalogue:synchronise", locked_by=worker, locked_at=minutes_ago(20))
    for task in ("billing:invoice", LONG):
        for _ in range(3):
            make_job(task, run_at=minutes_ago(1_234))
            make_failed_job(task)
            make_job(task, run_at=minutes_ago(-5), attempts=2, last_error="no")
        record_statistics(worker_schema, task, succeeded=123_456, failed=23_456)
    page = open_page("overview/", locale=language)
    for width in (1440, 1024, 390):
        check(page, f"overview-{language}", width)
        if width == 1440:
            assert page.eval_on_selector_all(".gw-table .gw-name bdi", BROKEN) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_events__are_not_cut(open_page: OpenPage, worker_schema: str, language: str) -> None:
    showcase.fill_events(worker_schema)
    event = NewEvent(kind="tasks_unserved", subject="", severity=ERROR, details={"tasks": [LONG.replace("_", "")]})
    with connection.cursor() as cursor:
        events.add(cursor, event, schema=worker_schema)
    page = open_page("event/", locale=language)
    for width in (1440, 1024, 390):
        check(page, f"event-{language}", width)
