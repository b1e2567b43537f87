"""Results as workers write them, and the ends of jobs, without a worker."""

from __future__ import annotations

import json
from typing import Any

from tests.support.rows import in_quotes

SUCCEEDED, FAILED = 1, 2


def end_job(connection: Any, job_id: int, schema: str, *, value: Any = None, notifies: bool = True) -> None:
    """Delete a job and store its result in one transaction, and notify as the worker does."""
    quoted = in_quotes(schema)
    with connection.transaction():
        store_result(connection, job_id, schema, value=value)
        connection.execute(f"delete from {quoted}._private_jobs where id = %s".encode(), [job_id])
        if notifies:
            payload = json.dumps({"schema": schema, "jobs": [job_id]})
            connection.execute(
                f"select pg_notify('jobs:result', %s) from {quoted}._private_waiters where job_id = %s".encode(),
                [payload, job_id],
            )


def store_result(
    connection: Any,
    job_id: int,
    schema: str,
    *,
    task: str = "task",
    status: int = SUCCEEDED,
    value: Any = None,
    attempts: Any = (),
) -> None:
    """Store the result of a job, whether the job exists or not."""
    connection.execute(
        f"insert into {in_quotes(schema)}._private_results (job_id, task_identifier, status, value, attempts, added_at,"
        " first_started_at, last_started_at, finished_at, expires_at) values (%s, %s, %s, %s, %s,"
        " now() - interval '3 s', now() - interval '2 s', now() - interval '1 s', now(), now() + interval '1 day')",
        [job_id, task, status, json.dumps(value), json.dumps(list(attempts))],
    )
