"""Migration operations: install, adopt, extend and remove the worker schema."""

from __future__ import annotations

from django_graphile_worker.operations.functions import ReplaceFunctions
from django_graphile_worker.operations.indexes import BuildIndexes
from django_graphile_worker.operations.receivers import (
    install_named_later,
    install_without_migrations,
    keep_waiting_jobs,
)
from django_graphile_worker.operations.schema import InstallWorkerSchema, RunSchemaFile

__all__ = [
    "BuildIndexes",
    "InstallWorkerSchema",
    "ReplaceFunctions",
    "RunSchemaFile",
    "install_named_later",
    "install_without_migrations",
    "keep_waiting_jobs",
]
