"""The addresses of every page of the admin, from the admin's own list of addresses, so that a new page is included."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import NoReverseMatch, reverse

from django_graphile_worker.models import Job
from tests.support.admin_pages import BASE

# Pages that need a query, and a list with a mistake in its search.
WITH_QUERY = ("limitkey/numbers/?limit=account:%7Baccount%7D", "job/?state=failed&q=taks:mistyped")
LISTS = ("job/?state=ready", "job/?state=limited", "job/?q=task:none_has_this_name")


def addresses() -> list[str]:
    """Return the addresses of all pages, with the failed job of the showcase where a page is about a job."""
    failed = _failed_job()
    found = [reverse(name, args=[failed] if has_job else []) for name, has_job in _pages()]
    return [*found, *(BASE + path for path in WITH_QUERY)]


def _failed_job() -> int:
    return int(Job.objects.get(task__identifier="charge_card", attempts=25).pk)


@cache
def _pages() -> list[tuple[str, bool]]:
    """Return the views that answer a superuser with a page of the package: the name, and whether it is about a job."""
    client = Client(raise_request_exception=True)
    client.force_login(get_user_model().objects.get(username="demo"))
    failed = _failed_job()
    return [
        (name, has_job)
        for name in dict.fromkeys(_names())
        for has_job in (False, True)
        if _is_page(client, name, [failed] if has_job else [])
    ]


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
