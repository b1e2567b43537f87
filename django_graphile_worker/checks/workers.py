"""The check of the workers that are registered in a worker schema."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004 - Django's name

from django_graphile_worker.sql import workers
from django_graphile_worker.sql.install import catalog


def check_timeouts(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that all live workers have the same timeout."""
    if catalog.part(cursor, workers.PART, schema=schema) is None:
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
