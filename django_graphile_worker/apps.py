from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import AppConfig
from django.db import Error, connections, transaction
from django.db.models.signals import post_migrate, pre_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_graphile_worker.gc_pause import objects_that_stay

with objects_that_stay():
    from django_graphile_worker import registry, routing

logger = logging.getLogger("django_graphile_worker.database")

# As Django's reloader marks, and ours, the process that does the work.
DJANGO_AUTORELOAD_ENV = "RUN_MAIN"


class GraphileWorkerConfig(AppConfig):
    """Find every installed app's tasks, check them, and log what happens."""

    name = "django_graphile_worker"
    label = routing.APP_LABEL
    verbose_name = _("Graphile Worker")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        # The first models bring the database driver along: for the collector, 35 ms.
        with objects_that_stay():
            super().import_models()

    def ready(self) -> None:
        with objects_that_stay():
            # Not at the top: they reach Django's models, which are not loaded yet there.
            from django_graphile_worker import checks
            from django_graphile_worker.logs import receivers

            with _errors_left_to_the_worker():
                autodiscover_modules("tasks")
        checks.register_checks()
        receivers.connect()
        pre_migrate.connect(keep_waiting_jobs, sender=self, dispatch_uid="django_graphile_worker.jobs")
        post_migrate.connect(install_without_migrations, sender=self, dispatch_uid="django_graphile_worker.schema")
        post_migrate.connect(install_named_later, sender=self, dispatch_uid="django_graphile_worker.named_later")
        post_migrate.connect(register_task_names, sender=self, dispatch_uid="django_graphile_worker.task_names")


@contextmanager
def _errors_left_to_the_worker() -> Iterator[None]:
    """Under ``runworker --reload`` two processes load the tasks: who only watches leaves it to the other to fail."""
    try:
        yield
    except Exception:
        if not _is_watching():
            raise


def _is_watching() -> bool:
    is_worker_command = bool({"runworker", "graphile_worker"} & set(sys.argv[1:2]))
    return is_worker_command and "--reload" in sys.argv and os.environ.get(DJANGO_AUTORELOAD_ENV) != "true"


def keep_waiting_jobs(**arguments: Any) -> None:
    # Here, and not at the top, as below: of all commands only migrate needs this and Django's migrations, for 7 ms.
    from django_graphile_worker import operations

    operations.keep_waiting_jobs(**arguments)


def install_without_migrations(**arguments: Any) -> None:
    from django_graphile_worker import operations

    operations.install_without_migrations(**arguments)


def install_named_later(**arguments: Any) -> None:
    from django_graphile_worker import operations

    operations.install_named_later(**arguments)


def register_task_names(*, using: str, **kwargs: Any) -> None:
    """Make a row for each task, so that nobody who adds a job waits for another's transaction to make it."""
    from django_graphile_worker.sql import tasks as sql_tasks
    from django_graphile_worker.sql.install import catalog

    if connections[using].vendor != "postgresql":
        return
    for schema in [place.settings.schema for place in routing.all_places() if place.using == using]:
        try:
            with transaction.atomic(using=using), connections[using].cursor() as cursor:
                if "_private_tasks" in catalog.relations(cursor, schema=schema):
                    sql_tasks.register_tasks(cursor, registry.tasks.usable_identifiers(), schema=schema)
        except Error as error:
            # A convenience must not fail a deployment: the names are made again as jobs are added.
            logger.warning("Task names were not registered in the database %r: %s", using, error)
