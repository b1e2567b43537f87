"""Whether a transaction reads a job that it has itself added or changed, on each supported version."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from django_graphile_worker.sql.results import read_results

Connection = psycopg.Connection[Any]


def test_own_changes__are_told_from_those_of_others(
    versioned_database: str, versioned_connection: Connection, worker_schema: str
) -> None:
    own, schema = versioned_connection, sql.Identifier(worker_schema)

    def add(connection: Connection) -> int:
        row = connection.execute(sql.SQL("select id from {}.add_job('task')").format(schema)).fetchone()
        assert row is not None
        return int(row[0])

    def change(connection: Connection, job_id: int) -> None:
        update = sql.SQL("update {}._private_jobs set priority = priority + 1 where id = %s").format(schema)
        connection.execute(update, [job_id])

    def is_uncommitted(job_id: int) -> bool:
        with own.cursor() as cursor:
            return read_results(cursor, [job_id], schema=worker_schema)[job_id].is_uncommitted

    with psycopg.connect(versioned_database, autocommit=True) as other:
        committed, undone = add(own), add(own)
        assert not is_uncommitted(committed)
        with own.transaction():
            assert not is_uncommitted(committed), "a transaction that has written nothing has no id"
            added = add(own)
            theirs = add(other)
            change(other, undone)
            with own.transaction():
                in_savepoint = add(own)
                change(own, committed)
                assert is_uncommitted(in_savepoint)
            with own.transaction(force_rollback=True):
                change(own, undone)
                assert is_uncommitted(undone)
            assert [is_uncommitted(each) for each in (added, in_savepoint, committed)] == [True, True, True]
            assert [is_uncommitted(each) for each in (undone, theirs)] == [False, False]
        assert [is_uncommitted(each) for each in (added, in_savepoint, committed)] == [False, False, False]
