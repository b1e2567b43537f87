"""Translation of database errors into exceptions of this package, whose messages explain what to do."""

from __future__ import annotations

from collections.abc import Iterable

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS

from django_graphile_worker.exceptions import GraphileWorkerError, InvalidJobError, SchemaError

# Raised by the schema's functions and constraints for values that no job can have.
INVALID_JOB = {"22003", "22008", "23514"}
# invalid_schema_name, undefined_table, undefined_object
NOT_INSTALLED = {"3F000", "42P01", "42704"}
# undefined_function, ambiguous_function: nothing is installed, or another program has replaced the functions
FOREIGN_FUNCTIONS = {"42883", "42725"}
INSUFFICIENT_PRIVILEGE = "42501"
PROGRAM_LIMIT_EXCEEDED = "54000"


def translated(error: BaseException, *, alias: str, schema: str) -> GraphileWorkerError | None:
    """Return the exception for a database error, or None when the error is not about jobs or their schema."""
    code = sqlstate(error)
    if code is None:
        return None
    if code.startswith("GWB") or code in INVALID_JOB:
        return InvalidJobError(_first_line(error))
    if code in FOREIGN_FUNCTIONS:
        return SchemaError(foreign_functions(alias, schema, _first_line(error)))
    if code in NOT_INSTALLED:
        return SchemaError(not_installed(alias, schema))
    if code == INSUFFICIENT_PRIVILEGE:
        return SchemaError(not_permitted(alias, schema, _first_line(error)))
    if code == PROGRAM_LIMIT_EXCEEDED and "NOTIFY" in str(error):
        return GraphileWorkerError(notify_queue_is_full(alias))
    return None


def sqlstate(error: BaseException) -> str | None:
    """Return the SQLSTATE of a database error, wrapped by Django or not."""
    code = getattr(error.__cause__, "sqlstate", None) or getattr(error, "sqlstate", None)
    return str(code) if code else None


def not_installed(alias: str, schema: str) -> str:
    option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return (
        f"The database {alias!r} has no worker schema {schema!r}, or an incomplete one. "
        f'{_install_app()}Run "manage.py migrate graphile_worker{option}". If the schema was dropped or renamed after '
        f'a migrate, "manage.py check --database {alias}" says what to do.'
    )


def older_schema(alias: str, schema: str, missing: Iterable[str]) -> str:
    option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return (
        f"The worker schema {schema!r} in the database {alias!r} is that of an earlier release of "
        f"django-graphile-worker, without {', '.join(missing)}. "
        f'Run "manage.py migrate graphile_worker{option}", then start the worker again.'
    )


def foreign_functions(alias: str, schema: str, got: str) -> str:
    option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return (
        f"The worker schema {schema!r} in the database {alias!r} does not have the functions of "
        f"django-graphile-worker: {got}. {_install_app()}"
        f'Run "manage.py migrate graphile_worker{option}"; if it has nothing to do, another program has replaced them: '
        f'run "manage.py graphile_worker repair{option}".'
    )


def _install_app() -> str:
    return "" if apps.is_installed("django_graphile_worker") else 'Add "django_graphile_worker" to INSTALLED_APPS. '


def not_permitted(alias: str, schema: str, why: str, *, role: str = "") -> str:
    name = f" {role!r}" if role else ""
    return (
        f"The role{name} may not use the worker schema {schema!r} in the database {alias!r}: {why}. "
        "Row-level security hides its tables from every role but their owner: connect as the owner, or let the owner "
        'run the SQL that "manage.py graphile_worker grants <role>" prints; --kind worker is for workers.'
    )


def notify_queue_is_full(alias: str) -> str:
    return (
        f"The NOTIFY queue of the server of the database {alias!r} is full: nothing was committed. "
        "A session that listens has a transaction open for long: find it with pg_stat_activity and end it. "
        "add_job() sends no notification from 90% on; a NOTIFY of the site's own in the same transaction still fails."
    )


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
