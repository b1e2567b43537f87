"""Migration operations: install, adopt, extend, repair and remove the worker schema.

``operation`` has the base class, which runs each operation in one transaction under a lock. ``schema`` and ``indexes``
have the operations that the migrations use, ``receivers`` the receivers of Django's migration signals,
``permissions_of_tasks`` the permissions that ``migrate`` inserts, ``repair`` the work of the command ``repair``. The
statements are in ``sql.install``. The folder may import ``sql`` and ``routing`` and the layers below them. Start
reading with ``schema``.
"""

from __future__ import annotations

from django_graphile_worker.operations.indexes import BuildIndexes
from django_graphile_worker.operations.receivers import (
    install_named_later,
    install_without_migrations,
    keep_waiting_jobs,
)
from django_graphile_worker.operations.schema import CreateFunctions, CreateTables, InstallWorkerSchema

__all__ = [
    "BuildIndexes",
    "CreateFunctions",
    "CreateTables",
    "InstallWorkerSchema",
    "install_named_later",
    "install_without_migrations",
    "keep_waiting_jobs",
]
