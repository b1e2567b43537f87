"""Jobs in the tables of the worker schema, which this package and graphile-worker share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from benchmarks.database import SCHEMA, Database
from benchmarks.draining import Left

JOBS = f"{SCHEMA}._private_jobs"
QUEUES = f"{SCHEMA}._private_job_queues"


def load(
    database: Database,
    count: int,
    *,
    queue: str = "null",
    task: str = "noop",
    payload: str = "json_build_object('id', n)",
) -> None:
    """Insert jobs by plain SQL; ``n`` is the number of the job in the expressions for queue and payload."""
    database.execute(
        f"insert into {JOBS} (task_id, payload, job_queue_id)"
        f" select {database.task_id(task)}, {payload}, {queue} from generate_series(1, {count}) as n"
    )
    database.settle()


def make_queues(database: Database, count: int, *, busy: bool = False) -> None:
    locks = "now(), 'other'" if busy else "null::timestamptz, null"
    database.execute(f"truncate {QUEUES} restart identity")
    database.execute(
        f"insert into {QUEUES} (queue_name, locked_at, locked_by)"
        f" select 'queue ' || n, {locks} from generate_series(1, {count}) as n"
    )


def last_id(database: Database) -> int:
    return int(database.scalar(f"select coalesce(pg_sequence_last_value(pg_get_serial_sequence('{JOBS}', 'id')), 0)"))


def left_in(*databases: Database, after: int = 0) -> Left:
    """Return how to ask for jobs with ids above ``after``.

    Workers take the lowest ids first, so the index finds a job that is left from its other end at once.
    """
    found = f"select coalesce((select true from {JOBS} where id > {after} order by id desc limit 1), false)"
    count = f"select count(*) from {JOBS} where id > {after}"
    return Left(
        any=lambda: any(database.scalar(found) for database in databases),
        count=lambda: sum(int(database.scalar(count)) for database in databases),
    )


@contextmanager
def gate(*databases: Database, table: str = JOBS) -> Iterator[Callable[[], None]]:
    """Keep workers from the jobs until the function that this yields is called: their first claims wait for a lock."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(database.url)) for database in databases]
        for session in sessions:
            session.execute(f"lock table {table} in access exclusive mode".encode())

        def open_gate() -> None:
            for session in sessions:
                session.rollback()

        yield open_gate
