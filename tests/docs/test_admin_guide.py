"""The code of the guide to the admin does what the page says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from django_graphile_worker.admin import formatting
from tests.docs.pages import page


@pytest.fixture
def middleware() -> Any:
    (block,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", page("guides/admin.md"), flags=re.DOTALL)
        if "class UserTimeZone" in text
    ]
    namespace: dict[str, Any] = {}
    exec(block, namespace)
    yield namespace["UserTimeZone"](lambda request: formatting.exact_time(datetime(2026, 1, 5, 8, tzinfo=UTC)))
    timezone.deactivate()


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Tokyo", "Jan. 5, 2026, 5 p.m. JST"),
        ("", "Jan. 5, 2026, 8 a.m. UTC"),
        ("../../etc/passwd", "Jan. 5, 2026, 8 a.m. UTC"),
    ],
)
def test_middleware__shows_times_in_the_zone_of_the_user(middleware: Any, zone: str, shown: str) -> None:
    timezone.activate("America/New_York")
    request: Any = HttpRequest()
    request.session = {"time_zone": zone}
    assert middleware(request) == shown


@pytest.mark.parametrize("name", ["ShopJobAdmin", "ShopScheduleAdmin"])
def test_subclass__passes_the_checks_of_django(name: str) -> None:
    """Register the class of the page, and put back the one that was registered before."""
    (block,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", page("guides/admin.md"), flags=re.DOTALL)
        if f"class {name}(" in text
    ]
    registered = dict(admin.site._registry)
    namespace: dict[str, Any] = {}
    try:
        exec(block, namespace)
        (own,) = [each for each in admin.site._registry.values() if type(each) is namespace[name]]
        assert own.check() == []
    finally:
        admin.site._registry = registered
