from __future__ import annotations

from collections.abc import Callable

from tests.migration.catalog import catalog
from tests.migration.conftest import Site
from tests.migration.test_install import SNAPSHOT
from tests.node.conftest import NodeWorker
from tests.support.worker_sql import WorkerSql


def test_our_schema_and_the_stored_snapshot__equal_that_of_node(
    node_worker: NodeWorker, worker: WorkerSql, make_site: Callable[[], Site]
) -> None:
    """The names of constraints are equal, too."""
    ours = make_site()
    node_worker.migrate()
    ours.migrate()

    assert catalog(worker.connection, worker.schema) == SNAPSHOT.read_text(encoding="utf-8")
    with ours.connect() as connection:
        assert catalog(connection, ours.schema, with_not_null=True) == catalog(
            worker.connection, worker.schema, with_not_null=True
        )


def test_schema_that_node_made__is_adopted_with_its_jobs_and_restored(
    node_worker: NodeWorker, worker: WorkerSql
) -> None:
    added = node_worker.add(
        {"add": ["greet", {"n": 1}, {"queueName": "queue", "jobKey": "key", "priority": 3, "flags": ["flag"]}]},
        {"batch": [[{"identifier": "greet", "payload": [1], "jobKey": "batch"}, {"identifier": "greet"}]]},
    )
    before, jobs = node_worker.site.dump(), worker.jobs()
    assert [job["id"] for job in added] == [str(job["id"]) for job in jobs]

    node_worker.site.migrate()

    assert worker.jobs() == jobs
    assert worker.add_job("greet", job_key="batch", payload=[2])["payload"] == [1, 2]
    assert len(node_worker.work(3, "greet")) == 3

    node_worker.site.migrate("zero")
    assert node_worker.site.dump() == before
    node_worker.add({"add": ["greet", {"n": 2}]})
    assert [job["payload"] for job in node_worker.work(1, "greet")] == [{"n": 2}]
