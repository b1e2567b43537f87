"""What the functions of the API share: the database of a queue, times of callers, and asynchronous variants."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError, InvalidJobError, SchemaError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import tasks
from django_graphile_worker.routing import Place, place_of, queue_connection
from django_graphile_worker.sql.errors import not_permitted, translated
from django_graphile_worker.sql.install import privileges
from django_graphile_worker.sql.results import ResultKeeping, keeping
from django_graphile_worker.sql.statements import Cursor

P = ParamSpec("P")
R = TypeVar("R")

# A time as callers may give it.
Time = datetime | timedelta | str

_PACKAGE = f"{Path(__file__).parents[1]}/"


class QueueConnection(NamedTuple):
    """An open cursor on the database of a queue, and the values that its statements need."""

    cursor: Cursor
    alias: str
    schema: str
    notify: bool
    settings: Settings

    @property
    def keeping(self) -> ResultKeeping:
        """Which tasks of this process keep their results, and whether there is a history."""
        return keeping(self.settings, tasks)

    def found(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs; if there are none, raise SchemaError if row-level security hides them from this role."""
        if not jobs:
            self.refuse_hidden_tables()
        return jobs

    def refuse_hidden_tables(self) -> None:
        """Raise SchemaError if row-level security hides rows from this role: the tables would look empty."""
        role, tables = privileges.hidden_tables(self.cursor, schema=self.schema)
        if tables:
            why = f"{', '.join(tables)} appear empty to it"
            raise SchemaError(not_permitted(self.alias, self.schema, why, role=role))


def open_queue(using: str | None, installation: str | None = None) -> AbstractContextManager[QueueConnection]:
    """Open a cursor on Django's connection, inside its current transaction if there is one."""
    return open_place(place_of(using, installation))


def is_outside_transactions(alias: str) -> bool:
    """Return whether a statement on the connection is a transaction by itself.

    Django knows only its own transactions. The driver also knows those that ``cursor.execute("BEGIN")``, the driver's
    ``transaction()`` or its ``pipeline()`` has begun; 0 is its status outside of them.
    """
    connection = connections[alias]
    return connection.get_autocommit() and connection.connection.info.transaction_status == 0


def _refuse_unreadable_times(connection: BaseDatabaseWrapper) -> None:
    """Raise ConfigurationError if psycopg cannot read times: it would raise only after the statement has committed."""
    style = connection.connection.pgconn.parameter_status(b"DateStyle")
    if style is not None and not style.startswith(b"ISO"):
        raise ConfigurationError(
            f"The DateStyle of the database {connection.alias!r} is {style.decode()!r}, and psycopg reads times "
            "only as ISO. Set it to 'ISO' for the role (ALTER ROLE … SET datestyle = 'ISO')."
        )


@contextmanager
def open_place(place: Place) -> Iterator[QueueConnection]:
    """Open a cursor as ``open_queue()`` does, for a place that the caller has looked up."""
    settings = place.settings
    connection = queue_connection(place.using)
    try:
        with connection.cursor() as cursor:
            _refuse_unreadable_times(connection)
            yield QueueConnection(cursor, connection.alias, settings.schema, settings.notify, settings)
    except Error as error:
        ours = translated(error, alias=connection.alias, schema=settings.schema)
        if ours is None:
            raise
        raise ours from error


def aware(run_at: datetime | timedelta | None, *, name: str = "run_at") -> datetime | timedelta | None:
    """Return the time as Django's DateTimeField stores it: a naive time gets the default time zone, with a warning."""
    if not isinstance(run_at, datetime) or not settings.USE_TZ or timezone.is_aware(run_at):
        return run_at
    warnings.warn(
        f"{name} received a naive datetime ({run_at}) while time zone support is active.",
        RuntimeWarning,
        stacklevel=_level_of_the_caller(),
    )
    return timezone.make_aware(run_at, timezone.get_default_timezone())


def from_text(value: Time | None, *, name: str = "run_at") -> datetime | timedelta | None:
    """Return the value, and a text in the ISO format as a datetime."""
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidJobError(f"{name}: {value!r} is not a time like '2026-02-02T02:02:02Z'.") from error


def _level_of_the_caller() -> int:
    """Return the stack level of the first frame outside this package, like ``skip_file_prefixes`` of Python 3.12."""
    level, frame = 0, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and isinstance(frame.f_back, FrameType):
        level, frame = level + 1, frame.f_back
    return level + 1


def async_variant(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a coroutine function that calls the function in the thread that holds Django's connection.

    The call is therefore part of a transaction around it, like a call of the synchronous function.
    """
    run = sync_to_async(function, thread_sensitive=True)

    @functools.wraps(function)
    async def variant(*args: P.args, **kwargs: P.kwargs) -> R:
        return await run(*args, **kwargs)

    variant.__name__ = variant.__qualname__ = f"a{function.__name__}"
    variant.__doc__ = f"Asynchronous variant of ``{function.__name__}()``."
    return variant
