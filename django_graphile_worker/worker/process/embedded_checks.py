"""Checks for workers that are started by code: settings that they cannot use, and tests that forbid a database."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error, connections

from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.routing import Place, places_to_serve

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# Settings that a worker started by code cannot use, and what to do instead.
DATABASE = {"database": "expected databases=[...], the list of aliases to serve."}
PROCESSES = {
    "processes": "expected 1, as a worker started by code runs in the process of its caller. "
    "Use concurrency=..., `manage.py runworker --processes`, or more processes of your own."
}
CRON = dict.fromkeys(
    ("crontab", "crontab_file", "crontab_time_zone"),
    "expected none, as it only runs jobs that exist already. Use run_worker() or Worker for recurring tasks.",
)


def places(
    caller: str,
    databases: Sequence[str],
    installations: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    with_cron: bool = True,
) -> tuple[Place, ...]:
    """Return the places to serve, with the overridden settings. Reject settings that the caller would ignore."""
    found = places_to_serve(databases, installations, change=lambda settings: settings.replace(**overrides))
    is_alone = overrides.get("processes", 1) == 1
    rejected = DATABASE | ({} if is_alone else PROCESSES) | ({} if with_cron else CRON)
    mistakes = [
        SettingMistake(key=name.upper(), message=f"{caller}({name}=...): {rejected[name]}")
        for name in overrides
        if name in rejected
    ]
    if mistakes:
        raise ConfigurationError(mistakes=mistakes)
    return found


def heed_test_guards(aliases: Sequence[str]) -> None:
    """Raise the error of a test framework that forbids the use of these databases.

    The test frameworks of Django and pytest-django guard Django's own connections, but the worker opens others: without
    a test database, the worker would run the jobs of the real database.
    """
    for alias in aliases:
        connection = connections[alias]
        # Django replaces the first method, pytest-django the second.
        for name in ("cursor", "ensure_connection"):
            if _is_replaced(connection, name):
                _call(connection, name)


def _is_replaced(connection: BaseDatabaseWrapper, name: str) -> bool:
    """Return True if the method is not Django's own, which would open a connection to a server that may not answer."""
    return name in vars(connection) or not getattr(connection, name).__module__.startswith("django.db.")


def _call(connection: BaseDatabaseWrapper, name: str) -> None:
    was_open = connection.connection is not None
    # These are not the errors of a guard. If the database is down, the worker's own connections report it; if the
    # caller is a coroutine, they work nevertheless.
    with contextlib.suppress(Error, SynchronousOnlyOperation):
        getattr(connection, name)()
    if not was_open and connection.connection is not None:
        connection.close()
