"""The SQL functions against a model of them in Python: any history leaves the same table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.worker_sql import WorkerSql

KEYS = st.sampled_from(["a", "b", "c"])
PAYLOADS = st.sampled_from(["[]", "[1]", '[{"n": 2}, "]"]', '{"n": 3}', "null", '"text"'])
# Minutes from now, as the transaction in which all of it happens sees it.
TIMES = st.sampled_from([-60, 0, 60])
SPECS = st.fixed_dictionaries(
    {
        "identifier": st.sampled_from(["one", "two"]),
        "payload": st.none() | PAYLOADS,
        "queue_name": st.sampled_from([None, "queue", "other"]),
        "minutes": st.none() | TIMES,
        "max_attempts": st.sampled_from([None, 1, 2]),
        "job_key": st.none() | KEYS,
        "priority": st.sampled_from([None, -1, 1]),
        "flags": st.sampled_from([None, ("x",), ("x", "y")]),
    }
)


@dataclass(frozen=True)
class Job:
    """A job as the model knows it."""

    id: int
    identifier: str
    payload: Any
    queue_name: str | None
    minutes: int
    max_attempts: int
    key: str | None
    priority: int
    flags: frozenset[str]
    attempts: int = 0
    last_error: str | None = None
    revision: int = 0
    # Hours since it was locked.
    locked: int | None = None

    @property
    def is_available(self) -> bool:
        return self.locked is None and self.attempts < self.max_attempts

    @property
    def is_free(self) -> bool:
        return self.locked is None or self.locked > 4


@dataclass
class Model:
    """What the functions promise, said once more."""

    jobs: dict[int, Job] = field(default_factory=dict)

    def keyed(self, key: str | None) -> Job | None:
        return next((job for job in self.jobs.values() if key is not None and job.key == key), None)

    def put(self, job: Job) -> Job:
        self.jobs[job.id] = job
        return job

    def add(self, spec: dict[str, Any], mode: str | None, new_id: int) -> Job:
        fresh = Job(
            id=new_id,
            identifier=spec["identifier"],
            payload={} if spec["payload"] is None else json.loads(spec["payload"]),
            queue_name=spec["queue_name"],
            minutes=spec["minutes"] or 0,
            max_attempts=25 if spec["max_attempts"] is None else spec["max_attempts"],
            key=spec["job_key"],
            priority=spec["priority"] or 0,
            flags=frozenset(spec["flags"] or ()),
        )
        found = self.keyed(fresh.key)
        if found is None:
            return self.put(fresh)
        if mode == "unsafe_dedupe":
            return self.put(replace(found, revision=found.revision + 1))
        if not found.is_available:
            self.put(replace(found, key=None, attempts=found.max_attempts))
            return self.put(fresh)
        both_arrays = isinstance(found.payload, list) and isinstance(fresh.payload, list)
        keeps_time = mode == "preserve_run_at" and found.attempts == 0
        return self.put(
            replace(
                fresh,
                id=found.id,
                payload=found.payload + fresh.payload if both_arrays else fresh.payload,
                minutes=found.minutes if keeps_time else fresh.minutes,
                revision=found.revision + 1,
            )
        )

    def remove(self, key: str) -> None:
        found = self.keyed(key)
        if found and found.is_free:
            del self.jobs[found.id]
        elif found:
            self.put(replace(found, key=None, attempts=found.max_attempts))

    def free(self, ids: list[int]) -> Iterator[Job]:
        yield from [self.jobs[job_id] for job_id in set(ids) if self.jobs[job_id].is_free]


class Histories(RuleBasedStateMachine):
    connection: ClassVar[psycopg.Connection[Any]]
    schema: ClassVar[str]

    @initialize()
    def begin(self) -> None:
        self.model = Model()
        self.worker = WorkerSql(self.connection, self.schema)
        self.transaction = self.connection.transaction(force_rollback=True)
        self.transaction.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "transaction"):
            self.transaction.__exit__(None, None, None)

    @rule(spec=SPECS, mode=st.sampled_from([None, "replace", "preserve_run_at", "unsafe_dedupe"]))
    def add_job(self, spec: dict[str, Any], mode: str | None) -> None:
        row = self.worker.add_job(spec["identifier"], **self.options(spec), job_key_mode=mode)
        assert self.model.add(spec, mode, row["id"]).id == row["id"]

    @rule(specs=st.lists(SPECS, max_size=4), preserve=st.booleans())
    def add_jobs(self, specs: list[dict[str, Any]], preserve: bool) -> None:
        mode = "preserve_run_at" if preserve else "replace"
        given = [{"identifier": spec["identifier"], **self.options(spec)} for spec in specs]
        rows = self.worker.add_jobs(*given, preserve_run_at=preserve) if given else []
        assert len(rows) == len(specs)
        # A key that is given twice counts as two calls, one after the other.
        added = [self.model.add(spec, mode, row["id"]) for spec, row in zip(specs, rows, strict=True)]
        assert [job.id for job in added] == [row["id"] for row in rows]

    def options(self, spec: dict[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in spec.items() if name not in {"identifier", "minutes"}}
        minutes = spec["minutes"]
        run_at = None if minutes is None else self.worker.value("select now() + make_interval(mins => %s)", minutes)
        return options | {"run_at": run_at, "flags": None if spec["flags"] is None else list(spec["flags"])}

    @rule(key=KEYS)
    def remove_job(self, key: str) -> None:
        (row,) = self.worker.call("remove_job", job_key=key)
        found = self.model.keyed(key)
        assert row["id"] == (found and found.id)
        self.model.remove(key)

    @precondition(lambda self: any(job.is_available for job in self.model.jobs.values()))
    @rule(data=st.data(), hours=st.sampled_from([0, 5]))
    def claim(self, data: st.DataObject, hours: int) -> None:
        available = sorted(job.id for job in self.model.jobs.values() if job.is_available)
        job = self.model.jobs[data.draw(st.sampled_from(available))]
        self.worker.lock(job.id, ago=f"{hours} hours")
        self.model.put(replace(job, locked=hours, attempts=job.attempts + 1))

    @rule()
    def fail(self) -> None:
        self.worker.query(
            "update {schema}._private_jobs set locked_at = null, locked_by = null, last_error = 'No.'"
            " where locked_at is not null"
        )
        for job in [job for job in self.model.jobs.values() if job.locked is not None]:
            self.model.put(replace(job, locked=None, last_error="No."))

    @rule()
    def force_unlock_workers(self) -> None:
        self.worker.call("force_unlock_workers", worker_ids=["worker"])
        for job in list(self.model.jobs.values()):
            self.model.put(replace(job, locked=None))

    @rule(data=st.data())
    def complete_jobs(self, data: st.DataObject) -> None:
        ids = self.some_ids(data)
        rows = self.worker.call("complete_jobs", job_ids=ids)
        free = list(self.model.free(ids))
        assert {row["id"] for row in rows} == {job.id for job in free}
        for job in free:
            del self.model.jobs[job.id]

    @rule(data=st.data(), message=st.sampled_from([None, "Enough."]))
    def permanently_fail_jobs(self, data: st.DataObject, message: str | None) -> None:
        ids = self.some_ids(data)
        rows = self.worker.call("permanently_fail_jobs", job_ids=ids, error_message=message)
        free = list(self.model.free(ids))
        assert {row["id"] for row in rows} == {job.id for job in free}
        for job in free:
            error = message or "Manually marked as failed"
            self.model.put(replace(job, attempts=job.max_attempts, last_error=error))

    @rule(data=st.data(), priority=st.sampled_from([None, 7]), attempts=st.sampled_from([None, 0, 1]))
    def reschedule_jobs(self, data: st.DataObject, priority: int | None, attempts: int | None) -> None:
        ids = self.some_ids(data)
        self.worker.call("reschedule_jobs", job_ids=ids, priority=priority, attempts=attempts)
        for job in self.model.free(ids):
            priority_now = job.priority if priority is None else priority
            self.model.put(replace(job, priority=priority_now, attempts=job.attempts if attempts is None else attempts))

    def some_ids(self, data: st.DataObject) -> list[int]:
        known = sorted(self.model.jobs)
        return data.draw(st.lists(st.sampled_from(known), max_size=3)) if known else []

    @invariant()
    def table_is_as_the_model_says(self) -> None:
        if hasattr(self, "worker"):
            assert {job.id: job for job in self.rows()} == self.model.jobs

    def rows(self) -> Iterator[Job]:
        for row in self.worker.query(
            "select job.*, task.identifier, queue.queue_name,"
            " extract(epoch from job.run_at - now())::integer / 60 as minutes,"
            " extract(epoch from now() - job.locked_at)::integer / 3600 as locked"
            " from {schema}._private_jobs as job"
            " join {schema}._private_tasks as task on task.id = job.task_id"
            " left join {schema}._private_job_queues as queue on queue.id = job.job_queue_id"
        ):
            names = set(Job.__dataclass_fields__) - {"flags"}
            job = Job(**{name: row[name] for name in names}, flags=frozenset(row["flags"] or ()))
            assert row["is_available"] == job.is_available
            yield job


@pytest.mark.django_db
def test_any_history_leaves_what_the_model_says(worker_connection: psycopg.Connection[Any], worker_schema: str) -> None:
    Histories.connection, Histories.schema = worker_connection, worker_schema
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
