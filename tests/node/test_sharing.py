"""The real graphile-worker on a schema that our migrations made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.migration.conftest import Site
from tests.node.conftest import NodeWorker
from tests.support.worker_sql import WorkerSql


def test_jobs_that_node_adds__are_read_by_us(site: Site, node_worker: NodeWorker, worker: WorkerSql) -> None:
    site.migrate()

    added = node_worker.add(
        {
            "add": [
                "send_email",
                {"to": "a@example.com"},
                {
                    "queueName": "mail",
                    "runAt": "2099-01-01T00:00:00Z",
                    "maxAttempts": 3,
                    "jobKey": "welcome",
                    "priority": -2,
                    "flags": ["slow", 'headers:{"tenant":"acme"}'],
                },
            ]
        },
        {"add": ["send_email", {"to": "b@example.com"}, {"jobKey": "welcome", "jobKeyMode": "preserve_run_at"}]},
        {"add": ["send_email", {"to": "c@example.com"}, {"jobKey": "welcome", "jobKeyMode": "unsafe_dedupe"}]},
        {
            "batch": [
                [{"identifier": "a", "payload": {"n": 1}}, {"identifier": "b", "jobKey": "k"}, {"identifier": "a"}]
            ]
        },
    )

    first, *batch = worker.query("select * from {schema}._private_jobs order by id")
    assert (first["payload"], first["revision"], first["key"]) == ({"to": "b@example.com"}, 2, "welcome")
    assert first["run_at"].year == 2099
    assert [job["id"] for job in added] == [str(first["id"])] * 3 + [str(row["id"]) for row in sorted_as(added, batch)]
    assert [job["task_identifier"] for job in added[3:]] == ["a", "b", "a"]
    assert added[3]["payload"] == {"n": 1}


def sorted_as(added: list[dict[str, object]], rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rows in the order in which the Node.js API returned them."""
    by_id = {str(row["id"]): row for row in rows}
    return [by_id[str(job["id"])] for job in added if str(job["id"]) in by_id]


def test_jobs_that_we_add__are_run_by_node(site: Site, node_worker: NodeWorker, worker: WorkerSql) -> None:
    site.migrate()
    worker.add_job("plain", payload={"n": 1})
    worker.add_job("plain", payload={"fail": True}, queue_name="queue", max_attempts=2)
    worker.add_job("plain", payload=[1], job_key="key")
    worker.add_job("plain", payload=[2], job_key="key")
    worker.add_jobs({"identifier": "other", "payload": "null"}, {"identifier": "plain", "queue_name": "queue"})
    worker.add_job("unknown")
    worker.add_job("plain", run_at="2099-01-01")
    # The second attempt of the failing job, without waiting for its back-off.
    worker.query("update {schema}._private_jobs set max_attempts = 1 where (payload ->> 'fail') is not null")

    ran = node_worker.work(4, "plain", "other")

    assert sorted((job["task"], str(job["payload"])) for job in ran) == [
        ("other", "None"),
        ("plain", "[1, 2]"),
        ("plain", "{'n': 1}"),
        ("plain", "{}"),
    ]
    failed, unknown, future = worker.query("select * from {schema}.jobs order by id")
    assert (failed["last_error"], failed["attempts"], failed["locked_by"]) == ("Failed on purpose.", 1, None)
    assert (unknown["task_identifier"], future["attempts"]) == ("unknown", 0)


def test_node__finds_nothing_to_migrate(site: Site, node_worker: NodeWorker) -> None:
    site.migrate()
    before = site.dump()

    node_worker.migrate()

    assert site.dump() == before


def test_node__is_woken_by_our_notification(site: Site, node_worker: NodeWorker, worker: WorkerSql) -> None:
    site.migrate()
    process = node_worker.node.start("work.mjs", site.url, site.schema, "2", "plain")
    assert process.stdout is not None
    assert process.stdout.readline() == '{"ready":true}\n'

    worker.add_job("plain", payload={"n": 1})
    worker.add_job("plain", payload={"n": 2}, job_key="key")

    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    assert len(output.splitlines()) == 2
    assert worker.jobs() == []


def test_both_workers__run_their_own_tasks_in_one_schema(
    site: Site, node_worker: NodeWorker, worker: WorkerSql, wait_until: Callable[..., None]
) -> None:
    node_worker.migrate()
    for identifier in ("send_receipt", "plain"):
        batch = [{"identifier": identifier, "payload": {"n": n}, "queueName": f"queue-{n % 3}"} for n in range(20)]
        node_worker.add({"batch": [batch]})
    site.migrate()
    node_process = node_worker.node.start("work.mjs", site.url, site.schema, "25", "plain")
    environment = os.environ | {"DATABASE_URL": site.url, "GRAPHILE_WORKER_SCHEMA": site.schema}
    ours = subprocess.Popen(
        [sys.executable, "testproject/manage.py", "runworker", "--no-cron", "--skip-checks"],
        env=environment | {"DJANGO_SETTINGS_MODULE": "testproject.settings"},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        worker.add_jobs(*({"identifier": name} for name in ("plain", "send_receipt") * 5))
        output, errors = node_process.communicate(timeout=150)
        assert node_process.returncode == 0, errors
        assert output.count('"task":"plain"') == 25
        wait_until(lambda: worker.jobs() == [])
    finally:
        ours.terminate()
        _, stderr = ours.communicate(timeout=60)
    assert ours.returncode in {0, 143, -15}, stderr


@pytest.mark.chaos
def test_queue_that_node_works_on__is_adopted_and_migrated_back_without_a_deadlock(
    site: Site, node_worker: NodeWorker, worker: WorkerSql, wait_until: Callable[..., None]
) -> None:
    """Building indexes of both tables in one transaction would deadlock with Node's statements, which lock both."""
    node_worker.migrate()
    count = 1500
    worker.query(
        "select {schema}.add_jobs(array(select row('plain', '{}', case when n %% 2 = 0 then 'q' || n %% 40 end,"
        " null, null, null, null, null)::{schema}.job_spec from generate_series(1, %s) as n))",
        count,
    )
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    before = worker.value(deadlocks)
    process = node_worker.node.start("work.mjs", site.url, site.schema, str(count), "plain")
    try:
        wait_until(lambda: worker.value("select count(*) from {schema}._private_jobs") < count)
        for target in ((), ("zero",), ()):
            site.migrate(*target)
    finally:
        _, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    assert worker.value("select count(*) from {schema}._private_jobs") == 0
    assert worker.value(deadlocks) == before
