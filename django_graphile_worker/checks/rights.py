"""The check of row-level security: which tables of a worker schema the role of a connection can read."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error

from django_graphile_worker.sql import row_security
from django_graphile_worker.sql.errors import not_permitted


def check_row_security(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that row-level security hides no table: a hidden table looks empty, and PostgreSQL raises no error."""
    role, tables = row_security.hidden_tables(cursor, schema=schema)
    if not tables:
        return []
    return [
        Error(
            not_permitted(alias, schema, f"got {role!r}, for which {', '.join(tables)} appear empty"),
            hint=f'"manage.py graphile_worker grants {role} --kind worker" prints the SQL for a role that runs jobs.',
            id="graphile_worker.E015",
        )
    ]
