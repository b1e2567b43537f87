"""A transaction that holds a snapshot for long: vacuum removes nothing, so claims read dead index entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import claims, releases, workers
from django_graphile_worker.worker.fetching.scan import Scan

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
        summary: dict[str, Any] = dict.fromkeys(
            ("seconds_until_next", "has_more", "is_cut", "is_waiting", "freed_queues", "seconds")
        )
        summary["continuation"] = claims.START._asdict()
        return [[summary if name == "token" else None for name in claims.Claim._fields]]


class JobsOfOneTask:
    """The jobs of a single task, with the statements of the worker."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        with connection.cursor() as cursor:
            self.task_ids = list(workers.register_tasks(cursor, ["a_task"], schema=schema))

    def claim(self, cursor: Any, max_jobs: int, **more: Any) -> claims.Claimed:
        options: dict[str, Any] = {"token": "django-worker-w/1", "max_per_queue": 1, **more}
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

    def seen(self) -> claims.Continuation:
        """Return where a worker goes on that has just seen that no job is left."""
        scan = Scan()
        with self.connection.cursor() as cursor:
            # Two slow passes: then claims look at what is new.
            for began in (0.0, 10.0):
                slow = replace(self.claim(cursor, 10), seconds=1.0)
                scan.behind(began, ())
                scan.note(slow, ended=began + 1)
        return scan.behind(11.0, ())

    def cost(self, behind: claims.Continuation = claims.START) -> int:
        """Return the pages that a claim of the only job reads."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"select id from \"{self.schema}\".add_job('a_task')".encode())
            counting = CountingCursor(cursor)
            self.claim(counting, 10, behind=behind)
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


@pytest.fixture
def jobs_under_a_snapshot(
    versioned_database: str, versioned_connection: psycopg.Connection[Any], worker_schema: str
) -> Iterator[JobsOfOneTask]:
    """A queue, while a transaction holds a snapshot."""
    with psycopg.connect(versioned_database) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from pg_class")
        yield JobsOfOneTask(versioned_connection, worker_schema)
        holder.rollback()


def test_held_snapshot__does_not_raise_the_cost_of_claims_behind_a_place(
    jobs_under_a_snapshot: JobsOfOneTask,
) -> None:
    queue = jobs_under_a_snapshot
    queue.drain(BATCH)
    before = queue.cost(queue.seen())
    queue.drain(JOBS)
    after = queue.cost(place_now(queue))
    assert after <= before + NOISE / 5, f"{before} pages before, {after} after {JOBS} jobs"
    # The measure works: from the start of the backlog it is more.
    assert queue.cost() > after + NOISE


def place_now(queue: JobsOfOneTask) -> claims.Continuation:
    """Return where a worker goes on that has seen everything, without the overlap for what is committed late."""
    (place,) = queue.seen().places
    row = queue.connection.execute("select to_json(now()) #>> '{}'").fetchone()
    assert row is not None
    return claims.Continuation([{**place, "run_at": row[0], "queued_run_at": row[0]}])


RELEASES = [
    "_private_fail_claims(%s, %s, array['error'], array[1], array[false], array[null::text])",
    "_private_return_claims(%s, %s)",
    "_private_complete_claims(%s, %s, array[1])",
]


def test_held_snapshot__does_not_raise_the_cost_of_releases(jobs_under_a_snapshot: JobsOfOneTask) -> None:
    """According to its statistics the table is empty, and then a scan of the whole primary key looks cheap."""
    queue = jobs_under_a_snapshot
    queue.drain(JOBS)
    queue.connection.execute("vacuum analyze")
    pages = {}
    with queue.connection.cursor() as cursor:
        for call in RELEASES:
            cursor.execute(f"select id from \"{queue.schema}\".add_job('a_task')".encode())
            (claim,) = queue.claim(cursor, 10).claims
            # The first call is planned, which reads the catalog.
            CountingCursor(cursor).execute(f'select "{queue.schema}".{call}', [[0], [claim.token]])
            counting = CountingCursor(cursor)
            counting.execute(f'select "{queue.schema}".{call}', [[claim.id], [claim.token]])
            pages[call] = counting.pages
            cursor.execute(f'delete from "{queue.schema}"._private_jobs'.encode())
    assert max(pages.values()) < NOISE, pages


def test_job_before_the_place__is_found_by_the_next_claim_from_the_start(jobs_under_a_snapshot: JobsOfOneTask) -> None:
    queue = jobs_under_a_snapshot
    queue.drain(BATCH)
    place = queue.seen()
    with queue.connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{queue.schema}"._private_jobs (task_id, run_at)'
            " select %s, now() - interval '30 seconds' returning id".encode(),
            queue.task_ids,
        )
        ((late,),) = cursor.fetchall()
        cursor.execute(f"select id from \"{queue.schema}\".add_job('a_task')".encode())
        ((new,),) = cursor.fetchall()
        assert [claim.id for claim in queue.claim(cursor, 10, behind=place).claims] == [new]
        assert [claim.id for claim in queue.claim(cursor, 10).claims] == [late]


def test_tables_of_the_queue__are_vacuumed_by_the_settings_of_the_server(
    versioned_connection: psycopg.Connection[Any], worker_schema: str
) -> None:
    """The package does not switch autovacuum off."""
    options = versioned_connection.execute(
        "select relname, reloptions from pg_class where relnamespace = %s::regnamespace and relkind = 'r'",
        [f'"{worker_schema}"'],
    ).fetchall()
    assert [name for name, option in options if "autovacuum_enabled=false" in (option or [])] == []
