from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.worker_sql import WorkerSql


def refused(worker: WorkerSql, *specs: dict[str, Any]) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, worker.connection.transaction():
        worker.add_jobs(*specs)
    return caught.value


@pytest.mark.parametrize("array", ["null", "'{}'", "array[]::{schema}.job_spec[]"])
def test_does_nothing_without_specs(worker: WorkerSql, array: str) -> None:
    assert worker.query(f"select * from {{schema}}.add_jobs({array})") == []
    assert worker.jobs() == []


@pytest.mark.parametrize("keyed", ["none", "some", "all"])
def test_returns_rows_in_the_order_of_the_specs(worker: WorkerSql, keyed: str) -> None:
    every = {"none": 1000, "some": 3, "all": 1}[keyed]
    # Keys descend, so that the order in which they are taken is not the order of the specs.
    specs = [
        {
            "identifier": f"task-{n % 4}",
            "queue_name": f"queue-{n % 5}" if n % 2 else None,
            "payload": {"n": n},
            "job_key": f"key-{99 - n}" if n % every == every - 1 else None,
        }
        for n in range(40)
    ]

    rows = worker.add_jobs(*specs)

    assert [row["payload"]["n"] for row in rows] == list(range(40))
    # Jobs of one priority and time run in the order of their ids.
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    names = dict(worker.connection.execute(f'select id, task_identifier from "{worker.schema}".jobs').fetchall())
    assert [names[row["id"]] for row in rows] == [spec["identifier"] for spec in specs]


class TestAKeyGivenTwice:
    @pytest.mark.parametrize("waiting", [None, "[0]", '{"n": 0}'])
    @given(
        payloads=st.lists(st.sampled_from(["[]", "[1]", " [2, 3] ", '{"n": 4}', "null", None]), min_size=2, max_size=5)
    )
    def test_leaves_the_payload_that_adding_one_after_the_other_would_have_left(
        self,
        worker_connection: psycopg.Connection[Any],
        worker_schema: str,
        payloads: list[str | None],
        waiting: str | None,
    ) -> None:
        worker = WorkerSql(worker_connection, worker_schema)
        with worker_connection.transaction(force_rollback=True):
            for key in ("batched", "single") if waiting else ():
                worker.add_job(job_key=key, payload=waiting)

            batched = worker.add_jobs(*({"job_key": "batched", "payload": payload} for payload in payloads))
            singles = [worker.add_job(job_key="single", payload=payload) for payload in payloads]

            assert batched[-1]["payload"] == singles[-1]["payload"]


class TestLimits:
    @pytest.mark.parametrize(
        ("spec", "sqlstate"),
        [
            ({"identifier": "t" * 129}, "GWBID"),
            ({"identifier": None}, "GWBID"),
            ({"queue_name": "q" * 129}, "GWBQN"),
            ({"job_key": "k" * 513}, "GWBJK"),
            ({"job_key": ""}, "GWBJK"),
            ({"max_attempts": 0}, "GWBMA"),
            ({"max_attempts": 32768}, "22003"),
            ({"priority": 32768}, "22003"),
            ({"run_at": "infinity"}, "22008"),
            ({"run_at": "-infinity"}, "22008"),
            ({"flags": [None]}, "22023"),
        ],
    )
    def test_refuse_the_whole_batch(self, worker: WorkerSql, spec: dict[str, Any], sqlstate: str) -> None:
        assert refused(worker, {}, spec, {}).sqlstate == sqlstate
        assert worker.jobs() == []


def test_takes_specs_that_node_sends_as_json(worker: WorkerSql) -> None:
    rows = worker.query(
        "select * from {schema}.add_jobs(array("
        "select json_populate_recordset(null::{schema}.job_spec, %s::json)), false)",
        '[{"identifier": "a", "payload": {"n": 1}, "flags": ["x"]},'
        ' {"identifier": "b", "job_key": "k", "priority": 3}]',
    )

    assert [(row["payload"], row["flags"], row["key"], row["priority"]) for row in rows] == [
        ({"n": 1}, {"x": True}, None, 0),
        ({}, None, "k", 3),
    ]


def test_names_with_odd_characters_keep_their_jobs(worker: WorkerSql) -> None:
    names = ["", '"', "\\", "a.b", "a:b", "{}", "é", "\U0001f600", "%s", "'; drop table x --", "NULL"]

    rows = worker.add_jobs(*({"identifier": name, "queue_name": name, "job_key": f"k{name}"} for name in names))

    by_id = {row["id"]: row for row in worker.query("select * from {schema}.jobs")}
    assert [(by_id[row["id"]]["task_identifier"], by_id[row["id"]]["queue_name"]) for row in rows] == [
        (name, name) for name in names
    ]
