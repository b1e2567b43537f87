"""Who may change schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import RequestFactory

from django_graphile_worker import registry, task
from django_graphile_worker.admin.schedules.permissions import (
    SchedulePermissionsAdmin,
    may_schedule,
    schedulable_tasks,
    task_permission,
)
from django_graphile_worker.models import Schedule

pytestmark = pytest.mark.django_db

ACTIONS = ("add", "change", "delete", "run", "pause")


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    with registry.tasks.isolated():

        @task("open", schedulable=True)
        def open_to_users(payload: Any) -> None: ...

        @task("own", schedulable="auth.change_user")
        def own(payload: Any) -> None: ...

        @task("plain")
        def plain(payload: Any) -> None: ...

        yield


def _user(*permissions: str, **options: Any) -> User:
    user = User.objects.create_user(f"user{User.objects.count()}", is_staff=True, **options)
    for name in permissions:
        app, codename = name.split(".", 1)
        content_type = ContentType.objects.get_for_model(Schedule if app == "graphile_worker" else User)
        user.user_permissions.add(
            Permission.objects.get_or_create(codename=codename, content_type=content_type, defaults={"name": codename})[
                0
            ]
        )
    return User.objects.get(pk=user.pk)


def _checks(user: User, schedule: Schedule | None) -> dict[str, bool]:
    page = SchedulePermissionsAdmin(Schedule, admin.site)
    request = RequestFactory().get("/")
    request.user = user
    return {
        "change": page.has_change_permission(request, schedule),
        "delete": page.has_delete_permission(request, schedule),
        "disable": page.has_disable_permission(request, schedule),
        "run": page.has_run_permission(request, schedule),
        "pause": page.has_pause_schedule_permission(request, schedule),
        "duplicate": page.has_duplicate_permission(request, schedule),
    }


ALL_OF_THE_MODEL = [f"graphile_worker.{each}_schedule" for each in ("view", *ACTIONS)]


def test_task_permission__is_that_of_the_task_or_of_the_project() -> None:
    found = [task_permission(name) for name in ("open", "own", "plain", "gone")]
    assert found == ["graphile_worker.schedule:open", "auth.change_user", None, None]


@pytest.mark.parametrize(
    ("permissions", "permitted"),
    [
        ((), []),
        (("graphile_worker.schedule:open",), ["open"]),
        (("auth.change_user",), ["own"]),
        (("graphile_worker.schedule:plain", "graphile_worker.schedule:gone"), []),
    ],
)
def test_user__may_schedule_the_tasks_of_the_permissions(permissions: tuple[str, ...], permitted: list[str]) -> None:
    user = _user(*permissions)
    assert schedulable_tasks(user) == permitted
    assert [name for name in ("gone", "open", "own", "plain") if may_schedule(user, name)] == permitted


def test_superuser__may_schedule_what_is_schedulable_and_nothing_else() -> None:
    root = User.objects.create_superuser("root")
    # The demo site has schedulable tasks, too.
    assert {"open", "own"} <= set(schedulable_tasks(root))
    assert "plain" not in schedulable_tasks(root)
    assert not may_schedule(root, "plain")


def test_model_permissions__are_not_enough() -> None:
    assert not any(_checks(_user(*ALL_OF_THE_MODEL), Schedule(task="open")).values())


def test_task_permission__is_not_enough() -> None:
    assert not any(_checks(_user("graphile_worker.schedule:open"), Schedule(task="open")).values())


def test_both_permissions__are_enough() -> None:
    assert all(_checks(_user(*ALL_OF_THE_MODEL, "graphile_worker.schedule:open"), Schedule(task="open")).values())


@pytest.mark.parametrize("name", ["plain", "gone"])
def test_superuser__can_only_stop_what_is_not_schedulable(name: str) -> None:
    allowed = {
        check
        for check, is_allowed in _checks(User.objects.create_superuser("root"), Schedule(task=name)).items()
        if is_allowed
    }
    assert allowed == {"delete", "disable"}
    assert not any(_checks(_user(*ALL_OF_THE_MODEL, f"graphile_worker.schedule:{name}"), Schedule(task=name)).values())


@pytest.mark.parametrize(("name", "needs"), [("open", True), ("plain", False)])
def test_items_of_the_crontab__need_the_permission_of_a_schedulable_task(name: str, needs: bool) -> None:
    page = SchedulePermissionsAdmin(Schedule, admin.site)
    request = RequestFactory().get("/")
    request.user = _user()
    assert not page.has_item_permission(request, "run", name)
    run = Permission.objects.get(codename="run_recurringtask")
    for pauses, expected in ((False, not needs), (True, True)):
        user = _user(*(["graphile_worker.schedule:open"] if pauses else []))
        user.user_permissions.add(run)
        request.user = User.objects.get(pk=user.pk)
        assert page.has_item_permission(request, "run", name) == expected
        assert not page.has_item_permission(request, "pause", name)


def _of_code(name: str, every: timedelta | None) -> Schedule:
    known = registry.tasks.get(name)
    assert known is not None
    known.every = every
    return Schedule(name=name, task=name, is_from_code=True)


@pytest.mark.parametrize("name", ["open", "plain"])
def test_schedule_of_the_code__can_be_paused_and_run_but_not_changed(name: str) -> None:
    schedule = _of_code(name, timedelta(minutes=1))
    for user in (_user(*ALL_OF_THE_MODEL, "graphile_worker.schedule:open"), _user(is_superuser=True)):
        permitted = {check for check, is_permitted in _checks(user, schedule).items() if is_permitted}
        assert permitted == {"run", "pause"}


def test_schedule_of_the_code__needs_the_permission_of_its_task() -> None:
    checks = _checks(_user(*ALL_OF_THE_MODEL), _of_code("open", timedelta(minutes=1)))
    assert not any(checks.values())


def test_schedule_that_is_in_no_code_any_more__can_be_deleted() -> None:
    checks = _checks(_user(*ALL_OF_THE_MODEL), _of_code("open", None))
    assert [check for check, is_permitted in checks.items() if is_permitted] == ["delete"]
