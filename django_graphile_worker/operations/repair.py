"""Repairs the worker schema: undoes changes of others, for which migrate has nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.receivers import migration_state
from django_graphile_worker.operations.schema_operations import BuildIndexes, all_or_nothing
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.install import catalog, indexes, installer
from django_graphile_worker.sql.install.catalog import refuse_breaking_migration

# A foreign function has the same arguments under other names, or another type of result.
INVALID_FUNCTION_DEFINITION = "42P13"
DEPENDENT_OBJECTS_STILL_EXIST = "2BP01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The functions and indexes that a repair has changed."""

    # Functions that were foreign, changed or missing, and were replaced by those of this package.
    restored: tuple[str, ...]
    # Foreign functions of the same names with other arguments, which made calls ambiguous.
    dropped: tuple[str, ...]
    # Indexes that were missing or incomplete.
    built: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.restored or self.dropped or self.built)

    def __str__(self) -> str:
        """Return a line for each kind of change; nothing if nothing was changed."""
        changes = {"Restored": self.restored, "Dropped": self.dropped, "Built": self.built}
        return "\n".join(f"{what}: {', '.join(names)}." for what, names in changes.items() if names)


def repair(alias: str, schema: str, *, builds_indexes: bool = True) -> Repaired:
    """Restore the functions and build missing indexes; jobs can be added and run in the meantime.

    On a large table, each index waits for all transactions that are open.
    """
    connection = connections[alias]
    changed = changed_functions(connection, schema)
    with connection.schema_editor(atomic=False) as schema_editor:
        with all_or_nothing(connection, schema):
            with connection.cursor() as cursor:
                catalog.check_usable(cursor, schema=schema)
                refuse_breaking_migration(cursor, schema=schema)
            restored, dropped = _repair_functions(schema_editor, changed, schema)
        built = _repair_indexes(schema_editor, schema) if builds_indexes else ()
    return Repaired(restored=restored, dropped=dropped, built=built)


def changed_functions(connection: BaseDatabaseWrapper, schema: str) -> dict[str, str]:
    """Return the functions that are not as this version installs them, each with the file that has it.

    Return none while migrations wait, which will install them; if a newer version has migrated the database; and if the
    role may not read which migrations were applied.
    """
    try:
        with transaction.atomic(using=connection.alias):
            if any(migration_state(connection)):
                return {}
    except DatabaseError:
        return {}
    with connection.cursor() as cursor:
        return installer.changed_functions(cursor, schema=schema)


def _repair_functions(
    schema_editor: BaseDatabaseSchemaEditor, changed: Mapping[str, str], schema: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    with schema_editor.connection.cursor() as cursor:
        missing = installer.missing_functions(cursor, schema=schema)
        foreign = installer.foreign_functions(cursor, schema=schema)
        if not missing and not foreign and not changed:
            return (), ()
        filenames = sorted({installer.PUBLIC_FUNCTIONS, *changed.values()}, key=installer.FUNCTION_FILES.index)
        # Migrating an adopted schema back to zero restores the foreign functions that are replaced here.
        replaced = {function.name: function.definition for function in foreign if function.name in missing}
        catalog.add_found_functions(schema_editor.execute, installer.WORKER_SCHEMA, replaced, schema=schema)
        try:
            with transaction.atomic(using=schema_editor.connection.alias):
                installer.restore_functions(schema_editor.execute, filenames, schema=schema)
        except DatabaseError as error:
            if sqlstate(error) != INVALID_FUNCTION_DEFINITION:
                raise
            _drop(schema_editor, foreign, schema)
            installer.restore_functions(schema_editor.execute, filenames, schema=schema)
        beside = installer.foreign_functions(cursor, schema=schema)
        _drop(schema_editor, beside, schema)
    restored = (*missing, *(name for name in changed if name not in missing))
    return restored, tuple(f"{function.name}({function.arguments})" for function in beside)


def _drop(schema_editor: BaseDatabaseSchemaEditor, functions: list[catalog.Function], schema: str) -> None:
    try:
        installer.drop_functions(schema_editor.execute, functions, schema=schema)
    except DatabaseError as error:
        if sqlstate(error) != DEPENDENT_OBJECTS_STILL_EXIST:
            raise
        names = ", ".join(sorted({function.name for function in functions}))
        raise SchemaError(
            f"The functions {names} of another program in the schema {schema!r} cannot be dropped: "
            f"{' '.join(str(error).split())} Drop the dependent objects first. Nothing was changed."
        ) from error


def _repair_indexes(schema_editor: BaseDatabaseSchemaEditor, schema: str) -> tuple[str, ...]:
    with schema_editor.connection.cursor() as cursor:
        lack = indexes.lacking_indexes(cursor, schema=schema)
    if any(lack):
        BuildIndexes().run_install(schema_editor, schema)
    return (*lack.missing, *lack.incomplete)
