from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.worker_sql import Row, WorkerSql

SOON = datetime(2098, 1, 1, tzinfo=UTC)
FUTURE = datetime(2099, 1, 1, tzinfo=UTC)


def refused(worker: WorkerSql, *specs: dict[str, Any]) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, worker.connection.transaction():
        worker.add_jobs(*specs)
    return caught.value


def test_gives_what_is_left_out_its_default(worker: WorkerSql) -> None:
    (batched,) = worker.add_jobs({})
    single = worker.add_job("task")

    assert batched == single | {"id": batched["id"]}


def test_keeps_every_option(worker: WorkerSql) -> None:
    (job,) = worker.add_jobs(
        {
            "payload": {"n": 1},
            "queue_name": "queue",
            "run_at": FUTURE,
            "max_attempts": 3,
            "job_key": "key",
            "priority": -5,
            "flags": ["a", "b", "a"],
        }
    )

    assert worker.value("select queue_name from {schema}.jobs") == "queue"
    assert (job["payload"], job["run_at"], job["max_attempts"]) == ({"n": 1}, FUTURE, 3)
    assert (job["key"], job["priority"], job["flags"]) == ("key", -5, {"a": True, "b": True})


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


def test_replaces_waiting_jobs_and_keeps_the_order(worker: WorkerSql) -> None:
    waiting = worker.add_job("task", payload={"old": True}, job_key="b")

    rows = worker.add_jobs({"job_key": "c"}, {"job_key": "b", "payload": {"new": True}}, {}, {"job_key": "a"})

    assert [row["key"] for row in rows] == ["c", "b", None, "a"]
    assert rows[1]["id"] == waiting["id"]
    assert (rows[1]["payload"], rows[1]["revision"]) == ({"new": True}, 1)


def test_adds_beside_jobs_that_run_or_have_permanently_failed(worker: WorkerSql) -> None:
    running = worker.lock(worker.add_job(job_key="running", payload=[1])["id"])
    failed = worker.add_job(job_key="failed", payload=[1], max_attempts=1)
    worker.query("update {schema}._private_jobs set attempts = 1 where id = %s", failed["id"])
    waiting = worker.add_job(job_key="waiting", payload=[1])

    rows = worker.add_jobs(*({"job_key": key, "payload": [2]} for key in ("waiting", "running", "new", "failed")))

    assert [row["payload"] for row in rows] == [[1, 2], [2], [2], [2]]
    assert [row["revision"] for row in rows] == [1, 0, 0, 0]
    assert rows[0]["id"] == waiting["id"]
    left = worker.job(running["id"])
    assert (left["key"], left["attempts"], left["locked_by"]) == (None, 25, "worker")
    assert left["updated_at"] > left["locked_at"]
    assert worker.job(failed["id"])["key"] is None


@pytest.mark.parametrize(("preserve", "expected"), [(True, SOON), (False, FUTURE), (None, FUTURE)])
def test_keeps_run_at_only_when_asked_to(worker: WorkerSql, preserve: bool | None, expected: datetime) -> None:
    worker.add_job(job_key="key", run_at=SOON)

    (row,) = worker.add_jobs({"job_key": "key", "run_at": FUTURE}, preserve_run_at=preserve)

    assert row["run_at"] == expected


class TestAKeyGivenTwice:
    def test_means_that_the_last_spec_wins(self, worker: WorkerSql) -> None:
        specs: list[Row] = [
            {"job_key": "key", "payload": {"n": 1}, "priority": 1, "flags": ["a"]},
            {"payload": {"n": 2}},
            {"job_key": "key", "payload": {"n": 3}, "identifier": "other", "run_at": FUTURE},
        ]

        first, second, third = worker.add_jobs(*specs)

        assert first == third
        assert (third["payload"], third["run_at"], third["priority"], third["flags"]) == ({"n": 3}, FUTURE, 0, None)
        assert second["payload"] == {"n": 2}
        assert len(worker.jobs()) == 2

    def test_means_that_arrays_are_merged__with_a_waiting_job_too(self, worker: WorkerSql) -> None:
        worker.add_job(job_key="key", payload=[1])

        rows = worker.add_jobs(*({"job_key": "key", "payload": [n]} for n in (2, 3)), {"job_key": "key", "payload": []})

        assert [row["payload"] for row in rows] == [[1, 2, 3]] * 3

    def test_keeps_the_first_run_at_when_asked_to(self, worker: WorkerSql) -> None:
        specs = [{"job_key": "key", "run_at": SOON}, {"job_key": "key", "run_at": FUTURE}]

        assert worker.add_jobs(*specs, preserve_run_at=True)[0]["run_at"] == SOON

    @pytest.mark.parametrize("waiting", [None, "[0]", '{"n": 0}'])
    @settings(max_examples=25, deadline=None)
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

    def test_name_the_first_fault(self, worker: WorkerSql) -> None:
        error = refused(worker, {}, {"max_attempts": 0}, {"queue_name": "q" * 200})

        assert error.diag.message_primary == "Job maximum attempts must be at least 1 and at most 32767, got 0."

    def test_refuse_a_null_among_the_specs(self, worker: WorkerSql) -> None:
        with pytest.raises(psycopg.Error) as caught, worker.connection.transaction():
            worker.query("select * from {schema}.add_jobs(array[null]::{schema}.job_spec[])")

        assert caught.value.sqlstate == "GWBID"


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
