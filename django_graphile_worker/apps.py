from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import mail
from django.db import Error, connections, transaction
from django.db.models.signals import post_migrate, pre_migrate
from django.utils.module_loading import module_has_submodule
from django.utils.translation import gettext_lazy as _

from django_graphile_worker import conf, operations, registry, routing
from django_graphile_worker.logs import receivers
from django_graphile_worker.sql import cleanup
from django_graphile_worker.sql import workers as sql_tasks
from django_graphile_worker.sql.install import catalog
from django_graphile_worker.telemetry import observers

logger = logging.getLogger("django_graphile_worker.database")

# The environment variable that Django's reloader, and runworker --reload, set in the process that they watch.
DJANGO_AUTORELOAD_ENV = "RUN_MAIN"


class GraphileWorkerConfig(AppConfig):
    """The app configuration: imports every ``tasks.py``, registers checks, and connects receivers of signals."""

    name = "django_graphile_worker"
    label = routing.APP_LABEL
    verbose_name = _("Graphile Worker")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Late import: some checks need models, which are loaded after this module.
        from django_graphile_worker import checks

        with _errors_left_to_the_worker():
            import_task_modules()
        checks.register_checks()
        receivers.connect()
        observers.connect()
        pre_migrate.connect(operations.keep_waiting_jobs, sender=self, dispatch_uid="django_graphile_worker.jobs")
        pre_migrate.connect(operations.keep_older_workers, sender=self, dispatch_uid="django_graphile_worker.versions")
        post_migrate.connect(
            operations.install_without_migrations, sender=self, dispatch_uid="django_graphile_worker.schema"
        )
        post_migrate.connect(
            operations.install_named_later, sender=self, dispatch_uid="django_graphile_worker.named_later"
        )
        post_migrate.connect(register_task_names, sender=self, dispatch_uid="django_graphile_worker.task_names")
        post_migrate.connect(
            operations.create_task_permissions, sender=self, dispatch_uid="django_graphile_worker.task_permissions"
        )
        post_migrate.connect(empty_after_flush, sender=self, dispatch_uid="django_graphile_worker.flush")
        if _serves_in_development() and conf.has_runserver_worker():
            # Late import: other processes do not need the worker.
            from django_graphile_worker.worker.process import beside_runserver

            beside_runserver.start()


def import_task_modules() -> None:
    """Import the module ``tasks`` of each installed app that has one, so that its tasks are registered."""
    excluded = conf.excluded_task_modules()
    for app in apps.get_app_configs():
        name = f"{app.name}.tasks"
        if name in excluded or not module_has_submodule(app.module, "tasks"):
            continue
        try:
            import_module(name)
        except Exception as error:
            error.add_note(
                f"django-graphile-worker imported {name}: it imports the module 'tasks' of each installed app, to find "
                f'its tasks. To leave this one out: GRAPHILE_WORKER["EXCLUDE_TASK_MODULES"] = ["{name}"].'
            )
            raise


@contextmanager
def _errors_left_to_the_worker() -> Iterator[None]:
    """Ignore errors in ``tasks.py`` in the process that watches for ``runworker --reload``: the worker reports them."""
    try:
        yield
    except Exception:
        if not _is_watching():
            raise


def _is_watching() -> bool:
    is_worker = sys.argv[1:2] == ["runworker"] or sys.argv[1:3] == ["graphile_worker", "run"]
    return is_worker and "--reload" in sys.argv and os.environ.get(DJANGO_AUTORELOAD_ENV) != "true"


def _serves_in_development() -> bool:
    """Return True in the process of runserver that serves requests; not in the one that watches it."""
    serves = os.environ.get(DJANGO_AUTORELOAD_ENV) == "true" or "--noreload" in sys.argv
    return sys.argv[1:2] == ["runserver"] and serves and settings.DEBUG


def register_task_names(*, using: str, **kwargs: Any) -> None:
    """Insert a row for each task, so that adding a job does not wait for another transaction that inserts the row."""
    if connections[using].vendor != "postgresql":
        return
    for schema in [place.settings.schema for place in routing.all_places() if place.using == using]:
        try:
            with transaction.atomic(using=using), connections[using].cursor() as cursor:
                if "_private_tasks" in catalog.relations(cursor, schema=schema):
                    sql_tasks.register_tasks(cursor, registry.tasks.usable_identifiers(), schema=schema)
        except Error as error:
            # The rows are a convenience, and their absence must not fail a deployment: add_job() inserts them, too.
            logger.warning("Task names were not registered in the database %r: %s", using, error)


def empty_after_flush(*, using: str, **kwargs: Any) -> None:
    """Empty the tables of the worker after each test that commits, as Django does with those of the models.

    Django flushes only the tables of managed models, and then sends ``post_migrate``.
    """
    # Only migrate passes on its plan. Outside a test run, which collects mail in an outbox, flush leaves jobs alone.
    if "plan" in kwargs or not hasattr(mail, "outbox") or connections[using].vendor != "postgresql":
        return
    for place in routing.places_in(using):
        schema = place.settings.schema
        try:
            with transaction.atomic(using=using), connections[using].cursor() as cursor:
                if "_private_jobs" in catalog.relations(cursor, schema=schema):
                    cleanup.delete_everything(cursor, schema=schema)
        except Error:
            # The test has broken the schema on purpose, or holds a lock on it.
            continue
