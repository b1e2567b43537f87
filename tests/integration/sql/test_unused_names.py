"""Names that a transaction has looked up are not deleted before it ends, whatever it waits for in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from psycopg import IsolationLevel

from django_graphile_worker import CleanupResult, cleanup
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql import cleanup as sql_cleanup
from tests.support.interleaving import Connection, Session, Stage, Step
from tests.support.worker_sql import Row, WorkerSql

pytestmark = pytest.mark.django_db(transaction=True)

# A job whose task or queue does not exist is in no view.
ORPHANS = """
    select jobs.id from {schema}._private_jobs as jobs
    where not exists (select from {schema}._private_tasks as tasks where tasks.id = jobs.task_id)
        or jobs.job_queue_id is not null
        and not exists (select from {schema}._private_job_queues as queues where queues.id = jobs.job_queue_id)"""


class World:
    """Sessions that add jobs of an unused task, in an unused queue."""

    def __init__(self, stage: Stage, schema: str) -> None:
        self.stage = stage
        self.schema = schema
        self.owner = self.sql(stage.observer)

    def sql(self, connection: Connection) -> WorkerSql:
        return WorkerSql(connection, self.schema)

    def session(self, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> Session:
        session = self.stage.session()
        session.connection.isolation_level = level
        return session

    def look(self, connection: Connection) -> None:
        """Take the snapshot that the strict levels keep."""
        self.sql(connection).query("select identifier from {schema}._private_tasks")

    def add(self, way: str, queue: str = "unused") -> Step:
        spec: Row = {"identifier": "unused", "queue_name": queue}
        if way == "one":
            return lambda connection: self.sql(connection).add_job("unused", queue_name=queue)
        if way == "keyed":
            return lambda connection: self.sql(connection).add_job("unused", queue_name=queue, job_key="k")
        keys = [{"job_key": f"k{number}"} if way == "many keyed" else {} for number in range(2)]
        return lambda connection: self.sql(connection).add_jobs(*(spec | key for key in keys))

    def names(self) -> tuple[list[str], list[str]]:
        return (
            [row["identifier"] for row in self.owner.query("select identifier from {schema}._private_tasks")],
            [row["queue_name"] for row in self.owner.query("select queue_name from {schema}._private_job_queues")],
        )


def commit(connection: Connection) -> None:
    connection.commit()


def roll_back(connection: Connection) -> None:
    connection.rollback()


@pytest.fixture
def world(database_url: str, worker_schema: str) -> Iterator[World]:
    with tasks.isolated(), Stage(lambda: psycopg.connect(database_url)) as stage:
        stage.observer.autocommit = True
        world = World(stage, worker_schema)
        world.owner.query("delete from {schema}._private_tasks")
        world.owner.query("insert into {schema}._private_tasks (identifier) values ('unused')")
        world.owner.query("insert into {schema}._private_job_queues (queue_name) values ('unused')")
        yield world


WAYS = ["one", "keyed", "many", "many keyed"]
PLAIN, STRICT = IsolationLevel.READ_COMMITTED, IsolationLevel.SERIALIZABLE


@pytest.mark.parametrize(
    ("way", "level", "end", "end_of_the_other"),
    [
        *((way, PLAIN, commit, commit) for way in WAYS),
        ("one", PLAIN, roll_back, commit),
        ("many", STRICT, commit, commit),
        ("one", STRICT, commit, roll_back),
        ("many keyed", PLAIN, roll_back, roll_back),
    ],
)
def test_a_name_that_was_looked_up_before_the_job_is_inserted__stays(
    world: World, level: IsolationLevel, way: str, end: Step, end_of_the_other: Step
) -> None:
    """The adder has the id of its task, and waits for the name of its queue, which another adder is making."""
    other, adder = world.session(), world.session(level)
    other.start(
        lambda connection: world.sql(connection).query(
            "insert into {schema}._private_job_queues (queue_name) values ('new')"
        )
    )
    adding = adder.start(world.add(way, queue="new"))
    assert adder.is_waiting

    assert cleanup(unused_queues=False) == CleanupResult(is_complete=False)
    assert world.names()[0] == ["unused"]

    other.start(end_of_the_other)
    adder.settle()
    if level is STRICT and end_of_the_other is commit:
        with pytest.raises(psycopg.errors.SerializationFailure):
            adding.result()
        adder.start(roll_back)
        return
    adding.result()
    adder.start(end).result()
    assert world.owner.query(ORPHANS) == []
    assert world.names()[0] == ["unused"]
    assert cleanup(unused_queues=False).tasks == (1 if end is roll_back else 0)


def test_a_worker_that_starts_while_names_are_deleted__reads_them_afterwards(world: World) -> None:
    """It registers before it reads the ids of its tasks."""
    worker = world.session()
    with transaction.atomic():
        assert cleanup(unused_queues=False).tasks == 1
        registering = worker.start(
            lambda connection: world.sql(connection).query(
                "insert into {schema}._private_workers (id, metadata) values ('w', jsonb_build_object('tasks', '[]'))"
            )
        )
        assert worker.is_waiting
    registering.result()


@pytest.mark.parametrize("level", [PLAIN, STRICT], ids=lambda level: level.name.lower())
@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_is_being_deleted__is_made_again(world: World, level: IsolationLevel, way: str) -> None:
    adder = world.session(level)
    adder.start(world.look).result()
    with transaction.atomic():
        assert cleanup() == CleanupResult(queues=1, tasks=1)
        adding = adder.start(world.add(way))
        assert adder.is_waiting
    adding.result()
    adder.start(commit).result()
    assert world.owner.query(ORPHANS) == []
    assert world.names() == (["unused"], ["unused"])
    assert len(world.owner.jobs()) == (2 if "many" in way else 1)


@pytest.mark.parametrize(("is_keyed", "adds_a_batch"), [(True, True), (True, False), (False, False)])
def test_a_name_that_is_used_after_the_search__stays(world: World, is_keyed: bool, adds_a_batch: bool) -> None:
    """A job that waits under a key gets another task and queue, and keeps its id, which is below the watermark."""
    world.owner.add_job("other", queue_name="other", job_key="k" if is_keyed else None)
    search = sql_cleanup.find_unused_queues
    spec: Row = {"identifier": "unused", "queue_name": "unused", "job_key": "k" if is_keyed else None}

    def search_and_add(*args: Any, after: int, **kwargs: Any) -> list[int]:
        found = search(*args, after=after, **kwargs)
        if not after:
            if adds_a_batch:
                world.owner.add_jobs(spec)
            else:
                world.owner.add_job("unused", queue_name="unused", job_key=spec["job_key"])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_cleanup, "find_unused_queues", search_and_add)
        result = cleanup(unused_tasks=False)
    assert world.owner.query(ORPHANS) == []
    # The queue that a job with the key had before is unused now.
    assert set(world.names()[1]) == ({"unused"} if is_keyed else {"unused", "other"})
    assert result.queues == int(is_keyed)


def test_the_names_of_a_job_that_lost_its_key_after_the_search__stay(world: World) -> None:
    """It got them after the search, failed, and gave its key to another job."""
    job_id = world.owner.add_job("other", queue_name="other", job_key="k")["id"]
    search = sql_cleanup.find_unused_queues

    def search_and_replace(*args: Any, after: int, **kwargs: Any) -> list[int]:
        found = search(*args, after=after, **kwargs)
        if not after:
            world.owner.add_job("unused", queue_name="unused", job_key="k")
            world.owner.query("select id from {schema}.permanently_fail_jobs(array[%s]::bigint[])", job_id)
            world.owner.add_job("other", job_key="k")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_cleanup, "find_unused_queues", search_and_replace)
        cleanup(unused_tasks=False)
    assert world.owner.query(ORPHANS) == []
    assert "unused" in world.names()[1]


@pytest.mark.parametrize("way", ["one", "many keyed"])
def test_other_adders_and_workers__do_not_wait_behind_a_cleanup_that_waits_for_a_long_transaction(
    world: World, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, other = world.session(), world.session()
    long.start(world.add("one")).result()
    waits: list[int] = []
    lock = sql_cleanup.lock_jobs

    def noted(*args: Any, **kwargs: Any) -> None:
        waits.append(1)
        lock(*args, **kwargs)

    monkeypatch.setattr(sql_cleanup, "lock_jobs", noted)
    with ThreadPoolExecutor(1) as thread:
        cleaning = thread.submit(clean_up_and_close)
        while not waits:
            pass
        other.start(world.add(way))
        assert other.last is not None
        other.last.result(timeout=20)
        other.start(lambda connection: world.sql(connection).query("delete from {schema}._private_jobs where id < 0"))
        other.last.result(timeout=20)
        assert cleaning.result() == CleanupResult(is_complete=False)
    assert world.names()[0] == ["unused"]


def clean_up_and_close() -> CleanupResult:
    try:
        return cleanup()
    finally:
        connection.close()


def test_many_jobs_with_keys__end_the_cleanup_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While names are deleted, nobody can add or run jobs."""
    world.owner.query("""
        insert into {schema}._private_jobs (task_id, payload, key)
        select id, '{}', 'k' || number from {schema}._private_tasks, generate_series(1, 20000) as number""")
    monkeypatch.setattr(sql_cleanup, "SETTINGS", sql_cleanup.SETTINGS | {"statement_timeout": "1ms"})
    assert cleanup() == CleanupResult(is_complete=False)
    assert world.names()[1] == ["unused"]


def test_a_queue_that_somebody_has_locked__is_in_use(
    world: World, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    other = raw_connection(autocommit=False)
    WorkerSql(other, world.schema).query("select from {schema}._private_job_queues for update")
    assert cleanup(unused_tasks=False) == CleanupResult()
    other.rollback()
    assert cleanup(unused_tasks=False) == CleanupResult(queues=1)
