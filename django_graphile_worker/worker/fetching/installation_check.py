"""The check of the installation, which a worker makes before it starts."""

from __future__ import annotations

import psycopg

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql import row_security
from django_graphile_worker.sql.errors import not_installed, not_permitted, translated
from django_graphile_worker.worker.database.connection import Database


def check_installation(database: Database) -> None:
    """Raise an error that describes what is wrong with the worker schema, if the worker cannot use it."""
    alias, schema = database.alias, database.schema
    try:
        with database.cursor() as cursor:
            are_installed, are_secured = row_security.worker_tables(cursor, schema=schema)
            role, hidden = row_security.hidden_tables(cursor, schema=schema) if are_secured else ("", ())
    except psycopg.errors.InsufficientPrivilege as error:
        raise translated(error, alias=alias, schema=schema) or error from error
    if not are_installed:
        raise SchemaError(not_installed(alias, schema))
    if hidden:
        raise SchemaError(not_permitted(alias, schema, f"got {role!r}, for which {', '.join(hidden)} appear empty"))
