"""Every page of the admin, from the admin's own list of addresses, so that a new page is included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import NoReverseMatch, reverse

from django_graphile_worker.models import Job, Schedule
from tests.browser.conftest import DESKTOP
from tests.browser.looks import SHORTEN
from tests.support.admin_pages import BASE

# Pages that need a query, a list with an error in its search, and an empty list.
WITH_QUERY = (
    "limitkey/numbers/?limit=account:%7Baccount%7D",
    "job/?state=failed&q=taks:mistyped",
    "schedule/?q=nothing",
)
DANGER = ".gw-heading button.gw-danger"


def visit(page: Any, addresses: Iterable[str]) -> Iterator[str]:
    """Open each page, and a confirmation and a form with an error that buttons lead to, and yield a name for each."""
    waits_for = {"confirmation", "errors"}
    for address in addresses:
        page.set_viewport_size(DESKTOP)
        response = page.goto(address, wait_until="domcontentloaded")
        assert response.status == 200, address
        page.wait_for_selector(".gw-page")
        page.evaluate(SHORTEN)
        yield address
        page.set_viewport_size(DESKTOP)
        if "confirmation" in waits_for and page.locator(DANGER).count():
            waits_for.remove("confirmation")
            page.locator(DANGER).first.click()
            page.wait_for_selector("button.gw-danger-solid")
            yield f"{address} confirmation"
        elif "errors" in waits_for and page.locator("#id_payload").count():
            waits_for.remove("errors")
            page.fill("#id_payload", "{")
            page.click(".gw-page form button.gw-primary")
            page.wait_for_selector(".errorlist")
            yield f"{address} errors"


def addresses() -> list[str]:
    """Return the addresses of all pages, with a job or a schedule of the showcase where a page is about one."""
    subjects = _subjects()
    found = [reverse(name, args=_arguments(subjects, subject)) for name, subject in _pages()]
    return [*found, *(BASE + path for path in WITH_QUERY)]


def _subjects() -> dict[str, int]:
    """Return the ids of what pages are about, by a part of the names of these pages."""
    failed = Job.objects.get(task__identifier="charge_card", attempts=25)
    schedule = Schedule.objects.get(name="Ask for reviews")
    return {"_schedule_": int(schedule.pk), "": int(failed.pk)}


@cache
def _pages() -> list[tuple[str, str | None]]:
    """Return the views that answer a superuser with a page of the package: the name, and what it is about."""
    client = Client(raise_request_exception=True)
    client.force_login(get_user_model().objects.get(username="demo"))
    subjects = _subjects()
    found: list[tuple[str, str | None]] = []
    for name in dict.fromkeys(_names()):
        subject = next(each for each in subjects if each in name)
        found += [(name, each) for each in (None, subject) if _is_page(client, name, _arguments(subjects, each))]
    return found


def _arguments(subjects: dict[str, int], subject: str | None) -> list[int]:
    return [] if subject is None else [subjects[subject]]


def _names() -> Iterator[str]:
    for model, page in admin.site._registry.items():
        if model._meta.app_label == "graphile_worker":
            yield from (f"admin:{pattern.name}" for pattern in page.get_urls() if pattern.name)


def _is_page(client: Client, name: str, arguments: list[int]) -> bool:
    try:
        response = client.get(reverse(name, args=arguments))
    except NoReverseMatch:
        return False
    return response.status_code == 200 and not response.streaming and b'class="gw-page"' in response.content
