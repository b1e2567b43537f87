from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_graphile_worker.admin.overview import readings

MakeClient = Callable[..., Client]

VIEWS = (
    "view_overview",
    "view_job",
    "view_jobqueue",
    "view_schedule",
    "view_worker",
    "view_errorgroup",
    "view_pastattempt",
    "view_pausedwork",
    "view_limitkey",
)


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slow machine read every figure."""
    monkeypatch.setattr(readings, "LONGEST_READ", 60.0)


@pytest.fixture
def client_with(db: None) -> MakeClient:
    """Return a factory of clients. The user is staff, may see all pages, and has the given permissions."""

    def make(*codenames: str, views: tuple[str, ...] = VIEWS, **options: Any) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}", is_staff=True)
        wanted = {*codenames, *views}
        found = Permission.objects.filter(content_type__app_label="graphile_worker", codename__in=wanted)
        assert {permission.codename for permission in found} == wanted
        user.user_permissions.set(found)
        client = Client(**options)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def admin_page(db: None) -> Client:
    """A client of a superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client
