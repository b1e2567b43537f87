"""What remains of jobs: rows of results and of the history, read back."""

from __future__ import annotations

import json
from types import SimpleNamespace

from django.db import connection


def results(schema: str) -> dict[int, SimpleNamespace]:
    """Return the rows of results by the id of the job, with the attempts decoded."""
    found = _rows(f'select * from "{schema}"._private_results order by job_id')
    for row in found:
        row.attempts = json.loads(row.attempts)
    return {row.job_id: row for row in found}


def history(schema: str) -> list[SimpleNamespace]:
    """Return the rows of the history with the names of their partitions, by job and attempt."""
    return _rows(
        f'select *, tableoid::regclass::text as partition from "{schema}"._private_history'
        " order by job_id, attempt, ended_at"
    )


def wait_for(schema: str, job_id: int) -> None:
    """Register a session that waits for the result of this job."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into \"{schema}\"._private_waiters values (%s, 'a test', now() + interval '1 hour')", [job_id]
        )


def _rows(statement: str) -> list[SimpleNamespace]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column.name for column in cursor.description]
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def drop_days(schema: str) -> None:
    """Drop the partitions of single days, as before the first worker with a history."""
    names = _rows(
        "select format('%%I.%%I', schemaname, tablename) as name from pg_tables"
        f" where schemaname = '{schema}' and tablename ~ '^_private_history_[0-9]{{8}}$'".replace("%%", "%")
    )
    with connection.cursor() as cursor:
        for row in names:
            cursor.execute(f"drop table {row.name}")
