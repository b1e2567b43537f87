"""The addresses of every page of the admin, from the admin's own list of addresses, so that a new page is included."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import NoReverseMatch, reverse

from django_graphile_worker.models import Job
from tests.support.admin_pages import BASE

# Pages that need a query, and states of pages that show other parts.
VARIANTS = (
    "job/?state=ready",
    "job/?state=failed",
    "job/?state=limited",
    "job/?state=failed&q=taks:mistyped",
    "job/?q=task:none_has_this_name",
    "limitkey/numbers/?limit=account:%7Baccount%7D",
)


def addresses() -> list[str]:
    """Return the addresses that answer a superuser's GET with a page of the package."""
    client = Client()
    client.force_login(get_user_model().objects.get(username="demo"))
    candidates = [*_registered(), *(BASE + variant for variant in VARIANTS)]
    return [address for address in dict.fromkeys(candidates) if _is_page(client, address)]


def _registered() -> Iterator[str]:
    failed = Job.objects.get(task__identifier="charge_card", attempts=25).pk
    for model, page in admin.site._registry.items():
        if model._meta.app_label != "graphile_worker":
            continue
        for pattern in page.get_urls():
            for arguments in ((), (failed,)):
                try:
                    yield reverse(f"admin:{pattern.name}", args=arguments)
                except NoReverseMatch:
                    continue


def _is_page(client: Client, address: str) -> bool:
    response = client.get(address)
    return response.status_code == 200 and not response.streaming and b'class="gw-page"' in response.content
