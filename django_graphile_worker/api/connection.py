"""Opens the database of a queue for the functions of the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError, SchemaError
from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import tasks
from django_graphile_worker.routing import Place, place_of, queue_connection
from django_graphile_worker.sql import row_security
from django_graphile_worker.sql.errors import not_permitted, translated
from django_graphile_worker.sql.result_keeping import ResultKeeping, keeping
from django_graphile_worker.sql.statements import Cursor


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
        role, tables = row_security.hidden_tables(self.cursor, schema=self.schema)
        if tables:
            got = f"got {role!r}, for which {', '.join(tables)} appear empty"
            raise SchemaError(not_permitted(self.alias, self.schema, got))


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
