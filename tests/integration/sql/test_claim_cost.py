"""A claim reads in proportion to what it returns, whatever else lies in the table."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import claims
from tests.factories import make_job, make_queue, make_task

pytestmark = pytest.mark.django_db

BACKLOG = 5000
CLAIMED = 10
# Entries looked at per job returned, with a constant for the walk over levels and queues.
MOST_READ = 40 * CLAIMED + 300

SHAPES = {
    "future": "insert into {jobs} (task_id, run_at) select {task}, now() + interval '1 day' from {series}",
    "future at a better priority": "insert into {jobs} (task_id, run_at, priority)"
    " select {task}, now() + interval '1 day', -5 from {series}",
    "permanently failed": "insert into {jobs} (task_id, attempts) select {task}, 25 from {series}",
    "locked": "insert into {jobs} (task_id, attempts, locked_at, locked_by)"
    " select {task}, 1, now(), 'somebody' from {series}",
    "unknown task": "insert into {jobs} (task_id, run_at) select {unknown}, now() - interval '1 day' from {series}",
    "one busy queue": "insert into {jobs} (task_id, job_queue_id, run_at)"
    " select {task}, {busy}, now() - interval '1 day' from {series}",
    "many queues": "insert into {jobs} (task_id, job_queue_id, run_at)"
    " select {task}, (select min(id) from {queues}) + n % 1000, now() from {series}",
    "queues with future jobs": "insert into {jobs} (task_id, job_queue_id, run_at)"
    " select {task}, (select min(id) from {queues}) + n % 1000, now() + interval '1 day' from {series}",
    "forbidden flag": "insert into {jobs} (task_id, flags, run_at)"
    """ select {task}, '{{"heavy": true}}', now() - interval '1 day' from {series}""",
}


@pytest.fixture
def cursor() -> Any:
    with connection.cursor() as cursor:
        yield cursor


def entries_read(cursor: Any, schema: str) -> int:
    """Rows and index entries of the jobs table that this transaction has read."""
    cursor.execute(
        """
        select sum(pg_stat_get_xact_tuples_returned(relation.oid))
        from (
            select table_oid as oid from (select %(table)s::regclass::oid as table_oid) as jobs
            union all
            select indexrelid from pg_index where indrelid = %(table)s::regclass
        ) as relation
        """,
        {"table": f'"{schema}"._private_jobs'},
    )
    return int(cursor.fetchone()[0])


@pytest.mark.parametrize("has_statistics", [False, True], ids=["stale statistics", "analyzed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reads_little_beside_a_backlog_of(shape: str, has_statistics: bool, cursor: Any, worker_schema: str) -> None:
    task = make_task("task")
    busy = make_queue("busy", locked_by="somebody")
    jobs, queues = f'"{worker_schema}"._private_jobs', f'"{worker_schema}"._private_job_queues'
    cursor.execute(f"insert into {queues} (queue_name) select 'q' || n from generate_series(1, 1000) as n")
    cursor.execute(
        SHAPES[shape].format(
            jobs=jobs,
            queues=queues,
            task=task,
            busy=busy,
            unknown=make_task("unknown"),
            series=f"generate_series(1, {BACKLOG}) as n",
        )
    )
    ready = [make_job(priority=1) for _ in range(CLAIMED)]
    if has_statistics:
        cursor.execute(f"analyze {jobs}")
    # What other tests left dead in the index is noticed once, and stepped over from then on.
    cursor.execute(f"select id from {jobs} where is_available order by priority, run_at limit 1")
    before = entries_read(cursor, worker_schema)
    claimed = claims.claim_jobs(
        cursor,
        schema=worker_schema,
        holder="django-worker-1",
        task_ids=[task],
        max_jobs=CLAIMED,
        max_queues=2,
        stretch=2,
        forbidden_flags=["heavy"],
    )
    assert len(claimed.claims) == CLAIMED
    assert {claim.id for claim in claimed.claims if claim.queue_id is None} <= set(ready)
    assert entries_read(cursor, worker_schema) - before < MOST_READ


def test_counts_what_is_read(cursor: Any, worker_schema: str) -> None:
    """The measure itself works: a scan of the whole table shows."""
    task = make_task("task")
    cursor.execute(
        f'insert into "{worker_schema}"._private_jobs (task_id) select %s from generate_series(1, 1000)', [task]
    )
    before = entries_read(cursor, worker_schema)
    cursor.execute(f'select count(payload::text) from "{worker_schema}"._private_jobs')
    assert entries_read(cursor, worker_schema) - before >= 1000
