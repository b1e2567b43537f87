"""A transaction that holds a snapshot for long: vacuum removes nothing, so claims read dead index entries."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import claims, releases, tasks

JOBS = 3000
BATCH = 100
# The difference that the positions of rows on their pages can make.
NOISE = 100
# A page holds more than a hundred entries of an index, and a claim reads a few indexes.
PAGES_FOR_EACH_JOB = 0.1
LAST_ID = 2**63 - 1


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
        summary = {"seconds_until_next": None, "has_more": False}
        return [[summary if name == "token" else None for name in claims.Claim._fields]]


class JobsOfOneTask:
    """The jobs of a single task, with the statements of the worker."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        with connection.cursor() as cursor:
            self.task_ids = list(tasks.register_tasks(cursor, ["a_task"], schema=schema))

    def claim(self, cursor: Any, max_jobs: int, **more: Any) -> claims.Claimed:
        options: dict[str, Any] = {"token": "django-worker-w/1", "max_queues": 2, "max_per_queue": 1, **more}
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

    def floor(self) -> claims.Floor:
        """Return the floor of a worker that has just seen that no job is left."""
        with self.connection.cursor() as cursor:
            looked_at = self.claim(cursor, 10).looked_at
        return claims.Floor(0, looked_at, 0, looked_at)

    def cost(self, floors: Sequence[claims.Floor] = ()) -> int:
        """Return the pages that a claim of the only job reads."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"select id from \"{self.schema}\".add_job('a_task')".encode())
            counting = CountingCursor(cursor)
            self.claim(counting, 10, floors=floors)
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


def test_held_snapshot__does_not_raise_the_cost_of_claims_that_begin_at_a_floor(
    jobs_under_a_snapshot: JobsOfOneTask,
) -> None:
    queue = jobs_under_a_snapshot
    queue.drain(BATCH)
    before = queue.cost([queue.floor()])
    queue.drain(JOBS)
    after = queue.cost([queue.floor()])
    assert after <= before + NOISE / 5, f"{before} pages before, {after} after {JOBS} jobs"
    # The measure works: from the start of the backlog it is more.
    assert queue.cost() > after + NOISE


@pytest.mark.parametrize(
    "call",
    [
        "_private_fail_claims_v3(%s, %s, array['error'], array[1], array[false], array[null::text])",
        "_private_return_claims_v3(%s, %s)",
        "_private_complete_claims_v3(%s, %s, array[1])",
    ],
)
def test_held_snapshot__does_not_raise_the_cost_of_releases(jobs_under_a_snapshot: JobsOfOneTask, call: str) -> None:
    """According to its statistics the table is empty, and then a scan of the whole primary key looks cheap."""
    queue = jobs_under_a_snapshot
    queue.drain(JOBS)
    queue.connection.execute("vacuum analyze")
    with queue.connection.cursor() as cursor:
        cursor.execute(f"select id from \"{queue.schema}\".add_job('a_task')".encode())
        (claim,) = queue.claim(cursor, 10).claims
        # The first call is planned, which reads the catalog.
        CountingCursor(cursor).execute(f'select "{queue.schema}".{call}', [[0], [claim.token]])
        counting = CountingCursor(cursor)
        counting.execute(f'select "{queue.schema}".{call}', [[claim.id], [claim.token]])
    assert counting.pages < NOISE


def test_job_before_the_floor__is_found_by_a_claim_of_its_slice(jobs_under_a_snapshot: JobsOfOneTask) -> None:
    queue = jobs_under_a_snapshot
    queue.drain(BATCH)
    floor = queue.floor()
    with queue.connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{queue.schema}"._private_jobs (task_id, run_at) select %s, to_timestamp(%s) - age'
            " from unnest(array[interval '30 seconds', interval '10 seconds']) as age returning id".encode(),
            [queue.task_ids[0], floor.run_at],
        )
        (_, second) = [row[0] for row in cursor.fetchall()]
        assert queue.claim(cursor, 10, floors=[floor]).claims == []
        start = claims.Floor(0, floor.run_at - 20, 0, floor.run_at - 20)
        end = claims.End(0, floor.run_at - 5, 0, floor.run_at - 5, 0)
        found = queue.claim(cursor, 10, floors=[start], ends=[end])
    assert [claim.id for claim in found.claims] == [second]


def test_part_of_a_moment__is_read_without_the_rest(jobs_under_a_snapshot: JobsOfOneTask) -> None:
    """Jobs that were added together have one due time: a slice ends at an id."""
    queue = jobs_under_a_snapshot
    table = f'"{queue.schema}"._private_jobs'
    with queue.connection.cursor() as cursor:
        cursor.execute(
            f"with added as (insert into {table} (task_id) select %s from generate_series(1, %s) returning id, run_at)"
            " select min(id), date_part('epoch', min(run_at)) from added".encode(),
            [queue.task_ids[0], JOBS],
        )
        ((first, moment),) = cursor.fetchall()
        cursor.execute(f"delete from {table}".encode())

        def part(start: int, end: int, max_jobs: int = 10) -> claims.Claimed:
            ends = [claims.End(0, moment, end, moment, end)]
            return queue.claim(cursor, max_jobs, floors=[claims.Floor(0, moment, start, moment)], ends=ends)

        whole = part(0, LAST_ID).pages or 0
        assert whole > JOBS / 200
        parts = [part(first - 1 + number * JOBS // 10, first - 1 + (number + 1) * JOBS // 10) for number in range(10)]
        assert max(each.pages or 0 for each in parts) <= whole / 10 + 3
        # In a queue or not: what comes in at this moment is found in its part, and in no other.
        cursor.execute(f"insert into \"{queue.schema}\"._private_job_queues (queue_name) values ('q')".encode())
        cursor.execute(
            f"insert into {table} (id, task_id, run_at, flags, job_queue_id) overriding system value"
            " select id, %s, to_timestamp(%s), flags::jsonb, (select q.id"
            f' from "{queue.schema}"._private_job_queues as q where is_queued)'
            " from (values (%s, null, false), (%s, '{\"flag\": true}', false), (%s, null, true))"
            " as added(id, flags, is_queued)".encode(),
            [queue.task_ids[0], moment, *(job_ids := [first + 5, first + 6, first + 7])],
        )
        assert part(0, first + 4).claims == part(first + 7, LAST_ID).claims == []
        assert [claim.id for number in job_ids for claim in part(number - 1, number).claims] == job_ids


def test_slice__does_not_change_the_order_of_a_queue(jobs_under_a_snapshot: JobsOfOneTask) -> None:
    queue = jobs_under_a_snapshot
    with queue.connection.cursor() as cursor:
        for number, priority, age in ((1, 5, 50), (2, 0, 1)):
            cursor.execute(
                f"select \"{queue.schema}\".add_job('a_task', queue_name := 'q', priority := %s,"
                " payload := %s, run_at := now() - make_interval(secs => %s))".encode(),
                [priority, str(number), age],
            )
        looked_at = time.time()
        starts = [claims.Floor(priority, looked_at - 60, 0, looked_at - 60) for priority in (0, 5)]
        ends = [claims.End(priority, looked_at - 40, 0, looked_at - 40, 0) for priority in (0, 5)]
        found = queue.claim(cursor, 1, floors=starts, ends=ends)
    assert [claim.payload_text for claim in found.claims] == ["2"]


def test_tables_of_the_queue__are_vacuumed_by_the_settings_of_the_server(
    versioned_connection: psycopg.Connection[Any], worker_schema: str
) -> None:
    """The package does not switch autovacuum off."""
    options = versioned_connection.execute(
        "select relname, reloptions from pg_class where relnamespace = %s::regnamespace and relkind = 'r'",
        [f'"{worker_schema}"'],
    ).fetchall()
    assert [name for name, option in options if "autovacuum_enabled=false" in (option or [])] == []
