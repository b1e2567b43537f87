"""The operator command: calls it as the command line does, and inserts the rows that it shows."""

from __future__ import annotations

import json
from datetime import datetime
from io import StringIO
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connections

from django_graphile_worker.management.commands.graphile_worker import Command
from tests.support.factories import minutes_ago
from tests.support.recorded_statistics import make_row

# Ids of workers.
DEAD = "django-worker-dead"
LIVE = "django-worker-live"


class Output(NamedTuple):
    """The output of a command."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def operate(*arguments: str) -> Output:
    """Call `manage.py graphile_worker` with these arguments.

    In place of call_command(), which builds the parsers of all verbs in each call.
    """
    out, err = StringIO(), StringIO()
    command = Command(stdout=out, stderr=err)
    parser = command.create_parser("manage.py", "graphile_worker")
    command.execute(**vars(parser.parse_args(arguments)))
    return Output(out.getvalue(), err.getvalue())


def execute(statement: str, parameters: Any = None, *, using: str = "default") -> list[tuple[Any, ...]]:
    """Run a statement; {schema} in it is the worker schema."""
    with connections[using].cursor() as cursor:
        quoted = connections[using].ops.quote_name(settings.GRAPHILE_WORKER["SCHEMA"])
        cursor.execute(statement.replace("{schema}", quoted), parameters)
        return cursor.fetchall() if cursor.description else []


def job_row(job_id: int, *columns: str, using: str = "default") -> tuple[Any, ...] | None:
    """Return columns of a job from the table, or None if the job does not exist."""
    rows = execute(f"select {', '.join(columns)} from {{schema}}._private_jobs where id = %s", [job_id], using=using)
    return rows[0] if rows else None


def make_worker(worker_id: str, *, beat: datetime | None = None, using: str = "default", **metadata: Any) -> str:
    """Insert a worker whose last heartbeat was now, or at the given time."""
    execute(
        "insert into {schema}._private_workers (id, last_heartbeat_at, started_at, metadata, timeout_seconds)"
        " values (%s, %s, %s, %s::jsonb, 60)",
        [worker_id, beat or minutes_ago(0), minutes_ago(60), json.dumps(metadata)],
        using=using,
    )
    return worker_id


def make_statistics(task: str, minutes: float, **counts: Any) -> None:
    numbers = make_row(task, 0, **counts).counts
    for period, kind, name in ((60, "task", task), (60, "all", ""), (600, "task", task)):
        execute(
            "insert into {schema}._private_statistics (period_seconds, kind, started_at, name, counts)"
            " values (%s, %s, %s, %s, %s)",
            [period, kind, minutes_ago(minutes), name, numbers],
        )
