"""The database that a page shows, and transactions whose statements have a time limit."""

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
from django_graphile_worker.sql.inspection import statement_limits
from django_graphile_worker.sql.install import catalog

QUERY_CANCELED = "57014"
LOCK_NOT_AVAILABLE = "55P03"
PARAMETER = "database"
# How long the result of looking for the schema in a database is cached.
CACHE_SECONDS = 300.0


# Seconds for which a change waits for rows that another session has locked. The rows that it has locked before wait
# with it, and so does what adds jobs with their keys.
LONGEST_LOCK_WAIT = 2.0


class PageTimeoutError(Exception):
    """The database did not answer within the time of a setting, or a change had to wait for a lock."""

    def __init__(self, setting: str) -> None:
        super().__init__(setting)
        self.setting = setting


class Session(NamedTuple):
    """A cursor, and the worker schema that its statements use."""

    cursor: Any
    schema: str


def aliases() -> list[str]:
    """Return the databases that have the worker schema; the database that jobs are added to comes first."""
    first = queue_alias()
    if conf.are_installations_named():
        # The pages show the installation "default", which is in one database.
        return [first]
    others = [alias for alias in connections if alias != first and _may_have_schema(alias)]
    return [first, *(alias for alias in others if _has_schema(alias))]


def selected_alias(request: HttpRequest) -> str:
    """Return the database that the request selects if it has the schema, else the database that jobs are added to."""
    selected = request.POST.get(PARAMETER) or request.GET.get(PARAMETER)
    return selected if selected and selected in aliases() else queue_alias()


_cache: dict[tuple[str, str], tuple[bool, float]] = {}


def clear_cache() -> None:
    """Forget which databases have the schema."""
    _cache.clear()


def _may_have_schema(alias: str) -> bool:
    return connections[alias].vendor == "postgresql" and router.allow_migrate(alias, APP_LABEL)


def _has_schema(alias: str) -> bool:
    schema = conf.current().schema
    answer, expires_at = _cache.get((alias, schema), (False, 0.0))
    if expires_at < time.monotonic():
        answer = False
        # A page must open even when another database fails.
        with suppress(Exception), connections[alias].cursor() as cursor:
            answer = "_private_jobs" in catalog.relations(cursor, schema=schema)
        _cache[alias, schema] = (answer, time.monotonic() + CACHE_SECONDS)
    return answer


@contextmanager
def reading(alias: str, *, timeout: float | None = None, has_fixed_plan: bool = True) -> Iterator[Session]:
    """Open a transaction for reading, with ADMIN_STATEMENT_TIMEOUT, or a shorter time, for each statement.

    The statements of ``sql.inspection`` have one plan; for queries of Django's ORM, the planner chooses.
    """
    longest = conf.current().admin_statement_timeout
    shorter = longest if timeout is None else min(timeout, longest)
    with _limited(alias, shorter, "ADMIN_STATEMENT_TIMEOUT", has_fixed_plan=has_fixed_plan) as session:
        yield session


@contextmanager
def writing(alias: str, *, waits_for_locks: bool = False) -> Iterator[Session]:
    """Open a transaction for changing jobs, with STATEMENT_TIMEOUT for each statement, as in the worker."""
    with _limited(
        alias,
        conf.current().statement_timeout,
        "STATEMENT_TIMEOUT",
        lock_timeout=None if waits_for_locks else LONGEST_LOCK_WAIT,
    ) as session:
        yield session


@contextmanager
def _limited(
    alias: str, timeout: float, setting: str, *, lock_timeout: float | None = None, has_fixed_plan: bool = True
) -> Iterator[Session]:
    connection, schema = connections[alias], conf.current().schema
    is_outermost = not connection.in_atomic_block
    try:
        with transaction.atomic(using=alias), connection.cursor() as cursor:
            before = statement_limits.limit_statements(
                cursor, timeout=timeout, lock_timeout=lock_timeout, has_fixed_plan=has_fixed_plan
            )
            yield Session(cursor, schema)
            # The limits end with the transaction. Inside a transaction of the caller they would outlast the page.
            if not is_outermost:
                statement_limits.change_settings(cursor, before)
    except OperationalError as error:
        if sqlstate(error) not in (QUERY_CANCELED, LOCK_NOT_AVAILABLE):
            raise
        raise PageTimeoutError(setting) from error
    except DatabaseError as error:
        ours: GraphileWorkerError | None = translated(error, alias=alias, schema=schema)
        if ours is None:
            raise
        raise ours from error
