"""The permissions to schedule tasks, which ``migrate`` inserts as it inserts the permissions of models."""

from __future__ import annotations

from typing import Any

from django.apps import apps as installed_apps
from django.db import router

from django_graphile_worker import registry
from django_graphile_worker.routing import APP_LABEL
from django_graphile_worker.task_permissions import schedule_codename


def create_task_permissions(*, using: str, apps: Any = installed_apps, **kwargs: Any) -> None:
    """Insert a permission for each task that has ``schedulable=True``.

    The permission of a task that is not schedulable any more stays, with the users and groups that have it, as those of
    deleted models do.
    """
    try:
        permission, content_type = apps.get_model("auth", "Permission"), apps.get_model("contenttypes", "ContentType")
        schedule = apps.get_model(APP_LABEL, "Schedule")
    except LookupError:
        # The project has no users, or the migrations of this app were undone.
        return
    if not router.allow_migrate_model(using, permission):
        return
    tasks = {schedule_codename(task.identifier): task.identifier for task in registry.tasks if task.schedulable is True}
    if not tasks:
        return
    found, _ = content_type.objects.using(using).get_or_create(app_label=APP_LABEL, model=schedule._meta.model_name)
    known = permission.objects.using(using).filter(content_type=found, codename__in=tasks)
    missing = tasks.keys() - set(known.values_list("codename", flat=True))
    permission.objects.using(using).bulk_create(
        permission(content_type=found, codename=codename, name=f"Can schedule {tasks[codename]}"[:255])
        for codename in sorted(missing)
    )
