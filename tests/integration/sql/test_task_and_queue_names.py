"""Names of tasks and queues: found by an index whatever a session planned before; no role without rights locks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.support.worker_sql import WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = 1_000
READ = """
select coalesce(sum(seq_tup_read), 0)::bigint from pg_stat_xact_user_tables
where schemaname = %s and relname in ('_private_tasks', '_private_job_queues')
"""
# A plan that reads all names once, and then compares each with each in memory, has one scan.
PROBES = "select idx_scan from pg_stat_xact_user_tables where schemaname = %s and relname = %s"
TABLES = {"task": "_private_tasks", "queue": "_private_job_queues"}
ADD = """
select count(*) from {schema}.add_jobs(array(
    select row(
        %s::text || number %% %s, null, %s::text || number %% %s, null, null, null, null, null)::{schema}.job_spec
    from generate_series(1, %s) as number))
"""


@pytest.fixture
def planned(committing_worker: Callable[..., WorkerSql]) -> WorkerSql:
    """A session whose plans were made when there were few names, and are kept."""
    worker = committing_worker()
    worker.add_job("task", queue_name="queue")
    for table in ("_private_tasks", "_private_job_queues"):
        worker.query(f"analyze {{schema}}.{table}")
    for _ in range(10):
        worker.query(ADD, "few", 3, "few", 3, 5)
        worker.add_job("task", queue_name="queue")
    return worker


@pytest.mark.parametrize("kind", ["task", "queue"])
def test_new_names__are_not_compared_with_each_row(planned: WorkerSql, kind: str) -> None:
    tasks, queues = (NAMES, 1) if kind == "task" else (1, NAMES)
    with planned.connection.transaction():
        planned.query(ADD, "task", tasks, "queue", queues, NAMES)
        assert planned.value(READ, planned.schema) == 0
        assert planned.value(PROBES, planned.schema, TABLES[kind]) >= NAMES


@pytest.mark.parametrize("is_known", [False, True])
def test_keys__are_not_compared_with_each_row(committing_worker: Callable[..., WorkerSql], is_known: bool) -> None:
    worker = committing_worker()
    worker.add_jobs({"job_key": "few"}, {})
    worker.query("analyze {schema}._private_jobs")
    keyed = ADD.replace("null, null, null, null, null)", "null, null, %s::text || number, null, null)")
    for _ in range(10):
        worker.query(keyed, "task", 1, "queue", 1, "few", 3)
    if is_known:
        worker.query(keyed, "task", 1, "queue", 1, "key", NAMES)
    with worker.connection.transaction():
        worker.query(keyed, "task", 1, "queue", 1, "key", NAMES)
        assert worker.value(PROBES, worker.schema, "_private_jobs") >= NAMES


def test_next_name__after_a_great_many__reads_none_of_them(planned: WorkerSql) -> None:
    for table, column in (("_private_tasks", "identifier"), ("_private_job_queues", "queue_name")):
        planned.query(
            f"insert into {{schema}}.{table} ({column}) select 'n' || number from generate_series(1, 10000) as number"
        )
    with planned.connection.transaction():
        for number in range(3):
            planned.add_job(f"new {number}", queue_name=f"new {number}")
            planned.add_job("n7", queue_name="n7")
        assert planned.value(READ, planned.schema) == 0


@pytest.fixture
def stranger(
    committing_worker: Callable[..., WorkerSql], raw_connection: Callable[..., psycopg.Connection[Any]]
) -> Iterator[WorkerSql]:
    """A role with no right but to connect."""
    owner = committing_worker()
    name = f"gw_stranger_{owner.connection.info.backend_pid}"
    owner.query(f"create role {name} login")
    connection = raw_connection()
    connection.execute(f"set role {name}".encode())
    yield WorkerSql(connection, owner.schema)
    connection.close()
    owner.query(f"drop role {name}")


def test_role_without_rights__cannot_keep_other_roles_from_adding(
    stranger: WorkerSql, committing_worker: Callable[..., WorkerSql]
) -> None:
    adder = committing_worker()
    adder.query("select set_config('lock_timeout', '5s', false)")
    with stranger.connection.transaction():
        for names in ("graphile_worker.names", "graphile_worker.installation"):
            stranger.query("select pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", names, stranger.schema)
        for table in ("_private_jobs", "_private_tasks", "_private_job_queues"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.connection.transaction():
                stranger.query(f"lock table {{schema}}.{table} in access share mode")

        assert adder.add_job("task", queue_name="new queue", job_key="key")["id"]
        assert len(adder.add_jobs({"queue_name": "another"}, {"identifier": "new task"})) == 2


def test_flag_that_is_null__is_refused_in_a_spec_that_is_overwritten_too(
    committing_worker: Callable[..., WorkerSql],
) -> None:
    worker = committing_worker()
    with pytest.raises(psycopg.DataError) as refused:
        worker.add_jobs({"job_key": "k", "flags": ["f", None]}, {"job_key": "k"})
    assert refused.value.sqlstate == "22023"
    assert worker.jobs() == []
