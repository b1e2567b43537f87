from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from testproject import databases
from tests.support.emptying import forget_everything
from tests.support.versioned_servers import VersionedServer
from tests.support.worker_sql import WorkerSql


@pytest.fixture(scope="module")
def shared_database(versioned_server: VersionedServer) -> Iterator[str]:
    """The address of a migrated database for the tests of a module, on each supported version of PostgreSQL."""
    url = versioned_server.create_database()
    yield url
    versioned_server.drop_database(url)


@pytest.fixture
def shared_connection(shared_database: str, worker_schema: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to `shared_database`, without the rows and the statistics of earlier tests."""
    with psycopg.connect(shared_database, autocommit=True) as connection:
        forget_everything(connection, worker_schema)
        yield connection


@pytest.fixture(scope="session")
def worker_connection(django_db_setup: None) -> Iterator[psycopg.Connection[Any]]:
    """A connection that all tests whose work is rolled back share."""
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


@pytest.fixture
def owner(committing_worker: Callable[..., WorkerSql]) -> WorkerSql:
    """The SQL functions as the owner of the schema, on a connection that commits."""
    return committing_worker()


@pytest.fixture
def role(owner: WorkerSql) -> Iterator[str]:
    """A role that may log in and has no rights; dropped at the end with all that was granted to it."""
    name = f"gw_role_{owner.connection.info.backend_pid}"
    owner.query(f"create role {name} login")
    yield name
    owner.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", name)
    policies = "select tablename, policyname from pg_policies where schemaname = %s and roles <> '{public}'"
    for policy in owner.query(policies, owner.schema):
        owner.query(f'drop policy "{policy["policyname"]}" on {{schema}}."{policy["tablename"]}"')
    owner.query(f"drop owned by {name}")
    owner.query(f"drop role {name}")


@pytest.fixture
def as_role(owner: WorkerSql, role: str, raw_connection: Callable[..., psycopg.Connection[Any]]) -> WorkerSql:
    """The SQL functions as the role, on a connection that commits."""
    connection = raw_connection()
    connection.execute(f"set role {role}".encode())
    return WorkerSql(connection, owner.schema)
