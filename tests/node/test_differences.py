"""The same calls of the functions of Node.js and of ours leave the same rows, except for intended differences."""

from __future__ import annotations

import random

import psycopg
import pytest

from tests.node.conftest import NodeWorker
from tests.support.worker_sql import Row, WorkerSql

KEYS = (None, "a", "b", "c")
TIMES = (None, "2020-01-01Z", "2099-01-01Z")
PAYLOADS = (None, "[]", "[1]", '[{"n": 2}]', '{"n": 3}', "null", '"text"')


@pytest.fixture
def original(node_worker: NodeWorker, worker: WorkerSql) -> WorkerSql:
    """The schema of the Node.js worker beside ours, in the same database."""
    node_worker.migrate("original")
    return WorkerSql(worker.connection, "original")


@pytest.fixture
def ours(node_worker: NodeWorker, worker: WorkerSql) -> WorkerSql:
    node_worker.site.migrate()
    return worker


def rows(worker: WorkerSql) -> list[Row]:
    """Return all jobs without the columns that a sequence or a clock sets."""
    jobs = worker.query(
        "select task.identifier, queue.queue_name, job.* from {schema}._private_jobs as job"
        " join {schema}._private_tasks as task on task.id = job.task_id"
        " left join {schema}._private_job_queues as queue on queue.id = job.job_queue_id order by job.id"
    )
    ignored = {"id", "task_id", "job_queue_id", "created_at", "updated_at", "locked_at"}
    return [
        {name: value for name, value in job.items() if name not in ignored}
        | {"is_locked": job["locked_at"] is not None}
        for job in jobs
    ]


def spec(chance: random.Random, *keys: str | None) -> Row:
    return {
        "identifier": chance.choice(["one", "two"]),
        "payload": chance.choice(PAYLOADS),
        "queue_name": chance.choice([None, "queue"]),
        "run_at": chance.choice(TIMES),
        "max_attempts": chance.choice([None, 1, 3]),
        "job_key": chance.choice(keys),
        "priority": chance.choice([None, -1, 5]),
        "flags": chance.choice([None, [], ["x"], ["y", "x"]]),
    }


def act(worker: WorkerSql, chance: random.Random) -> list[Row] | None:
    """Call a random function with random arguments, and return its result."""
    ids = [job["id"] for job in worker.jobs()]
    chosen = [job_id for job_id in ids if chance.random() < 0.3]
    action = chance.choice(
        ["add", "add", "add", "batch", "remove", "lock", "fail", "complete", "permafail", "reschedule", "unlock"]
    )
    if action == "add":
        options = spec(chance, *KEYS)
        mode = chance.choice([None, "replace", "preserve_run_at", "unsafe_dedupe"])
        return [worker.add_job(options.pop("identifier"), **options, job_key_mode=mode)]
    if action == "batch":
        worker.add_jobs(spec(chance, *KEYS), preserve_run_at=chance.random() < 0.5)
    elif action == "remove":
        return worker.call("remove_job", job_key=chance.choice(KEYS[1:]))
    elif action == "lock" and ids:
        worker.lock(chance.choice(ids), ago=chance.choice(["0 seconds", "5 hours"]))
    elif action == "fail":
        worker.query("update {schema}._private_jobs set locked_at = null, locked_by = null, last_error = 'No.'")
    elif action == "complete":
        worker.call("complete_jobs", job_ids=chosen)
    elif action == "permafail":
        worker.call("permanently_fail_jobs", job_ids=chosen, error_message=chance.choice([None, "No."]))
    elif action == "reschedule":
        worker.call(
            "reschedule_jobs", job_ids=chosen, run_at=chance.choice(TIMES), attempts=chance.choice([None, 0, 2])
        )
    elif action == "unlock":
        worker.call("force_unlock_workers", worker_ids=["worker"])
    return None


def comparable(returned: list[Row] | None) -> list[Row] | None:
    ignored = {"id", "task_id", "job_queue_id", "created_at", "updated_at", "locked_at", "run_at"}
    return returned and [{name: value for name, value in row.items() if name not in ignored} for row in returned]


def test_random_histories__leave_the_same_rows(original: WorkerSql, ours: WorkerSql) -> None:
    for seed in range(8):
        with ours.connection.transaction(force_rollback=True):
            theirs, mine = random.Random(seed), random.Random(seed)
            for step in range(25):
                # Both act in one transaction, so that now() is the same.
                expected, got = act(original, theirs), act(ours, mine)
                assert comparable(got) == comparable(expected), (seed, step)
                assert rows(ours) == rows(original), (seed, step)
            # Node's function assigns the ids of the jobs of a batch in no particular order.
            for worker, chance in ((original, theirs), (ours, mine)):
                worker.add_jobs(*(spec(chance, key) for key in chance.sample(KEYS, 4)))
            assert sorted(rows(ours), key=str) == sorted(rows(original), key=str), seed


# Calls that both refuse: the SQLSTATE of the Node.js worker, and ours.
REFUSALS = {
    "add_job(repeat('t', 129))": ("23514", "GWBID"),
    "add_job(null)": ("23502", "GWBID"),
    "add_job('t', queue_name := repeat('q', 129))": ("23514", "GWBQN"),
    "add_job('t', job_key := repeat('k', 513))": ("23514", "GWBJK"),
    "add_job('t', job_key := '')": ("23514", "GWBJK"),
    "add_job('t', max_attempts := 0)": ("23514", "GWBMA"),
    "add_job('t', max_attempts := 99999)": ("22003", "GWBMA"),
    "add_job('t', priority := 99999)": ("22003", "22003"),
    "add_job('t', run_at := 'infinity')": (None, "22008"),
    "add_job('t', job_key_mode := 'x')": (None, "GWBKM"),
    "add_job('t', job_key := 'k', job_key_mode := 'x')": ("GWBKM", "GWBKM"),
    "add_job('t', flags := array[null])": ("22023", "22023"),
    "add_jobs(array_fill(('t',null,null,null,null,'k',null,null)::{schema}.job_spec, '{2}'))": ("21000", None),
}


def test_calls_that_both_refuse__have_a_better_error_from_us(original: WorkerSql, ours: WorkerSql) -> None:
    assert {call: (refusal(original, call), refusal(ours, call)) for call in REFUSALS} == REFUSALS


def refusal(worker: WorkerSql, call: str) -> str | None:
    try:
        with worker.connection.transaction(force_rollback=True):
            worker.query(f"select * from {{schema}}.{call}")
    except psycopg.Error as error:
        return error.sqlstate
    return None
