"""Migration operations: install, adopt, extend, repair and remove the worker schema.

``schema_operations`` has the operations of the migrations, ``receivers`` the receivers of Django's migration signals,
and ``repair`` the work of the command ``repair``. The statements are in ``sql.install``.
"""

from __future__ import annotations

from django_graphile_worker.operations.receivers import (
    create_task_permissions,
    install_named_later,
    install_without_migrations,
    keep_older_workers,
    keep_waiting_jobs,
)
from django_graphile_worker.operations.schema_operations import (
    BuildIndexes,
    CreateFunctions,
    CreateTables,
    InstallWorkerSchema,
)

__all__ = [
    "BuildIndexes",
    "CreateFunctions",
    "CreateTables",
    "InstallWorkerSchema",
    "create_task_permissions",
    "install_named_later",
    "install_without_migrations",
    "keep_older_workers",
    "keep_waiting_jobs",
]
