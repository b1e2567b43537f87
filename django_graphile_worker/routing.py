"""Which of Django's databases holds the queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.apps import apps
from django.db import connections, router
from django.utils.connection import ConnectionDoesNotExist

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ConfigurationError, InvalidTypeError

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

APP_LABEL = "graphile_worker"


def queue_alias(using: str | None = None) -> str:
    """The alias to write to: the one asked for, else a router's choice, else the setting DATABASE."""
    if using is not None:
        if not isinstance(using, str):
            raise InvalidTypeError(f"using: expected a database alias (str), got {using!r}.")
        return using
    database = conf.current().database
    return database if not router.routers else _routed_alias(database)


def _routed_alias(database: str) -> str:
    """Ask the routers about a job that comes from the setting's database: that is where silence leaves it."""
    try:
        job = apps.get_model(APP_LABEL, "Job")()
    except LookupError:
        return database
    job._state.db = database
    return str(router.db_for_write(type(job), instance=job))


def queue_aliases(databases: Iterable[str] = (), *, argument: str = "databases") -> tuple[str, ...]:
    """The databases that a worker serves, each once: those asked for, else the one that jobs are added to."""
    if isinstance(databases, str) or not all(isinstance(alias, str) for alias in databases):
        raise InvalidTypeError(
            f"{argument}: expected a list of database aliases, got {databases!r}. "
            "A single one is a list too: ['default']."
        )
    aliases = tuple(dict.fromkeys(databases)) or (queue_alias(),)
    for alias in aliases:
        queue_connection(alias, argument=argument)
    return aliases


def queue_connection(using: str | None = None, *, argument: str = "using") -> BaseDatabaseWrapper:
    """Django's connection to the queue's database, for the current thread."""
    alias = queue_alias(using)
    try:
        connection: BaseDatabaseWrapper = connections[alias]
    except ConnectionDoesNotExist:
        raise ConfigurationError(
            f"{argument}: expected an alias of settings.DATABASES ({', '.join(map(repr, connections))}), got {alias!r}."
        ) from None
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"The queue lives in PostgreSQL: expected a PostgreSQL database, got {connection.vendor} "
            f'for the alias {alias!r}. Name another with {argument}=... or GRAPHILE_WORKER["DATABASE"].'
        )
    return connection
