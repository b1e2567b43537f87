"""Make the worker schema, adopt a schema that graphile-worker made, undo both, and restore the public functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql.install import catalog, locks
from django_graphile_worker.sql.install.catalog import Function, Ledger, Part, Run
from django_graphile_worker.sql.migrations_ledger import LEDGER, error_of
from django_graphile_worker.sql.schema import ddl, quoted

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# The oldest major version of PostgreSQL on which the functions of this package run.
OLDEST_POSTGRESQL = 15
WORKER_SCHEMA = "worker_schema.sql"
FUNCTION_FILES = ("job_rules.sql", "add_job.sql", "add_jobs.sql", "job_management.sql")
# The files that make the public functions, by the name of the part, the oldest first. A migration that replaces the
# functions adds a part, whose files hold nothing but functions. A repair runs the files of the last installed part.
FUNCTION_SETS = (
    (WORKER_SCHEMA, FUNCTION_FILES),
    ("functions_v2", ("job_rules_v2.sql", "add_job_v2.sql", "add_jobs_v2.sql", "job_management_v2.sql")),
)


def make(run: Run, *, schema: str, is_schema_made: bool) -> None:
    """Make the worker schema; without ``is_schema_made``, inside a schema that exists already and is empty."""
    if is_schema_made:
        catalog.create_schema(run, schema=schema)
    for filename in (WORKER_SCHEMA, *FUNCTION_FILES, "installation.sql"):
        run(ddl(filename, schema), None)
    catalog.record_part(run, Part(name=WORKER_SCHEMA, is_schema_made=is_schema_made), schema=schema)


def adopt(run: Run, cursor: Cursor, *, schema: str) -> None:
    """Replace the public functions with functions of this package, record the old texts, and change nothing else."""
    locks.lock_ledger(cursor, schema=schema)
    relations = catalog.relations(cursor, schema=schema)
    _refuse_rust(relations, schema)
    check_ledger(catalog.ledger(cursor, schema=schema), schema)
    missing = catalog.RELATIONS - relations
    if missing:
        raise SchemaError(
            f"Expected the schema {schema!r} to be as graphile-worker's migration {LEDGER} leaves it, got one without "
            f'{", ".join(sorted(missing))}. Repair it, or choose another name with GRAPHILE_WORKER["SCHEMA"].'
        )
    found = catalog.functions(cursor, schema=schema)
    for filename in (*FUNCTION_FILES, "installation.sql"):
        run(ddl(filename, schema), None)
    _check_overloads(cursor, schema)
    definitions = {function.name: function.definition for function in found}
    part = Part(name=WORKER_SCHEMA, is_adopted=True, found_functions=definitions)
    catalog.record_part(run, part, schema=schema)


def too_old(connection: Any) -> str | None:
    """Return the error for the server of a connection of Django; None if it is new enough."""
    version = connection.pg_version // 10_000
    if version >= OLDEST_POSTGRESQL:
        return None
    return (
        f"The database {connection.alias!r} is PostgreSQL {version}. Jobs need PostgreSQL {OLDEST_POSTGRESQL} or newer."
    )


def foreign_functions(cursor: Cursor, *, schema: str) -> list[Function]:
    """Return the public functions that another program has made, instead of this package's or beside them."""
    return [function for function in catalog.functions(cursor, schema=schema) if not function.is_ours]


def missing_functions(cursor: Cursor, *, schema: str) -> list[str]:
    """Return the names of the public functions that this package makes and that do not exist."""
    existing = {function.name for function in catalog.functions(cursor, schema=schema) if function.is_ours}
    return [name for name in catalog.FUNCTIONS if name not in existing]


def restore_functions(run: Run, cursor: Cursor, *, schema: str) -> None:
    """Restore the public functions. Raise a database error 42P13 if a foreign function cannot be replaced."""
    installed = [files for part, files in FUNCTION_SETS if catalog.part(cursor, part, schema=schema) is not None]
    for filename in installed[-1] if installed else ():
        run(ddl(filename, schema), None)


def drop_functions(run: Run, functions: Iterable[Function], *, schema: str) -> None:
    """Drop the functions; raise a database error if another object depends on them."""
    for function in functions:
        run(f"/* gw:uninstall */ drop function {quoted(schema)}.{quoted(function.name)}({function.arguments});", None)


def restore_found_functions(run: Run, cursor: Cursor, *, schema: str) -> bool:
    """Restore the functions that an adopted schema had, where they are still ours; return False if it was made here."""
    found = catalog.part(cursor, WORKER_SCHEMA, schema=schema)
    if found is None or not found.is_adopted:
        return False
    for function in catalog.functions(cursor, schema=schema):
        if function.is_ours:
            run(found.found_functions[function.name], None)
    return True


def undo_adoption(run: Run, cursor: Cursor, *, schema: str) -> None:
    """Leave an adopted schema as it was found, except for functions that graphile-worker has replaced since.

    An earlier transaction has restored the functions, but a transaction that called them before may call them again,
    and PostgreSQL may still run the texts that it knows. Such transactions hold locks: wait for them. The order of the
    locks is that of adding a job.
    """
    restore_found_functions(run, cursor, schema=schema)
    run(ddl("installation_drop.sql", schema), None)
    locks.lock_jobs(cursor, schema=schema)
    for filename in ("add_jobs_v2_drop.sql", "add_job_v2_drop.sql", "job_rules_drop.sql"):
        run(ddl(filename, schema), None)


def keep_foreign_functions(run: Run, cursor: Cursor, *, schema: str) -> None:
    """Record the texts of foreign functions before they are replaced, so that ``undo_adoption`` restores them."""
    found = {function.name: function.definition for function in foreign_functions(cursor, schema=schema)}
    if found:
        catalog.add_found_functions(run, WORKER_SCHEMA, found, schema=schema)


def drop(run: Run, *, schema: str) -> None:
    """Drop everything that make() made, except the schema itself."""
    for filename in ("job_rules_drop.sql", "worker_schema_drop.sql", "installation_drop.sql"):
        run(ddl(filename, schema), None)


def _refuse_rust(relations: frozenset[str], schema: str) -> None:
    """Raise for a schema of graphile_worker for Rust, whose table of workers has the name of this package's."""
    if "_private_workers" in relations:
        raise SchemaError(
            f"The schema {schema!r} belongs to graphile_worker for Rust, whose table _private_workers is in the way. "
            f"Nothing was changed. To take over its jobs, stop the Rust workers, drop the table and the functions of "
            f"their recovery (see the guide: Sharing a queue with Node.js), and migrate again. Or choose another name "
            f'with GRAPHILE_WORKER["SCHEMA"].'
        )


def check_ledger(ledger: Ledger, schema: str) -> None:
    """Raise for a ledger that is older than this package, or breaking; warn of a newer ledger."""
    if ledger.latest < LEDGER:
        raise SchemaError(
            f"The schema {schema!r} was made by an older graphile-worker: expected its migration {LEDGER}, got "
            f"{ledger.latest}. Upgrade it with graphile-worker 0.18, and migrate again: "
            f"npx graphile-worker@0.18 --schema-only --schema {schema} --connection postgres://..."
        )
    if ledger.latest_breaking > LEDGER:
        raise error_of(ledger.latest_breaking, schema)
    if ledger.latest > LEDGER:
        warnings.warn(
            f"The schema {schema!r} is at migration {ledger.latest} of graphile-worker; this version of "
            f"django-graphile-worker supports migrations up to {LEDGER}. The newer migrations are not marked as "
            f"breaking, so the schema is used.",
            RuntimeWarning,
            stacklevel=2,
        )


def _check_overloads(cursor: Cursor, schema: str) -> None:
    names = [function.name for function in catalog.functions(cursor, schema=schema)]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaError(
            f"Expected {', '.join(doubled)} in the schema {schema!r} with the arguments that graphile-worker 0.18 "
            f"gives them, got others. Calls would be ambiguous, so nothing was changed. Upgrade django-graphile-worker "
            f"to a version that supports them, or drop the functions that you added."
        )
