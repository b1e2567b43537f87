"""Who may change a schedule: the permission of the model, and the permission of the task.

Only tasks with ``schedulable=True`` can be scheduled in the admin. A user who changes a schedule needs the permission
of the task that the schedule has, and of the task that it gets. A superuser can also stop what nobody may schedule:
delete or disable it.
"""

from __future__ import annotations

import inspect
from typing import Any

from django.contrib.auth import get_permission_codename
from django.core import checks
from django.http import HttpRequest

from django_graphile_worker import registry
from django_graphile_worker.admin import databases
from django_graphile_worker.admin.list_page import ListPageAdmin, ListPageChecks
from django_graphile_worker.admin.visible_jobs import ids_subquery
from django_graphile_worker.models import Schedule
from django_graphile_worker.registry import schedule_codename

_APP = Schedule._meta.app_label
PERMISSION_METHODS = tuple(
    f"has_{name}_permission"
    for name in ("view", "change", "delete", "disable", "run", "pause_schedule", "duplicate", "view_payload")
)


def task_permission(identifier: str) -> str | None:
    """Return the permission that a user needs to schedule a task; None if the admin schedules it for no user."""
    task = registry.tasks.get(identifier)
    schedulable = False if task is None else task.schedulable
    if schedulable is True:
        return f"{_APP}.{schedule_codename(identifier)}"
    return schedulable or None


def may_schedule(user: Any, identifier: str) -> bool:
    """Return whether a user may have schedules of this task; the permission of the model is another question."""
    permission = task_permission(identifier)
    return permission is not None and bool(user.has_perm(permission))


def schedulable_tasks(user: Any) -> list[str]:
    """Return the tasks that a user may schedule, by name."""
    return [task.identifier for task in registry.tasks if task.schedulable and may_schedule(user, task.identifier)]


def may_change_item(user: Any, codename: str, identifier: str) -> bool:
    """Return whether a user may run or pause an item of the crontab.

    The code has scheduled the task, so a task that is not schedulable needs no permission of its own.
    """
    if not user.has_perm(f"{_APP}.{codename}"):
        return False
    return task_permission(identifier) is None or may_schedule(user, identifier)


class ScheduleChecks(ListPageChecks):
    """A check of the methods that decide about a schedule: those of Django's documentation take a request only."""

    def check(self, admin_obj: Any, **options: Any) -> list[checks.CheckMessage]:
        return super().check(admin_obj, **options) + [
            checks.Error(
                f"{type(admin_obj).__name__}.{name}() cannot be called with a request and a schedule.",
                hint=f"Write it as: def {name}(self, request, obj=None).",
                obj=type(admin_obj),
                id="graphile_worker.E027",
            )
            for name in PERMISSION_METHODS
            if not _takes_schedule(getattr(admin_obj, name))
        ]


def _takes_schedule(method: Any) -> bool:
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return False
    return True


class SchedulePermissionsAdmin(ListPageAdmin):
    """The permissions of the pages about schedules. With a schedule, each one includes the permission of its task."""

    checks_class = ScheduleChecks

    def has_view_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Return whether the user may see the list, or a schedule.

        The permission to see recurring tasks opens the list, too. It then has only the items of the crontab.
        """
        may_see_items = obj is None and self.has_app_permission(request, "view_recurringtask")
        return may_see_items or self.sees_schedules(request)

    def sees_schedules(self, request: HttpRequest) -> bool:
        """Return whether the user may see schedules of the database."""
        return super().has_view_permission(request)

    def sees_items(self, request: HttpRequest) -> bool:
        """Return whether the user may see the items of the crontab.

        A user for whom `get_queryset` leaves schedules out needs the permission to see recurring tasks.
        """
        return (
            self.has_app_permission(request, "view_recurringtask")
            or ids_subquery(self.get_queryset(request), databases.selected_alias(request)) is None
        )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._has_model_permission(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        return self._has_model_permission(request, "change") and self.may_edit(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        # What no code has any more, workers delete only if it is due.
        is_left_over = obj is not None and obj.is_from_code and not obj.is_in_code
        return self._has_model_permission(request, "delete") and (
            is_left_over or self.may_edit(request, obj) or self.may_stop(request, obj)
        )

    def has_disable_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Return whether the user may disable a schedule; to enable it, the user needs the permission to change it."""
        return self._has_model_permission(request, "change") and (
            self.may_edit(request, obj) or self.may_stop(request, obj)
        )

    def has_run_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        return self._has_model_permission(request, "run") and self.may_touch(request, obj)

    def has_pause_schedule_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        return self._has_model_permission(request, "pause") and self.may_touch(request, obj)

    def has_duplicate_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Return whether the user may add a copy of a schedule."""
        return self.has_add_permission(request) and self.sees_schedules(request) and self.may_edit(request, obj)

    def has_item_permission(self, request: HttpRequest, action: str, identifier: str) -> bool:
        """Return whether the user may ``run`` or ``pause`` an item of the crontab with this task."""
        return may_change_item(request.user, f"{action}_recurringtask", identifier)

    def has_view_payload_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "view_payload")

    def may_touch(self, request: HttpRequest, obj: Schedule | None) -> bool:
        """Return whether the user may schedule the task that a schedule has.

        If the code has scheduled a task that is not schedulable, the user needs no permission of the task.
        """
        if obj is None or (obj.is_from_code and task_permission(obj.task) is None):
            return True
        return may_schedule(request.user, obj.task)

    def may_edit(self, request: HttpRequest, obj: Schedule | None) -> bool:
        """Return whether the user may change the definition: that of a schedule of the code is in the code."""
        return obj is None or (not obj.is_from_code and may_schedule(request.user, obj.task))

    def may_stop(self, request: HttpRequest, obj: Schedule | None) -> bool:
        """Return whether the user may end a schedule whose task is not schedulable in the admin."""
        return (
            obj is not None
            and not obj.is_from_code
            and task_permission(obj.task) is None
            and bool(getattr(request.user, "is_superuser", False))
        )

    def _has_model_permission(self, request: HttpRequest, action: str) -> bool:
        return self.has_app_permission(request, get_permission_codename(action, Schedule._meta))
