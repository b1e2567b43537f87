"""The queue's database, as the functions of the API use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from django.db import Error

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.jobs import Job
from django_graphile_worker.routing import Place, place_of, queue_connection
from django_graphile_worker.sql import row_security
from django_graphile_worker.sql.cursor import Cursor
from django_graphile_worker.sql.errors import not_permitted, translated


class QueueConnection(NamedTuple):
    """The queue's database, opened."""

    cursor: Cursor
    alias: str
    schema: str
    notify: bool

    def found(self, jobs: list[Job]) -> list[Job]:
        """The jobs; but no jobs at all may mean that this role cannot see any, and that must not pass quietly."""
        if not jobs:
            self.refuse_blindness()
        return jobs

    def refuse_blindness(self) -> None:
        role, tables = row_security.hidden_tables(self.cursor, schema=self.schema)
        if tables:
            got = f"got {role!r}, to whom {', '.join(tables)} look empty"
            raise SchemaError(not_permitted(self.alias, self.schema, got))


def open_queue(using: str | None, installation: str | None = None) -> AbstractContextManager[QueueConnection]:
    """Open a cursor on Django's connection, in whatever transaction it is in."""
    return open_place(place_of(using, installation))


@contextmanager
def open_place(place: Place) -> Iterator[QueueConnection]:
    """The same where the place is known already."""
    settings = place.settings
    connection = queue_connection(place.using)
    try:
        with connection.cursor() as cursor:
            yield QueueConnection(cursor, connection.alias, settings.schema, settings.notify)
    except Error as error:
        ours = translated(error, alias=connection.alias, schema=settings.schema)
        if ours is None:
            raise
        raise ours from error
