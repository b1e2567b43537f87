"""Permissions to schedule tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.db.models.signals import post_migrate

from django_graphile_worker import registry, task
from django_graphile_worker.operations.receivers import create_task_permissions

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    with registry.tasks.isolated():

        @task("reports:send", schedulable=True)
        def send(payload: Any) -> None: ...

        @task("reports:plain")
        def plain(payload: Any) -> None: ...

        @task("reports:other", schedulable="auth.change_user")
        def other(payload: Any) -> None: ...

        yield


def _permissions() -> dict[str, str]:
    found = Permission.objects.filter(codename__startswith="schedule:reports:")
    assert {each.content_type.natural_key() for each in found} <= {("graphile_worker", "schedule")}
    return {each.codename: each.name for each in found}


def test_migrate__makes_a_permission_for_each_schedulable_task_once() -> None:
    config = apps.get_app_config("graphile_worker")
    for _ in range(2):
        post_migrate.send(config, app_config=config, verbosity=0, interactive=False, using="default", apps=apps)
    assert _permissions() == {"schedule:reports:send": "Can schedule reports:send"}


def test_permissions__are_made_where_users_are(django_assert_num_queries: Any, settings: Any) -> None:
    class NoUsersHere:
        def allow_migrate(self, alias: str, app: str, **hints: Any) -> bool | None:
            return False if app == "auth" else None

    settings.DATABASE_ROUTERS = [NoUsersHere()]
    with django_assert_num_queries(0):
        create_task_permissions(using="default")


def test_permissions__need_the_model_and_the_users(django_assert_num_queries: Any) -> None:
    class Nothing:
        def get_model(self, *names: str) -> Any:
            raise LookupError

    with django_assert_num_queries(0):
        create_task_permissions(using="default", apps=Nothing())
