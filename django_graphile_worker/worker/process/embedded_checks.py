"""Checks for workers that are started by code: the settings they can keep, and whether a test forbids them."""

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

# Settings that a worker started by code cannot keep, and what to do instead.
DATABASE = {"database": "expected databases=[...], the list of aliases to serve."}
PROCESSES = {
    "processes": "expected 1, as a worker started by code runs in the process of its caller. "
    "Use concurrency=..., `manage.py runworker --processes`, or more processes of your own."
}
CRON = dict.fromkeys(
    ("crontab", "crontab_file"),
    "expected none, as it only runs jobs that are already there. Use run_worker() or Worker for recurring tasks.",
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

    Django's and pytest-django's tests guard Django's own connections, and the worker opens others: where no test
    database was made, the worker would run the jobs of the real database.
    """
    for alias in aliases:
        connection = connections[alias]
        # Django replaces the first method, pytest-django the second.
        for name in ("cursor", "ensure_connection"):
            if _is_replaced(connection, name):
                _call(connection, name)


def _is_replaced(connection: BaseDatabaseWrapper, name: str) -> bool:
    """Is the method not Django's own? Calling Django's would open a connection, to a server that may not answer."""
    return name in vars(connection) or not getattr(connection, name).__module__.startswith("django.db.")


def _call(connection: BaseDatabaseWrapper, name: str) -> None:
    was_open = connection.connection is not None
    # A database that is down and a caller that is a coroutine are no errors of a guard: the worker's own connections
    # report the first, and work in spite of the second.
    with contextlib.suppress(Error, SynchronousOnlyOperation):
        getattr(connection, name)()
    if not was_open and connection.connection is not None:
        connection.close()
