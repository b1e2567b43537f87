"""The queue's database, as the functions of the API use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import Error

from django_graphile_worker import conf
from django_graphile_worker.routing import queue_connection
from django_graphile_worker.sql.errors import translated
from django_graphile_worker.sql.jobs import Cursor


class Queue(NamedTuple):
    """The queue's database, opened."""

    cursor: Cursor
    alias: str
    schema: str
    notify: bool


@contextmanager
def open_queue(using: str | None) -> Iterator[Queue]:
    """Open a cursor on Django's connection, in whatever transaction it is in."""
    settings = conf.current()
    connection = queue_connection(using)
    try:
        with connection.cursor() as cursor:
            yield Queue(cursor, connection.alias, settings.schema, settings.notify)
    except Error as error:
        ours = translated(error, alias=connection.alias, schema=settings.schema)
        if ours is None:
            raise
        raise ours from error
