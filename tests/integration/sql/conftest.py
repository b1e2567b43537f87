from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from testproject import databases
from tests.support.worker_sql import WorkerSql


@pytest.fixture(scope="session")
def worker_connection(django_db_setup: None) -> Iterator[psycopg.Connection[Any]]:
    """One connection for all tests whose work is rolled back."""
    url = databases.to_url(connections["default"].settings_dict)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def worker(db: None, worker_connection: psycopg.Connection[Any], worker_schema: str) -> Iterator[WorkerSql]:
    """The SQL functions in a transaction that is rolled back; an error in one call does not affect later calls."""
    with worker_connection.transaction(force_rollback=True):
        yield WorkerSql(worker_connection, worker_schema)


@pytest.fixture
def committing_worker(
    raw_connection: Callable[..., psycopg.Connection[Any]], worker_schema: str
) -> Callable[..., WorkerSql]:
    """A factory of SQL functions on connections of their own, which commit."""
    return lambda **options: WorkerSql(raw_connection(**options), worker_schema)
