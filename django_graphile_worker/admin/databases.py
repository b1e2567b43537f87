"""Which database a page is about, and how it is read without hurting anybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from django.db import DatabaseError, OperationalError, connections, router, transaction
from django.http import HttpRequest

from django_graphile_worker import conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.routing import APP_LABEL, queue_alias
from django_graphile_worker.sql.errors import sqlstate, translated
from django_graphile_worker.sql.inspection import limits
from django_graphile_worker.sql.install import catalog

QUERY_CANCELED = "57014"
PARAMETER = "database"
# How long it is believed which databases have the schema.
MEMORY_SECONDS = 300.0


class PageTimeoutError(Exception):
    """The database did not answer within ADMIN_STATEMENT_TIMEOUT."""


class Session(NamedTuple):
    """A cursor, and the schema to use it on."""

    cursor: Any
    schema: str


def aliases() -> list[str]:
    """The databases that hold the schema; the queue's own comes first."""
    first = queue_alias()
    if conf.are_installations_named():
        # The pages show the installation "default", which is in one database.
        return [first]
    others = [alias for alias in connections if alias != first and _may_hold(alias)]
    return [first, *(alias for alias in others if _holds(alias))]


def alias_of(request: HttpRequest) -> str:
    """The database that the address asks for, if there is such a one; else the queue's."""
    asked = request.POST.get(PARAMETER) or request.GET.get(PARAMETER)
    return asked if asked and asked in aliases() else queue_alias()


_known: dict[tuple[str, str], tuple[bool, float]] = {}


def forget() -> None:
    """Look again which databases have the schema."""
    _known.clear()


def _may_hold(alias: str) -> bool:
    return connections[alias].vendor == "postgresql" and router.allow_migrate(alias, APP_LABEL)


def _holds(alias: str) -> bool:
    schema = conf.current().schema
    answer, until = _known.get((alias, schema), (False, 0.0))
    if until < time.monotonic():
        answer = False
        # Whatever is wrong with another database is no reason not to show this one.
        with suppress(Exception), connections[alias].cursor() as cursor:
            answer = "_private_jobs" in catalog.relations(cursor, schema=schema)
        _known[alias, schema] = (answer, time.monotonic() + MEMORY_SECONDS)
    return answer


@contextmanager
def reading(alias: str) -> Iterator[Session]:
    """A transaction to read in, each of whose statements has a deadline."""
    with _limited(alias, conf.current().admin_statement_timeout) as session:
        yield session


@contextmanager
def writing(alias: str) -> Iterator[Session]:
    """A transaction to change jobs in, with the deadline of the worker's own statements."""
    with _limited(alias, conf.current().statement_timeout) as session:
        yield session


@contextmanager
def _limited(alias: str, timeout: float) -> Iterator[Session]:
    connection, schema = connections[alias], conf.current().schema
    is_outermost = not connection.in_atomic_block
    try:
        with transaction.atomic(using=alias), connection.cursor() as cursor:
            before = limits.limit_statements(cursor, timeout=timeout)
            yield Session(cursor, schema)
            # The settings end with the transaction; one that began before the page must not keep them.
            if not is_outermost:
                limits.change_settings(cursor, before)
    except OperationalError as error:
        if sqlstate(error) != QUERY_CANCELED:
            raise
        raise PageTimeoutError from error
    except DatabaseError as error:
        ours: GraphileWorkerError | None = translated(error, alias=alias, schema=schema)
        if ours is None:
            raise
        raise ours from error
