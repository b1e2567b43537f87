"""The check of the indexes of a worker schema."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004 - Django's name

from django_graphile_worker.sql.install import catalog, indexes

# Tables that only this package has. Without them, the migrations that create the indexes have not run.
OWN_RELATIONS = {"_private_workers", "_private_statistics"}


def check_indexes(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that every index exists and is valid."""
    if not catalog.relations(cursor, schema=schema) >= OWN_RELATIONS:
        return []
    lacking = indexes.lacking_indexes(cursor, schema=schema)
    if not any(lacking):
        return []
    missing, incomplete = (", ".join(names) or "none" for names in lacking)
    return [
        Warning(
            f"The worker schema {schema!r} in the database {alias!r}: expected all its indexes, got some missing "
            f"({missing}) or incomplete ({incomplete}). With many jobs, finding them is slow.",
            hint=indexes.REMEDY,
            id="graphile_worker.W005",
        )
    ]
