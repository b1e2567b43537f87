"""Checks of a worker schema in its database: its tables, functions and indexes, its workers and its schedules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from django_graphile_worker import conf, recurring, registry, routing
from django_graphile_worker.checks.databases import places_with_connections
from django_graphile_worker.exceptions import BreakingMigrationError, ConfigurationError
from django_graphile_worker.models.schedules import find_task
from django_graphile_worker.operations.receivers import unapplied_break
from django_graphile_worker.operations.repair import changed_functions
from django_graphile_worker.schedules.validation import errors_in
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.errors import not_installed, not_permitted
from django_graphile_worker.sql.inspection.lock_holders import other_workers
from django_graphile_worker.sql.install import catalog, indexes, installer, privileges
from django_graphile_worker.sql.install.catalog import LEDGER, refuse_breaking_migration
from django_graphile_worker.sql.schedules import listing
from django_graphile_worker.text import did_you_mean

REQUIRED_RELATIONS = {"_private_jobs", "_private_job_queues", "_private_tasks", "_private_known_crontabs", "jobs"}
# Tables that only this package has. Without them, the migrations that create the indexes have not run.
OWN_RELATIONS = {"_private_workers", "_private_statistics"}
# The functions by which workers of graphile_worker for Rust find and take the jobs of others. Its migration 22 makes
# recover_dead_worker_jobs again, which alone takes nothing.
RUST_RECOVERY = ("worker_heartbeat", "list_orphan_locked_workers")
# How many messages about schedules of each kind are returned, and how many names one message lists.
MAX_MESSAGES = 20
MAX_NAMES = 10
# The cursor, the alias of the database, and the schema.
SchemaCheck = Callable[[Any, str, str], list[CheckMessage]]


def check_installation(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check the worker schema of each installation in the databases that the command checks."""
    messages: list[CheckMessage] = []
    for place, connection in places_with_connections():
        if connection.alias in (databases or ()):
            # Django itself reports a database that cannot be reached.
            with suppress(DatabaseError):
                messages += check_schema(connection, place.settings.schema)
    return messages


def check_schema(connection: BaseDatabaseWrapper, schema: str) -> list[CheckMessage]:
    """Check that the schema is complete and that the role of the connection sees its tables."""
    with connection.cursor() as cursor:
        found = check_presence(connection, schema) or check_visibility(cursor, connection.alias, schema)
        if found:
            return found
        messages = check_ledger(cursor, connection.alias, schema)
        if not _is_migrating() or "--plan" in sys.argv:
            messages += _check_unapplied(connection, schema)
        # A running migrate is about to do what these checks would advise.
        if not _is_migrating():
            messages += [message for check in CHECKS for message in check(cursor, connection.alias, schema)]
    return messages


def check_presence(connection: BaseDatabaseWrapper, schema: str) -> list[CheckMessage]:
    """Check that the server is new enough and the schema exists."""
    if message := installer.too_old(connection):
        return [Error(message, hint="Upgrade the server.", id="graphile_worker.E024")]
    with connection.cursor() as cursor:
        if _is_complete(cursor, schema):
            return []
        is_migrated = _is_migrated(connection)
        # Another migrate may have finished between the two queries: read the schema again after Django's record.
        if is_migrated and _is_complete(cursor, schema):
            return []
    return _missing_schema(connection, schema, is_migrated=is_migrated)


def _is_complete(cursor: Any, schema: str) -> bool:
    return catalog.relations(cursor, schema=schema) >= REQUIRED_RELATIONS


def _is_migrated(connection: BaseDatabaseWrapper) -> bool:
    return any(app == routing.APP_LABEL for app, _ in MigrationRecorder(connection).applied_migrations())


def _is_migrating() -> bool:
    return sys.argv[1:2] == ["migrate"]


def _missing_schema(connection: BaseDatabaseWrapper, schema: str, *, is_migrated: bool) -> list[CheckMessage]:
    if is_migrated and _is_migrating() and "zero" in sys.argv:
        return []
    # With named installations, migrate creates the schema of each installation that has none.
    if is_migrated and not conf.are_installations_named():
        return [_lost_schema(connection.alias, schema)]
    if _is_migrating():
        return []
    hint = "Jobs can be added and run once the app is migrated."
    return [Warning(not_installed(connection.alias, schema), hint=hint, id="graphile_worker.W001")]


def _lost_schema(alias: str, schema: str) -> CheckMessage:
    """Return the message for a schema that migrate does not create, because the app is recorded as migrated."""
    option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return Error(
        f"The app {routing.APP_LABEL!r} is migrated in the database {alias!r}, but the worker schema {schema!r} is "
        f"missing or incomplete.",
        hint=f'To create an empty one, after DROP SCHEMA or under a new name: run "manage.py migrate '
        f'{routing.APP_LABEL} zero --fake{option}", then "manage.py migrate {routing.APP_LABEL}{option}". If '
        f'{conf.SETTING}["SCHEMA"] was changed, the old schema stays, with its jobs; to keep on using it, change the '
        f"setting back.",
        id="graphile_worker.E016",
    )


def check_ledger(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that no newer graphile-worker has applied a breaking migration."""
    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        hint = "Upgrade django-graphile-worker. Workers of this version do not run on this schema."
        return [Error(str(error), hint=hint, id="graphile_worker.E018")]
    return []


def _check_unapplied(connection: BaseDatabaseWrapper, schema: str) -> list[CheckMessage]:
    """Check that no migration waits that would break live workers of earlier releases; ``migrate`` refuses it."""
    message = unapplied_break(apps.get_app_config(routing.APP_LABEL), connection, schema)
    return [Warning(message, id="graphile_worker.W016")] if message else []


def check_functions(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that nobody has replaced, changed or dropped functions of the schema."""
    if catalog.part(cursor, installer.WORKER_SCHEMA, schema=schema) is None:
        return []
    foreign = installer.foreign_functions(cursor, schema=schema)
    missing = installer.missing_functions(cursor, schema=schema)
    names = sorted({*(function.name for function in foreign), *missing, *changed_functions(connections[alias], schema)})
    if not names:
        return []
    listed = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if names[MAX_NAMES:] else "")
    return [
        Error(
            f"In the worker schema {schema!r} in the database {alias!r}, functions are missing, were changed, or are "
            f"those of another program: {listed}."
            f"{_newer_ledger(cursor, schema)}",
            hint='Run "manage.py graphile_worker repair", which restores the functions. migrate does not.',
            id="graphile_worker.E019",
        )
    ]


def _newer_ledger(cursor: Any, schema: str) -> str:
    latest = catalog.ledger(cursor, schema=schema).latest
    if latest <= LEDGER:
        return ""
    return (
        f" The migrations table has reached {latest}, which is beyond {LEDGER}: graphile_worker for Rust (0.14), which "
        "also replaces functions, or a newer graphile-worker has migrated this schema."
    )


def check_visibility(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that row-level security hides no table: a hidden table looks empty, and PostgreSQL raises no error."""
    role, tables = privileges.hidden_tables(cursor, schema=schema)
    if not tables:
        return []
    return [
        Error(
            not_permitted(alias, schema, f"{', '.join(tables)} appear empty to it", role=role),
            hint=f'"manage.py graphile_worker grants {role} --kind worker" prints the SQL for a role that runs jobs.',
            id="graphile_worker.E015",
        )
    ]


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
            f"The worker schema {schema!r} in the database {alias!r} lacks indexes: missing ({missing}), incomplete "
            f"({incomplete}). With many jobs, finding them is slow.",
            hint=indexes.REMEDY,
            id="graphile_worker.W005",
        )
    ]


def check_timeouts(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that all live workers have the same timeout."""
    if catalog.part(cursor, installer.TABLES, schema=schema) is None:
        return []
    timeouts = workers.promised_timeouts(cursor, schema=schema)
    if len(timeouts) < 2:
        return []
    return [
        Warning(
            f"The workers of the schema {schema!r} in the database {alias!r} have different values of WORKER_TIMEOUT: "
            f"{', '.join(f'{seconds:g}' for seconds in timeouts)} seconds.",
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
            f"Tasks have limits ({', '.join(limited)}), and the schema {schema!r} in the database {alias!r} has "
            f"workers that are not registered: {', '.join(found)}.",
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


def check_schedules(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that the schedules can fire: each has a task and times that this project can read."""
    if "_private_schedules" not in catalog.relations(cursor, schema=schema):
        return []
    unknown = [named for named in listing.named_tasks(cursor, schema=schema) if find_task(named.task) is None]
    messages: list[CheckMessage] = [_unknown_schedule_task(named, alias) for named in unknown[:MAX_MESSAGES]]
    messages += _check_schedule_times(cursor, alias, schema)
    return messages + _check_schedule_names(cursor, alias, schema)


def _check_schedule_times(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for named in listing.named_times(cursor, schema=schema):
        values = {"time_zone": named.time_zone, "cron": named.cron}
        errors = errors_in(values if named.cron is not None else values | {"interval": "1 s"})
        found += [_invalid_schedule(named, alias, field, texts) for field, texts in errors.items()]
    return found[:MAX_MESSAGES]


def _check_schedule_names(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    names = listing.clashes(cursor, _crontab_identifiers(), schema=schema)
    return [_clashing_names(names, alias)] if names else []


def _crontab_identifiers() -> list[str]:
    try:
        return [item.name for item in recurring.collect(conf.current())]
    except (ConfigurationError, ValueError):
        # Another check reports the errors of a crontab.
        return []


def _unknown_schedule_task(named: listing.NamedTask, alias: str) -> CheckMessage:
    suggestion = did_you_mean(named.task, registry.tasks.identifiers())
    return Warning(
        f"{_schedule_subject(named.schedule, named.number, alias)}: this project has no task {named.task!r}. No "
        f"worker of this project fires it.",
        hint=f"{suggestion} Define the task, or change, disable or delete the schedule.".strip(),
        id="graphile_worker.W011",
    )


def _invalid_schedule(named: listing.NamedTimes, alias: str, field: str, texts: Sequence[str]) -> CheckMessage:
    return Warning(
        f"{_schedule_subject(named.schedule, named.number, alias)}: {field}: {' '.join(texts)}",
        hint="Correct the schedule. Until then, no worker fires it.",
        id="graphile_worker.W012",
    )


def _clashing_names(names: Sequence[str], alias: str) -> CheckMessage:
    listed = ", ".join(map(repr, names[:MAX_NAMES])) + (" and more" if len(names) > MAX_NAMES else "")
    return Warning(
        f"Schedules of the database {alias!r} have the names of crontab items: {listed}. Both fire, and the events "
        f"and logs of both have the same name.",
        hint="If the schedule replaces the crontab item, remove the item from the crontab (also from that of a worker "
        "of Node.js). If not, rename the schedule.",
        id="graphile_worker.W013",
    )


def _schedule_subject(name: str, number: int, alias: str) -> str:
    others = f" and {number - 1:,} more" if number > 1 else ""
    return f"The schedule {name!r}{others} in the database {alias!r}"


# The checks of a schema that exists and is visible.
CHECKS = (check_functions, check_indexes, check_timeouts, check_other_workers, check_rust_recovery, check_schedules)
