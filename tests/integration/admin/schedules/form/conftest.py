from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from django_graphile_worker import registry, task
from django_graphile_worker.models import Schedule
from tests.support.schedule_forms import MODEL_PERMISSIONS, OwnClient


@dataclass
class Report:
    month: int
    format: Literal["pdf", "csv"] = "pdf"
    since: date | None = None
    tags: list[str] = field(default_factory=list)
    api_token: str = ""


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    with registry.tasks.isolated():

        @task("reports:send", schedulable=True)
        def send(payload: Report) -> None:
            """Send the report of a month."""

        @task("reports:plain", schedulable=True)
        def plain(payload: Any) -> None: ...

        @task("reports:secret", schedulable=True)
        def secret(payload: Any) -> None: ...

        @task("internal:cleanup")
        def cleanup(payload: Any) -> None: ...

        yield


@pytest.fixture
def client_of(db: None) -> Any:
    """Return a factory of clients: the user may do everything with schedules of the named tasks."""

    def make(
        *tasks: str, permissions: tuple[str, ...] = (*MODEL_PERMISSIONS, "view_payload"), name: str = ""
    ) -> Client:
        user = User.objects.create_user(name or f"user{User.objects.count()}", is_staff=True)
        found = Permission.objects.filter(content_type__app_label="graphile_worker", codename__in=permissions)
        assert {each.codename for each in found} == set(permissions)
        content_type = ContentType.objects.get_for_model(Schedule)
        own = [
            Permission.objects.get_or_create(
                content_type=content_type, codename=f"schedule:{each}", defaults={"name": each}
            )[0]
            for each in tasks
        ]
        user.user_permissions.set([*found, *own])
        client = OwnClient()
        client.force_login(user)
        return client

    return make
