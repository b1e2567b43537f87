"""Paused queues and the real graphile-worker, which knows nothing of pauses."""

from __future__ import annotations

from collections.abc import Callable

from tests.migration.conftest import Site
from tests.node.conftest import NodeWorker
from tests.support.worker_sql import WorkerSql

PAUSE = "select * from {schema}._private_pause('queue', 'mail', null, '', '', false)"
RESUME = "select * from {schema}._private_resume('queue', 'mail')"
SETTLE = "select * from {schema}._private_settle_pauses()"
GATE = 4711


def test_paused_queue__is_not_touched_by_node(site: Site, node_worker: NodeWorker, worker: WorkerSql) -> None:
    site.migrate()
    worker.add_job("plain", payload={"n": 1}, queue_name="mail")
    worker.query(PAUSE)
    worker.add_job("plain", payload={"n": 2}, queue_name="other")
    worker.add_job("plain", payload={"n": 3})

    ran = node_worker.work(2, "plain")

    assert sorted(job["payload"]["n"] for job in ran) == [2, 3]
    (waiting,) = worker.jobs()
    assert (waiting["payload"], waiting["attempts"], waiting["locked_by"]) == ({"n": 1}, 0, None)
    worker.query(RESUME)
    assert [job["payload"] for job in node_worker.work(1, "plain")] == [{"n": 1}]


def test_queue_that_is_paused_while_node_runs_its_job__stays_paused_until_it_is_resumed(
    site: Site, node_worker: NodeWorker, worker: WorkerSql, wait_until: Callable[..., None]
) -> None:
    site.migrate()
    worker.query("select pg_advisory_lock(%s)", GATE)
    first = worker.add_job("plain", payload={"n": 1, "gate": GATE}, queue_name="mail")["id"]
    second = worker.add_job("plain", payload={"n": 2}, queue_name="mail")["id"]
    process = node_worker.node.start("work.mjs", site.url, site.schema, "2", "plain")
    wait_until(lambda: worker.job(first)["locked_by"] is not None)
    worker.query(PAUSE)
    worker.query("select pg_advisory_unlock(%s)", GATE)
    wait_until(lambda: len(worker.jobs()) == 1)
    assert (worker.job(second)["attempts"], worker.job(second)["locked_by"]) == (0, None)

    worker.query(RESUME)

    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    assert len(output.splitlines()) == 3
    assert worker.jobs() == []


def test_queue_that_is_resumed_while_node_runs_its_job__continues_after_it(
    site: Site, node_worker: NodeWorker, worker: WorkerSql, wait_until: Callable[..., None]
) -> None:
    site.migrate()
    worker.query("select pg_advisory_lock(%s)", GATE)
    first = worker.add_job("plain", payload={"n": 1, "gate": GATE}, queue_name="mail")["id"]
    worker.add_job("plain", payload={"n": 2}, queue_name="mail")
    process = node_worker.node.start("work.mjs", site.url, site.schema, "2", "plain")
    wait_until(lambda: worker.job(first)["locked_by"] is not None)
    worker.query(PAUSE)
    worker.query(RESUME)
    assert worker.value("select is_available from {schema}._private_job_queues") is False
    worker.query("select pg_advisory_unlock(%s)", GATE)

    output, errors = process.communicate(timeout=150)

    assert process.returncode == 0, errors
    assert [line for line in output.splitlines() if '"n":1' in line or '"n":2' in line] == output.splitlines()[1:]

    def is_settled() -> bool:
        # Again and again, as workers do: the server may still run the last statement of the process that has ended.
        worker.query(SETTLE)
        return worker.query("select * from {schema}._private_pauses") == []

    wait_until(is_settled)
    assert worker.value("select is_available from {schema}._private_job_queues")
