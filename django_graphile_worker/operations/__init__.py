"""Migration operations: install, adopt, extend, repair and remove the worker schema.

``operation`` has the base class, which runs each operation in one transaction under a lock. ``schema``, ``functions``
and ``indexes`` have the operations that the migrations use, ``permissions`` the operation that renames permissions of
the admin, ``receivers`` the receivers of Django's migration signals, ``permissions_of_tasks`` the permissions that
``migrate`` inserts,
``repair`` the work of the command ``repair``. The statements are in ``sql.install``. The folder may import ``sql`` and
``routing`` and the layers below them. Start reading with ``schema``.

To change the schema: write new files for ``sql/ddl``, one for each way, and a migration with ``RunSchemaFile`` (or
``ReplaceFunctions`` for the functions that graphile-worker has too). The name and arguments of an operation in a
released migration never change.
"""

from __future__ import annotations

from django_graphile_worker.operations.functions import ReplaceFunctions
from django_graphile_worker.operations.indexes import BuildIndexes, DropIndexes
from django_graphile_worker.operations.permissions import RenamePermissions
from django_graphile_worker.operations.receivers import (
    install_named_later,
    install_without_migrations,
    keep_waiting_jobs,
)
from django_graphile_worker.operations.schema import InstallWorkerSchema, RunSchemaFile

__all__ = [
    "BuildIndexes",
    "DropIndexes",
    "InstallWorkerSchema",
    "RenamePermissions",
    "ReplaceFunctions",
    "RunSchemaFile",
    "install_named_later",
    "install_without_migrations",
    "keep_waiting_jobs",
]
