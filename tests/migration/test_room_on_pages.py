"""The pages of jobs have room for the versions of rows that claims write."""

from __future__ import annotations

import pytest

from django_graphile_worker.sql import claims, workers
from tests.migration.conftest import Site
from tests.support.worker_sql import WorkerSql

BEFORE = "0001"
# The planner of an earlier PostgreSQL takes the room for rows.
ROOM_SINCE = 170000
OPTIONS = "select reloptions from pg_class where oid = '{schema}._private_jobs'::regclass"


@pytest.fixture
def has_room(site: Site, worker: WorkerSql) -> bool:
    """Whether the pages of a new schema have room, on the server of the suite."""
    site.migrate()
    return worker.connection.info.server_version >= ROOM_SINCE


def test_new_schema__leaves_room_and_a_value_that_an_administrator_has_chosen_stays(
    site: Site, worker: WorkerSql, has_room: bool
) -> None:
    assert worker.value(OPTIONS) == (["fillfactor=40"] if has_room else None)
    site.migrate(BEFORE)
    assert worker.value(OPTIONS) is None
    worker.query("alter table {schema}._private_jobs set (fillfactor = 80)")
    site.migrate()
    assert worker.value(OPTIONS) == ["fillfactor=80"]
    site.migrate(BEFORE)
    assert worker.value(OPTIONS) == ["fillfactor=80"]


@pytest.mark.parametrize("size", [2, 200])
def test_claim__writes_rows_to_the_pages_where_they_were(worker: WorkerSql, has_room: bool, size: int) -> None:
    """The log has only what a claim changes, and no second page is read and written."""
    worker.query(
        "select count(*) from {schema}.add_jobs(array(select row('a_task', to_json(repeat('x', %s)), null, null, null,"
        " null, null, null)::{schema}.job_spec from generate_series(1, 500)))",
        size,
    )
    pages = "select array_agg((ctid::text::point)[0]::int order by id) from {schema}._private_jobs"
    before = worker.value(pages)
    with worker.connection.cursor() as cursor:
        task_ids = list(workers.register_tasks(cursor, ["a_task"], schema=worker.schema))
        claimed = claims.claim_jobs(
            cursor,
            schema=worker.schema,
            token="django-worker-0123456789abcdef01/1234567",
            task_ids=task_ids,
            max_jobs=500,
            max_per_queue=1,
        )
    assert len(claimed.claims) == 500
    moved = sum(old != new for old, new in zip(before, worker.value(pages), strict=True))
    # Of the smallest rows, a page may have one that does not fit.
    assert moved <= 25 or not has_room
