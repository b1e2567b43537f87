"""Make the worker schema, adopt one that graphile-worker made, and undo either."""

from __future__ import annotations

import warnings

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql import installation, migration_locks
from django_graphile_worker.sql.installation import LEDGER, Function, Ledger, Part, Run
from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.schema import ddl

WORKER_SCHEMA = "worker_schema.sql"
FUNCTION_FILES = ("job_rules.sql", "add_job.sql", "add_jobs.sql", "job_management.sql")


def make(run: Run, *, schema: str, is_schema_made: bool) -> None:
    """Make everything; the schema itself may be there already, empty."""
    if is_schema_made:
        installation.create_schema(run, schema=schema)
    for filename in (WORKER_SCHEMA, *FUNCTION_FILES, "installation.sql"):
        run(ddl(filename, schema), None)
    installation.record_part(run, Part(WORKER_SCHEMA, is_schema_made=is_schema_made), schema=schema)


def adopt(run: Run, cursor: Cursor, *, schema: str) -> None:
    """Put our functions over those found, keep the texts of the old ones, and touch nothing else."""
    migration_locks.lock_ledger(cursor, schema=schema)
    check_ledger(installation.ledger(cursor, schema=schema), schema)
    missing = installation.RELATIONS - installation.relations(cursor, schema=schema)
    if missing:
        raise SchemaError(
            f"Expected the schema {schema!r} to be as graphile-worker's migration {LEDGER} leaves it, got one without "
            f'{", ".join(sorted(missing))}. Repair it, or choose another name with GRAPHILE_WORKER["SCHEMA"].'
        )
    found = installation.functions(cursor, schema=schema)
    for filename in (*FUNCTION_FILES, "installation.sql"):
        run(ddl(filename, schema), None)
    _check_overloads(cursor, schema)
    definitions = {function.name: function.definition for function in found}
    part = Part(WORKER_SCHEMA, is_adopted=True, found_functions=definitions)
    installation.record_part(run, part, schema=schema)


def give_back(run: Run, cursor: Cursor, part: Part, *, schema: str) -> None:
    """Leave an adopted schema as it was found, except for what a newer graphile-worker has replaced since."""
    for function in installation.functions(cursor, schema=schema):
        if function.is_ours:
            run(part.found_functions[function.name], None)
    run(ddl("job_rules_drop.sql", schema), None)
    run(ddl("installation_drop.sql", schema), None)


def foreign_functions(cursor: Cursor, *, schema: str) -> list[Function]:
    """The public functions that a newer graphile-worker, or a person, has replaced since."""
    return [function for function in installation.functions(cursor, schema=schema) if not function.is_ours]


def keep_foreign_functions(run: Run, cursor: Cursor, *, schema: str) -> None:
    """Before ours replace them: keep their texts, so that giving the schema back puts them there again."""
    found = {function.name: function.definition for function in foreign_functions(cursor, schema=schema)}
    if found:
        installation.add_found_functions(run, WORKER_SCHEMA, found, schema=schema)


def drop(run: Run, *, schema: str) -> None:
    """Drop everything that make() made, but for the schema."""
    for filename in ("job_rules_drop.sql", "worker_schema_drop.sql", "installation_drop.sql"):
        run(ddl(filename, schema), None)


def check_ledger(ledger: Ledger, schema: str) -> None:
    """Refuse a schema of another time than ours."""
    if ledger.latest < LEDGER:
        raise SchemaError(
            f"The schema {schema!r} was made by an older graphile-worker: expected its migration {LEDGER}, got "
            f"{ledger.latest}. Upgrade it with graphile-worker 0.18, and migrate again: "
            f"npx graphile-worker@0.18 --schema-only --schema {schema} --connection postgres://..."
        )
    if ledger.latest_breaking > LEDGER:
        raise SchemaError(
            f"The schema {schema!r} belongs to a newer graphile-worker: expected no breaking migration after "
            f"{LEDGER}, got {ledger.latest_breaking}. Upgrade django-graphile-worker to a version that knows it, or "
            f'choose another name with GRAPHILE_WORKER["SCHEMA"].'
        )
    if ledger.latest > LEDGER:
        warnings.warn(
            f"The schema {schema!r} is at migration {ledger.latest} of graphile-worker; this version of "
            f"django-graphile-worker knows those up to {LEDGER}. It goes on, as the newer ones are not marked as "
            f"breaking.",
            RuntimeWarning,
            stacklevel=2,
        )


def _check_overloads(cursor: Cursor, schema: str) -> None:
    names = [function.name for function in installation.functions(cursor, schema=schema)]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaError(
            f"Expected {', '.join(doubled)} in the schema {schema!r} with the arguments that graphile-worker 0.18 "
            f"gives them, got others. Calls would be ambiguous, so nothing was changed. Upgrade django-graphile-worker "
            f"to a version that knows them, or drop the functions that you added."
        )
