"""What happens around a migrate: before it loses jobs, and where tests skip it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

from django_graphile_worker import conf
from django_graphile_worker.operations.operation import SchemaOperation, concerns
from django_graphile_worker.operations.schema import check_no_job_is_lost
from django_graphile_worker.sql import installation
from django_graphile_worker.sql.installer import WORKER_SCHEMA


def install_without_migrations(sender: AppConfig, using: str, **kwargs: Any) -> None:
    """Install what the migrations would have: a post_migrate receiver for test runs that skip them all."""
    if not _is_without_migrations(sender) or not concerns(sender.label, connections[using]):
        return
    state = ProjectState()
    with connections[using].schema_editor() as schema_editor:
        for operation in _schema_operations(sender):
            operation.database_forwards(sender.label, schema_editor, state, state)


def keep_waiting_jobs(sender: AppConfig, using: str, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Refuse to migrate back to nothing before the first step of it: a pre_migrate receiver."""
    is_last_step = any(backwards and (step.app_label, step.initial) == (sender.label, True) for step, backwards in plan)
    if not is_last_step or not concerns(sender.label, connections[using]):
        return
    schema = conf.current().schema
    with connections[using].cursor() as cursor:
        found = installation.part(cursor, WORKER_SCHEMA, schema=schema)
        if found and not found.is_adopted:
            check_no_job_is_lost(installation.count_waiting_jobs(cursor, schema=schema), schema)


def _is_without_migrations(app_config: AppConfig) -> bool:
    from django.db.migrations.loader import MigrationLoader

    return MigrationLoader.migrations_module(app_config.label)[0] is None


def _schema_operations(app_config: AppConfig) -> Iterator[SchemaOperation]:
    package = importlib.import_module(f"{app_config.name}.migrations")
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        migration = importlib.import_module(f"{package.__name__}.{name}").Migration
        yield from (operation for operation in migration.operations if isinstance(operation, SchemaOperation))
