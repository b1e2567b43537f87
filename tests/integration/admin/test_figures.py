"""Every number of jobs on a page is a link to the list of exactly these jobs."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from django_graphile_worker.registry import tasks
from tests.browser import showcase
from tests.support import admin_pages as pages
from tests.support.factories import make_failed_job

# A link around a number, in a tile or in a table.
FIGURE = re.compile(
    r'<a(?: class="gw-count-link")? href="([^"]*/job/\?[^"]*)">'
    r'(?:<span class="gw-tile-value"><bdi data-age>)?([0-9,]+)\b'
)
PAGES = {pages.OVERVIEW: 12, pages.QUEUES: 1, pages.ERRORS: 11, pages.WORKERS: 2, pages.LIMITS: 3}


def listed(client: Client, url: str) -> int:
    """Return how many jobs a list has, on all its pages."""
    number = 0
    while url:
        page = client.get(url)
        assert page.context["cl"].is_plain or not page.context["cl"].has_more_to_search, url
        number += len(pages.listed(page))
        url = pages.JOBS + following if (following := page.context["cl"].next_url()) else ""
    return number


@pytest.mark.django_db
def test_every_figure__leads_to_the_jobs_that_it_counts(
    admin_page: Client, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Statistics count jobs that have ended.
    monkeypatch.setattr(showcase, "_statistics", lambda schema: None)
    showcase.fill(worker_schema)
    # An exception of two tasks.
    make_failed_job("print_invoice", error="ConnectionError: no printer")
    with tasks.isolated():
        showcase.register_limited_tasks()
        for url, least in PAGES.items():
            figures = FIGURE.findall(pages.body(admin_page.get(url)))
            assert len(figures) >= least, (url, figures)
            for link, number in figures:
                link = html.unescape(link)
                assert listed(admin_page, link) == int(number.replace(",", "")), (url, parse_qs(urlsplit(link).query))
