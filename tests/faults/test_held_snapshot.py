"""A transaction that holds a snapshot for long: vacuum removes nothing, so claims read dead index entries."""

from __future__ import annotations

from typing import Any

import psycopg

from django_graphile_worker.sql import claims, releases, tasks

JOBS = 3000
BATCH = 100
# The difference that the positions of rows on their pages can make.
NOISE = 100
# A page holds more than a hundred entries of an index, and a claim reads a few indexes.
PAGES_FOR_EACH_JOB = 0.1


class CountingCursor:
    """A cursor that runs statements with EXPLAIN, and counts the pages that they read."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor
        self.pages = 0

    def execute(self, text: Any, parameters: Any = None) -> None:
        written = text if isinstance(text, str) else text.decode()
        self._cursor.execute("explain (analyze, buffers, format json) " + written, parameters)
        row = self._cursor.fetchone()
        assert row is not None
        ((plan, *_),) = row
        self.pages += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]

    def fetchall(self) -> list[Any]:
        """Return the rows of a claim without jobs: only its summary."""
        return [({"seconds_until_next": None, "has_more": False},)]


class JobsOfOneTask:
    """The jobs of a single task, with the statements of the worker."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        with connection.cursor() as cursor:
            self.task_ids = list(tasks.register_tasks(cursor, ["a_task"], schema=schema))

    def claim(self, cursor: Any, max_jobs: int) -> claims.Claimed:
        options: dict[str, Any] = {"token": "django-worker-w/1", "max_queues": 2, "max_per_queue": 1}
        return claims.claim_jobs(cursor, schema=self.schema, task_ids=self.task_ids, max_jobs=max_jobs, **options)

    def drain(self, count: int) -> None:
        """Add, claim and complete a number of jobs."""
        spec = f"row('a_task', '{{}}', null, null, null, null, null, null)::\"{self.schema}\".job_spec"
        for _ in range(count // BATCH):
            with self.connection.cursor() as cursor:
                cursor.execute(
                    f'select count(*) from "{self.schema}".add_jobs('
                    f"(select array_agg({spec}) from generate_series(1, {BATCH})))".encode()
                )
                claimed = self.claim(cursor, BATCH)
                assert len(claimed.claims) == BATCH
                releases.complete_jobs(cursor, claimed.claims, schema=self.schema)

    def cost(self) -> int:
        """Return the pages that a claim of the only job reads."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"select id from \"{self.schema}\".add_job('a_task')".encode())
            counting = CountingCursor(cursor)
            self.claim(counting, 10)
            cursor.execute(f'delete from "{self.schema}"._private_jobs'.encode())
        return counting.pages


def test_held_snapshot__raises_the_cost_of_claims_in_proportion_until_it_ends(
    versioned_database: str, versioned_connection: psycopg.Connection[Any], worker_schema: str
) -> None:
    queue = JobsOfOneTask(versioned_connection, worker_schema)
    queue.drain(BATCH)
    versioned_connection.execute("vacuum")
    at_rest = queue.cost()
    with psycopg.connect(versioned_database) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from pg_class")
        queue.drain(JOBS)
        half = queue.cost()
        queue.drain(JOBS)
        whole = queue.cost()
        holder.rollback()
    versioned_connection.execute("vacuum")
    recovered = queue.cost()
    costs = f"{at_rest} pages at rest, {half} and {whole} under the snapshot, {recovered} after it"
    assert half <= at_rest + PAGES_FOR_EACH_JOB * JOBS + NOISE, costs
    assert whole <= at_rest + PAGES_FOR_EACH_JOB * 2 * JOBS + NOISE, costs
    assert recovered <= 1.5 * at_rest + NOISE, costs


def test_tables_of_the_queue__are_vacuumed_by_the_settings_of_the_server(
    versioned_connection: psycopg.Connection[Any], worker_schema: str
) -> None:
    """The package does not switch autovacuum off."""
    options = versioned_connection.execute(
        "select relname, reloptions from pg_class where relnamespace = %s::regnamespace and relkind = 'r'",
        [f'"{worker_schema}"'],
    ).fetchall()
    assert [name for name, option in options if "autovacuum_enabled=false" in (option or [])] == []
