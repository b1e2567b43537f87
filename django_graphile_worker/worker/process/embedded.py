"""Workers from code: which settings they can keep, and whether they may run here at all."""

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

# Settings that code cannot have, and what to do instead.
DATABASE = {"database": "expected databases=[...], the list of aliases to serve."}
PROCESSES = {
    "processes": "expected 1, as a worker from code lives in the process that calls it. "
    "Use concurrency=..., `manage.py runworker --processes`, or more processes of your own."
}
CRON = dict.fromkeys(
    ("crontab", "crontab_file"),
    "expected none, as it only runs what waits already. Use run_worker() or Worker for recurring tasks.",
)


def places(
    caller: str,
    databases: Sequence[str],
    installations: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    with_cron: bool = True,
) -> tuple[Place, ...]:
    """Where to work, by the project's settings with some changed; refuses those that this caller would ignore."""
    found = places_to_serve(databases, installations, change=lambda settings: settings.replace(**overrides))
    is_alone = overrides.get("processes", 1) == 1
    refused = DATABASE | ({} if is_alone else PROCESSES) | ({} if with_cron else CRON)
    mistakes = [
        SettingMistake(key=name.upper(), message=f"{caller}({name}=...): {refused[name]}")
        for name in overrides
        if name in refused
    ]
    if mistakes:
        raise ConfigurationError(mistakes=mistakes)
    return found


def ask_django(aliases: Sequence[str]) -> None:
    """Let those speak who guard Django's own connections.

    The worker's connections go round the guards of Django's and pytest-django's
    tests: where no test database was made, it would run the jobs of the real one.
    """
    for alias in aliases:
        connection = connections[alias]
        # Django's guard sits on the one, pytest-django's on the other.
        for name in ("cursor", "ensure_connection"):
            if _is_replaced(connection, name):
                _ask(connection, name)


def _is_replaced(connection: BaseDatabaseWrapper, name: str) -> bool:
    """Is it not Django's any more? Otherwise to ask would only open a connection, of a server that may be silent."""
    return name in vars(connection) or not getattr(connection, name).__module__.startswith("django.db.")


def _ask(connection: BaseDatabaseWrapper, name: str) -> None:
    was_open = connection.connection is not None
    # That the database is down, or that a coroutine is calling, is no guard's business: the worker's own connections
    # will tell, or work.
    with contextlib.suppress(Error, SynchronousOnlyOperation):
        getattr(connection, name)()
    if not was_open and connection.connection is not None:
        connection.close()
