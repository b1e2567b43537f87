"""Releases and recovery read in proportion to what they change, on every supported PostgreSQL."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

BACKLOG = 20_000
HELD = 100
HOLDER = "django-worker-1/1"

FILL = f"""
insert into {{schema}}._private_tasks (identifier) select 'task ' || n from generate_series(1, 3000) as n;
insert into {{schema}}._private_job_queues (queue_name, locked_by, locked_at)
select 'held ' || n, '{HOLDER}', now() from generate_series(1, {HELD}) as n;
-- Jobs for tomorrow, all in the first of the queues.
insert into {{schema}}._private_jobs (task_id, job_queue_id, run_at, priority)
select (select min(id) from {{schema}}._private_tasks) + n % 3, (select min(id) from {{schema}}._private_job_queues),
    now() + interval '1 day', n % 3
from generate_series(1, {BACKLOG}) as n;
-- Claims of workers that live, older than any timeout.
insert into {{schema}}._private_workers (id) select 'django-worker-' || n from generate_series(1, 500) as n;
insert into {{schema}}._private_jobs (task_id, attempts, locked_by, locked_at)
select (select min(id) from {{schema}}._private_tasks), 1, 'django-worker-' || (1 + n % 500) || '/7',
    now() - interval '2 minutes' + n * interval '1 microsecond'
from generate_series(1, {BACKLOG}) as n;
-- And the ones to be ended.
insert into {{schema}}._private_jobs (task_id, attempts, locked_by, locked_at)
select (select min(id) from {{schema}}._private_tasks), 1, '{HOLDER}', now() from generate_series(1, {HELD}) as n;
"""


FREE = "update {schema}._private_job_queues set locked_by = null, locked_at = null"


class Meter:
    """Counts the buffers that a statement touches."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def query(self, text: str, *parameters: Any) -> list[Any]:
        cursor = self.connection.execute(text.replace("{schema}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def buffers(self, text: str, *parameters: Any, after: str = "select") -> int:
        """In a transaction that is rolled back; the first time the functions are planned, which counts too."""
        counts = [self._buffers(text, *parameters, after=after) for _ in range(2)]
        return counts[-1]

    def _buffers(self, text: str, *parameters: Any, after: str) -> int:
        with self.connection.transaction(force_rollback=True):
            self.query(after)
            ((plan,),) = self.query(f"explain (analyze, buffers, format json) {text}", *parameters)
        node = (plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]
        return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])


@pytest.fixture
def meter(shared_connection: psycopg.Connection[Any], worker_schema: str) -> Meter:
    meter = Meter(shared_connection, worker_schema)
    for statement in FILL.split(";\n"):
        meter.query(statement)
    return meter


def test_cost__does_not_grow_with_what_is_left_alone(meter: Meter) -> None:
    check_costs(meter)
    meter.query("analyze")
    check_costs(meter)
    check_that_all_locks_are_looked_at_in_the_end(meter)


def check_costs(meter: Meter) -> None:
    ids = [row[0] for row in meter.query("select id from {schema}._private_jobs where locked_by = %s", HOLDER)]
    queue_ids = [row[0] for row in meter.query("select id from {schema}._private_job_queues order by id")]
    holders = [HOLDER] * HELD
    costs = {
        "complete": meter.buffers("select {schema}._private_complete_claims(%s, %s, %s::int[])", ids, [HOLDER], [HELD]),
        "return": meter.buffers("select {schema}._private_return_claims(%s, %s)", ids, holders),
        "release": meter.buffers("select {schema}._private_release_queues(%s, %s)", queue_ids, holders),
        # Neither jobs for tomorrow nor names of tasks are read.
        "wait": meter.buffers("select {schema}._private_waiting_queues(%s)", queue_ids, after=FREE),
    }
    # For each a few index pages, the row and its new version, and each index in which it appears again.
    assert max(costs.values()) < 40 * HELD, costs
    # Some of the locks are looked at, never all.
    assert meter.buffers("select {schema}._private_orphans(60)") < 4000
    assert meter.buffers("select {schema}._private_late_workers(60, 10)") < 100


def check_that_all_locks_are_looked_at_in_the_end(meter: Meter) -> None:
    meter.query("delete from {schema}._private_workers where id = 'django-worker-500'")
    reached, looks, orphans = None, 0, set[str]()
    while looks == 0 or reached is not None:
        ((found, reached),) = meter.query("select * from {schema}._private_orphans(60, null, %s)", reached)
        orphans.update(found or [])
        looks += 1
    assert (orphans, looks) == ({"django-worker-500"}, BACKLOG // 1000 + 1)
