"""Every order of the steps of two or three sessions, at every isolation level.

Payloads are arrays, which are merged and never overwritten. So each request
that was committed must be somewhere: in a job that waits, in a job that a
worker has claimed, or in a job that was removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from tests.support.interleaving import Connection, Session, Stage, Step, orders, play
from tests.support.worker_sql import Row, WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

PLAIN, STRICT = IsolationLevel.READ_COMMITTED, (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)
SERIALIZATION_FAILURE = "40001"


@dataclass
class World:
    """The stage, and the steps that sessions take on it."""

    stage: Stage
    schema: str

    def sql(self, connection: Connection) -> WorkerSql:
        return WorkerSql(connection, self.schema)

    def look(self, connection: Connection) -> None:
        """Take the snapshot that the strict levels keep."""
        self.sql(connection).query("select count(*) from {schema}._private_jobs")

    def commit(self, connection: Connection) -> None:
        connection.commit()

    def add(self, request: int, *, mode: str = "replace") -> Step:
        def step(connection: Connection) -> Row:
            job = self.sql(connection).add_job(payload=[request], job_key="key", job_key_mode=mode)
            assert job["id"] is not None, "Expected add_job to return a row, got nulls."
            # unsafe_dedupe may find a job, and then it promises nothing.
            is_kept = mode == "replace" or request in job["payload"]
            return {"added": [request] if is_kept else [], "row": job}

        return step

    def add_batch(self, request: int) -> Step:
        def step(connection: Connection) -> Row:
            specs: list[Row] = [{"payload": [request], "job_key": "key"}, {"payload": [-request]}]
            rows = self.sql(connection).add_jobs(*specs)
            assert len(rows) == 2, "Expected a row for each spec."
            assert request in rows[0]["payload"]
            return {"added": [request], "row": rows[0]}

        return step

    def claim(self, connection: Connection) -> Row:
        """Lock a waiting job, as both workers do: skip jobs that another session has locked."""
        rows = self.sql(connection).query(
            "update {schema}._private_jobs set locked_at = now(), locked_by = 'worker', attempts = attempts + 1"
            " where id = (select id from {schema}._private_jobs where is_available and key is not null"
            " for update skip locked limit 1) returning *"
        )
        return {"claimed": rows[0]["payload"] if rows else []}

    def complete(self, connection: Connection) -> Row:
        self.sql(connection).query("delete from {schema}._private_jobs where locked_by = 'worker'")
        return {}

    def complete_at_once(self, connection: Connection) -> Row:
        self.complete(connection)
        connection.commit()
        return {}

    def fail(self, connection: Connection) -> Row:
        self.sql(connection).query(
            "update {schema}._private_jobs set last_error = 'It broke.', locked_at = null, locked_by = null"
            " where locked_by = 'worker'"
        )
        return {}

    def remove(self, connection: Connection) -> Row:
        (job,) = self.sql(connection).call("remove_job", job_key="key")
        return {"removed": job["payload"] or []}

    def complete_by_id(self, connection: Connection) -> Row:
        rows = self.sql(connection).query("select id from {schema}._private_jobs order by id")
        jobs = self.sql(connection).call("complete_jobs", job_ids=[row["id"] for row in rows])
        return {"removed": [request for job in jobs for request in job["payload"]]}

    def unlock(self, connection: Connection) -> Row:
        self.sql(connection).call("force_unlock_workers", worker_ids=["worker"])
        return {}


@pytest.fixture
def world(database_url: str, worker_schema: str) -> Iterator[World]:
    with Stage(lambda: psycopg.connect(database_url)) as stage:
        stage.observer.autocommit = True
        yield World(stage, worker_schema)


def play_all(world: World, level: IsolationLevel, prepare: Sequence[Step], scripts: Sequence[Sequence[Step]]) -> int:
    """Play every order, and check after each that nothing was lost; the number of orders that were possible."""
    observer = world.stage.observer
    sessions = [world.stage.session() for _ in scripts]
    for session in sessions:
        session.connection.isolation_level = level
    played = 0
    for order in orders(scripts):
        world.sql(observer).query("delete from {schema}._private_jobs")
        prepared = [step(observer) for step in prepare]
        outcome = play(world.stage, scripts, order)
        if outcome is not None:
            check(world, [*prepared, *committed(outcome.results)], order)
            played += 1
    return played


def committed(results: list[list[Future[Any]]]) -> Iterator[Row]:
    """What the sessions that could commit have done; the only failure allowed is a serialization failure."""
    for futures in results:
        errors = [error for future in futures if (error := future.exception())]
        for error in errors:
            assert isinstance(error, psycopg.Error), error
            assert error.sqlstate == SERIALIZATION_FAILURE, error
        if not errors:
            yield from (future.result() for future in futures if future.result())


def check(world: World, done: list[Row], order: Sequence[int]) -> None:
    jobs = world.sql(world.stage.observer).jobs()
    assert len([job for job in jobs if job["key"] == "key"]) <= 1
    added = {request for row in done for request in row.get("added", [])}
    taken = [request for row in done for request in [*row.get("claimed", []), *row.get("removed", [])]]
    waiting = [request for job in jobs if job["is_available"] for request in job["payload"]]
    lost = added - set(taken) - set(waiting)
    assert not lost, f"Lost {lost} in the order {order}: {json.dumps(jobs, default=str)}"


SNAPSHOT_SCRIPTS: dict[str, Callable[[World], tuple[list[Step], list[list[Step]]]]] = {
    "add, claim": lambda w: ([w.add(1)], [[w.look, w.add(2), w.commit], [w.look, w.claim, w.commit]]),
    "add, claim of nothing": lambda w: ([], [[w.look, w.add(2), w.commit], [w.look, w.claim, w.commit]]),
    "add, add": lambda w: ([], [[w.look, w.add(1), w.commit], [w.look, w.add(2), w.commit]]),
    "add, add to a waiting job": lambda w: ([w.add(1)], [[w.look, w.add(2), w.commit], [w.look, w.add(3), w.commit]]),
    "add, add to a running job": lambda w: (
        [w.add(1), w.claim],
        [[w.look, w.add(2), w.commit], [w.look, w.add(3), w.commit]],
    ),
    "batch, claim": lambda w: ([w.add(1)], [[w.look, w.add_batch(2), w.commit], [w.look, w.claim, w.commit]]),
    "batch, add to a running job": lambda w: (
        [w.add(1), w.claim],
        [[w.look, w.add_batch(2), w.commit], [w.look, w.add(3), w.commit]],
    ),
    "add, complete": lambda w: ([w.add(1), w.claim], [[w.look, w.add(2), w.commit], [w.look, w.complete, w.commit]]),
    "add, fail": lambda w: ([w.add(1), w.claim], [[w.look, w.add(2), w.commit], [w.look, w.fail, w.commit]]),
    "batch, fail": lambda w: ([w.add(1), w.claim], [[w.look, w.add_batch(2), w.commit], [w.look, w.fail, w.commit]]),
    "add, unlock": lambda w: ([w.add(1), w.claim], [[w.look, w.add(2), w.commit], [w.look, w.unlock, w.commit]]),
    "add, remove": lambda w: ([w.add(1)], [[w.look, w.add(2), w.commit], [w.look, w.remove, w.commit]]),
    "add, complete by id": lambda w: ([w.add(1)], [[w.look, w.add(2), w.commit], [w.look, w.complete_by_id, w.commit]]),
    "dedupe, add": lambda w: (
        [],
        [[w.look, w.add(2, mode="unsafe_dedupe"), w.commit], [w.look, w.add(1), w.commit]],
    ),
    "remove, claim": lambda w: ([w.add(1)], [[w.look, w.remove, w.commit], [w.look, w.claim, w.commit]]),
}

# Two steps a session: no session keeps a snapshot, which is the usual case.
PLAIN_SCRIPTS: dict[str, Callable[[World], tuple[list[Step], list[list[Step]]]]] = {
    "add, claim, add": lambda w: (
        [w.add(1)],
        [[w.add(2), w.commit], [w.claim, w.commit], [w.add(3), w.commit]],
    ),
    "add, claim and complete, batch": lambda w: (
        [w.add(1)],
        [[w.add(2), w.commit], [w.claim, w.commit, w.complete_at_once], [w.add_batch(3), w.commit]],
    ),
    "add, remove, claim": lambda w: (
        [w.add(1)],
        [[w.add(2), w.commit], [w.remove, w.commit], [w.claim, w.commit]],
    ),
}


@pytest.mark.parametrize(
    "level",
    [PLAIN, *(pytest.param(level, marks=pytest.mark.chaos) for level in STRICT)],
    ids=lambda level: level.name.lower(),
)
@pytest.mark.parametrize("name", SNAPSHOT_SCRIPTS)
def test_no_request_is_lost__between_two_sessions(world: World, name: str, level: IsolationLevel) -> None:
    prepare, scripts = SNAPSHOT_SCRIPTS[name](world)

    assert play_all(world, level, prepare, scripts) >= 8


@pytest.mark.parametrize(
    "name",
    ["add, claim, add", "add, remove, claim", pytest.param("add, claim and complete, batch", marks=pytest.mark.chaos)],
)
def test_no_request_is_lost__between_three_sessions(world: World, name: str) -> None:
    prepare, scripts = PLAIN_SCRIPTS[name](world)

    assert play_all(world, PLAIN, prepare, scripts) >= 15


def sessions(world: World, count: int) -> list[Session]:
    return [world.stage.session() for _ in range(count)]


def test_an_add_that_waited_for_a_claim_adds_a_job_of_its_own(world: World) -> None:
    """The race that loses the request in the original (graphile/worker#580)."""
    world.add(1)(world.stage.observer)
    worker, adder = sessions(world, 2)
    worker.start(world.claim)
    adding = adder.start(world.add(2))
    assert adder.is_waiting

    worker.start(world.commit)
    adder.settle()

    assert adding.result()["row"]["payload"] == [2]
    adder.start(world.commit)
    running, waiting = world.sql(world.stage.observer).jobs()
    assert (running["key"], running["payload"], running["attempts"]) == (None, [1], 25)
    assert (waiting["key"], waiting["payload"], waiting["attempts"]) == ("key", [2], 0)


def test_remove_looks_again_when_the_row_it_waited_for_gave_its_key_away(world: World) -> None:
    observer = world.stage.observer
    world.add(1)(observer)
    world.claim(observer)
    adder, remover = sessions(world, 2)
    adder.start(world.add(2))
    removing = remover.start(world.remove)
    assert remover.is_waiting

    adder.start(world.commit)
    remover.settle()
    remover.start(world.commit)

    assert removing.result() == {"removed": [2]}
    assert [job["key"] for job in world.sql(observer).jobs()] == [None]


def test_batches_with_the_same_keys_in_opposite_orders_do_not_deadlock(world: World) -> None:
    def batch(*keys: str) -> Step:
        return lambda connection: world.sql(connection).add_jobs(*({"job_key": key} for key in keys))

    for prepared in ((), ("a", "b", "c"), ("b",)):
        observer = world.stage.observer
        world.sql(observer).query("truncate {schema}._private_jobs")
        for key in prepared:
            world.sql(observer).add_job(job_key=key)
        blocker, first, second = sessions(world, 3)
        blocker.start(batch("b"))
        adding = [first.start(batch("c", "b", "a")), second.start(batch("a", "c", "b"))]
        assert first.is_waiting
        assert second.is_waiting

        blocker.start(world.commit)
        world.stage.settle()
        for session in (first, second):
            if not session.is_waiting:
                session.start(world.commit)
        world.stage.settle()

        assert [[row["key"] for row in future.result()] for future in adding] == [["c", "b", "a"], ["a", "c", "b"]]
        for session in (first, second):
            session.start(world.commit)


def test_changes_by_id_and_batches_by_key_take_rows_in_one_order(world: World) -> None:
    observer = world.stage.observer
    # The keys' order is the reverse of the ids' order.
    ids = [world.sql(observer).add_job(job_key=key)["id"] for key in ("c", "b", "a")]
    blocker, completer, adder = sessions(world, 3)
    blocker.start(lambda connection: world.sql(connection).add_job(job_key="b"))
    completing = completer.start(lambda connection: world.sql(connection).call("complete_jobs", job_ids=ids))
    adding = adder.start(lambda connection: world.sql(connection).add_jobs(*({"job_key": key} for key in "cab")))
    assert completer.is_waiting
    assert adder.is_waiting

    blocker.start(world.commit)
    completer.settle()
    completer.start(world.commit)
    adder.settle()
    adder.start(world.commit)

    assert len(completing.result()) == 3
    assert [row["key"] for row in adding.result()] == ["c", "a", "b"]


class TestNewNames:
    def test_an_uncommitted_name_makes_others_wait_no_longer_than_it_must(self, world: World) -> None:
        def add(connection: Connection) -> Row:
            return world.sql(connection).add_job("new-task", queue_name="new-queue")

        first, second = sessions(world, 2)
        before = first.start(add).result()
        adding = second.start(add)
        assert second.is_waiting

        first.start(world.commit)
        second.settle()

        after = adding.result()
        assert (after["task_id"], after["job_queue_id"]) == (before["task_id"], before["job_queue_id"])
        second.start(world.commit)

    def test_two_batches_with_the_same_new_names_in_opposite_orders_do_not_deadlock(self, world: World) -> None:
        def batch(*names: str) -> Step:
            return lambda connection: world.sql(connection).add_jobs(
                *({"identifier": f"deadlock-{name}", "queue_name": f"deadlock-{name}"} for name in names)
            )

        blocker, first, second = sessions(world, 3)
        blocker.start(batch("b"))
        adding = [first.start(batch("c", "b", "a")), second.start(batch("a", "b", "c"))]
        blocker.start(world.commit)
        world.stage.settle()
        for session in (first, second, first, second):
            if not session.is_waiting:
                session.start(world.commit)
            world.stage.settle()

        assert [len(future.result()) for future in adding] == [3, 3]

    @pytest.mark.parametrize("level", [PLAIN, *STRICT], ids=lambda level: level.name.lower())
    @pytest.mark.parametrize("adds_a_batch", [False, True])
    def test_a_name_that_was_cleaned_up_after_the_snapshot_is_not_used_blindly(
        self, world: World, level: IsolationLevel, adds_a_batch: bool
    ) -> None:
        def add(connection: Connection) -> Row:
            spec = {"queue_name": "unused-queue"}
            if adds_a_batch:
                return world.sql(connection).add_jobs({"identifier": "unused-task", **spec})[0]
            return world.sql(connection).add_job("unused-task", **spec)

        observer = world.sql(world.stage.observer)
        add(observer.connection)
        observer.query("truncate {schema}._private_jobs")
        (adder,) = sessions(world, 1)
        adder.connection.isolation_level = level
        adder.start(world.look)
        observer.query("delete from {schema}._private_tasks where identifier = 'unused-task'")
        observer.query("delete from {schema}._private_job_queues where queue_name = 'unused-queue'")

        job = adder.start(add).result()
        adder.start(world.commit).result()

        (row,) = observer.query("select id, task_identifier, queue_name from {schema}.jobs")
        assert row == {"id": job["id"], "task_identifier": "unused-task", "queue_name": "unused-queue"}
