"""The check of the workers that are registered in a worker schema."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004 - Django's name

from django_graphile_worker import registry
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.inspection.other_workers import other_workers
from django_graphile_worker.sql.install import catalog, installer

# The functions by which workers of graphile_worker for Rust find and take the jobs of others. Its migration 22 makes
# recover_dead_worker_jobs again, which alone takes nothing.
RUST_RECOVERY = ("worker_heartbeat", "list_orphan_locked_workers")


def check_timeouts(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that all live workers have the same timeout."""
    if catalog.part(cursor, installer.TABLES, schema=schema) is None:
        return []
    timeouts = workers.promised_timeouts(cursor, schema=schema)
    if len(timeouts) < 2:
        return []
    return [
        Warning(
            f"The workers of the schema {schema!r} in the database {alias!r}: expected all of them to have the same "
            f"WORKER_TIMEOUT, got {', '.join(f'{seconds:g}' for seconds in timeouts)} seconds.",
            hint="Each worker is declared dead after its own timeout. Start all workers with the same settings, unless "
            "the difference is intended.",
            id="graphile_worker.W006",
        )
    ]


def check_other_workers(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that no worker of graphile-worker shares the schema while tasks of this project have limits."""
    if not registry.tasks.has_limits or catalog.part(cursor, installer.TABLES, schema=schema) is None:
        return []
    found = other_workers(cursor, schema=schema)
    if not found:
        return []
    limited = sorted(task.identifier for task in registry.tasks if task.limits)
    return [
        Warning(
            f"The schema {schema!r} in the database {alias!r}: expected only workers of this package, as tasks have "
            f"limits ({', '.join(limited)}), got {', '.join(found)}, not registered.",
            hint="It is probably a worker of graphile-worker for Node.js, which knows no limits. Make sure that it has "
            "none of these tasks: the jobs that it runs are neither counted nor kept waiting.",
            id="graphile_worker.W007",
        )
    ]


def check_rust_recovery(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that no worker of graphile_worker for Rust can take the jobs of workers of this package."""
    if not catalog.has_functions(cursor, RUST_RECOVERY, schema=schema):
        return []
    return [
        Warning(
            f"The schema {schema!r} in the database {alias!r} has the functions by which graphile_worker for Rust "
            f"recovers jobs. A Rust worker that uses them takes every job that has run for five minutes here.",
            hint='Drop the functions that the guide "Sharing a queue with Node.js" lists. Rust workers can run without '
            "them.",
            id="graphile_worker.W009",
        )
    ]
