"""Paused queues in the database: the lock of a pause, and every order of operators and workers.

Two rules hold at every moment. While a job of a queue runs, the queue cannot be claimed, so no two of its jobs run at
once. When nothing runs and nothing is paused, the queue can be claimed, so it never stays locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.support.interleaving import Connection, Stage, Step, orders, play
from tests.support.worker_sql import Row, WorkerSql

TOKEN = "django-worker-a/1"
NODE = "worker-of-node"

PAUSE = "select * from {schema}._private_pause('queue', 'mail', null, 'why', 'who', false)"
RESUME = "select * from {schema}._private_resume('queue', 'mail')"
SETTLE = "select * from {schema}._private_settle_pauses()"
# One statement, as completeJobs.js of graphile-worker 0.18 sends it.
COMPLETE_OF_NODE = """
with j as (delete from {schema}._private_jobs where id = any (array(select id from {schema}._private_jobs
    where locked_by = %s)) returning *)
update {schema}._private_job_queues as queue set locked_by = null, locked_at = null
from j where queue.id = j.job_queue_id and queue.locked_by = %s"""


def start_job(worker: WorkerSql, token: str) -> int:
    """Add a job to the queue, and claim it as a worker does."""
    job_id = int(worker.add_job(queue_name="mail")["id"])
    worker.lock(job_id, by=token)
    worker.query("update {schema}._private_job_queues set locked_by = %s, locked_at = now()", token)
    return job_id


def complete(worker: WorkerSql, job_id: int) -> bool:
    statement = "select {schema}._private_complete_claims(%s::bigint[], %s::text[], '{1}'::int[])"
    return worker.value(statement, [job_id], [TOKEN]) is None


def release_queue(worker: WorkerSql) -> None:
    statement = "select {schema}._private_release_queues(array(select id from {schema}._private_job_queues), %s)"
    worker.query(statement, [TOKEN])


def lock_text(worker: WorkerSql) -> tuple[str | None, str | None, bool]:
    (row,) = worker.query(
        "select locked_by, locked_at::text as at, is_available from {schema}._private_job_queues"
        " where queue_name = 'mail'"
    )
    return row["locked_by"], row["at"], row["is_available"]


def pause(worker: WorkerSql, until: str | None = None, *, is_extension: bool = False) -> Row:
    (row,) = worker.query(
        "select * from {schema}._private_pause('queue', 'mail', now() + %s::interval, 'why', 'who', %s)",
        until,
        is_extension,
    )
    return row


def test_pause__locks_the_queue_for_ever(worker: WorkerSql) -> None:
    worker.add_job(queue_name="mail")
    worker.query(PAUSE)
    locked_by, locked_at, is_available = lock_text(worker)
    assert str(locked_by).startswith("paused:")
    assert (locked_at, is_available) == ("infinity", False)


def test_paused_queue__is_no_stale_lock_for_us_nor_for_node(worker: WorkerSql) -> None:
    worker.add_job(queue_name="mail")
    worker.query(PAUSE)
    before = lock_text(worker)
    worker.query("select {schema}._private_recover_queues(null, 1, now() + interval '10 years')")
    # As resetLockedAt.js of graphile-worker 0.18.
    worker.query(
        "update {schema}._private_job_queues set locked_by = null, locked_at = null"
        " where locked_at < now() - interval '4 hours'"
    )
    assert lock_text(worker) == before
    assert worker.value("select worker_ids from {schema}._private_orphans(0)") is None


def test_pause_of_a_queue_without_a_row__inserts_the_row(worker: WorkerSql) -> None:
    worker.query(PAUSE)
    assert lock_text(worker)[1:] == ("infinity", False)
    worker.add_job(queue_name="mail")
    assert lock_text(worker)[1:] == ("infinity", False)


def test_pause__overwrites_the_lock_of_a_worker_whose_release_leaves_it_in_place(worker: WorkerSql) -> None:
    job_id = start_job(worker, TOKEN)
    worker.query(PAUSE)
    before = lock_text(worker)
    assert complete(worker, job_id)
    release_queue(worker)
    assert lock_text(worker) == before
    worker.query(RESUME)
    assert lock_text(worker) == (None, None, True)


def test_resume__hands_the_lock_to_the_job_that_runs(worker: WorkerSql) -> None:
    job_id = start_job(worker, TOKEN)
    worker.query(PAUSE)
    worker.query(RESUME)
    assert lock_text(worker)[::2] == (TOKEN, False)
    assert worker.query("select * from {schema}._private_pauses") == []
    assert complete(worker, job_id)
    release_queue(worker)
    assert lock_text(worker)[2]


def test_resume__keeps_a_record_of_a_lock_that_a_worker_of_node_gets(worker: WorkerSql) -> None:
    start_job(worker, NODE)
    worker.query(PAUSE)
    worker.query(RESUME)
    assert lock_text(worker)[::2] == (NODE, False)
    assert worker.value("select handed_to from {schema}._private_pauses") == NODE
    worker.query(SETTLE)
    assert lock_text(worker)[0] == NODE
    worker.query("delete from {schema}._private_jobs")
    worker.query(SETTLE)
    assert lock_text(worker) == (None, None, True)
    assert worker.query("select * from {schema}._private_pauses") == []


def test_second_pause__changes_the_first(worker: WorkerSql) -> None:
    first = pause(worker, "1 hour")
    second = pause(worker, None)
    assert (first["was_paused"], second["was_paused"], second["ends_at"]) == (False, True, None)
    assert second["paused_at"] == first["paused_at"]


@pytest.mark.parametrize(("until", "is_longer"), [("1 minute", False), ("2 hours", True), (None, True)])
def test_extension__only_moves_the_end_further(worker: WorkerSql, until: str | None, is_longer: bool) -> None:
    first = pause(worker, "1 hour")
    second = pause(worker, until, is_extension=True)
    assert (second["ends_at"] != first["ends_at"]) is is_longer


def test_pause_whose_time_is_over__is_ended_by_a_settlement_once(worker: WorkerSql) -> None:
    pause(worker, "-1 second")
    assert [row["name"] for row in worker.query(SETTLE)] == ["mail"]
    assert worker.query(SETTLE) == []
    assert lock_text(worker)[2]


def test_pause_after_one_whose_time_is_over__is_a_new_one(worker: WorkerSql) -> None:
    pause(worker, "-1 second")
    assert not pause(worker, "1 hour")["was_paused"]
    assert worker.query(SETTLE) == []
    assert not lock_text(worker)[2]


def test_paused_queue_that_was_unlocked_by_hand__is_locked_again(worker: WorkerSql) -> None:
    worker.query(PAUSE)
    token = str(lock_text(worker)[0])
    worker.call("force_unlock_workers", worker_ids=[token])
    assert lock_text(worker)[2]
    worker.query(SETTLE)
    assert lock_text(worker)[::2] == (token, False)


def test_end_of_a_pause__notifies_workers_of_jobs_and_of_control(
    committing_worker: Callable[..., WorkerSql],
) -> None:
    operator, listener = committing_worker(), committing_worker()
    listener.query('listen "jobs:insert"')
    listener.query('listen "jobs:control"')
    operator.query(PAUSE)
    operator.query(RESUME)
    heard = [notice.channel for notice in listener.connection.notifies(timeout=10, stop_after=3)]
    assert sorted(heard) == ["jobs:control", "jobs:control", "jobs:insert"]
    operator.query("delete from {schema}._private_job_queues")


@dataclass
class Actors:
    """The steps of operators and workers, each on a session of its own."""

    stage: Stage
    schema: str
    # Whether the worker has released the queue: it does so once.
    has_released: bool = False

    def sql(self, connection: Connection) -> WorkerSql:
        return WorkerSql(connection, self.schema)

    def commit(self, connection: Connection) -> None:
        connection.commit()

    def pause(self, connection: Connection) -> None:
        self.sql(connection).query(PAUSE)

    def resume(self, connection: Connection) -> None:
        self.sql(connection).query(RESUME)

    def settle(self, connection: Connection) -> None:
        self.sql(connection).query(SETTLE)
        connection.commit()

    def force_unlock(self, connection: Connection) -> None:
        self.sql(connection).call("force_unlock_workers", worker_ids=[TOKEN])
        connection.commit()

    def complete(self, connection: Connection) -> None:
        """Complete the job, in a transaction of its own."""
        worker = self.sql(connection)
        for job in worker.query("select id from {schema}._private_jobs where locked_by = %s", TOKEN):
            complete(worker, job["id"])
        connection.commit()

    def release(self, connection: Connection) -> None:
        """Release the queue, if the job has been completed: a worker tries a job whose row was locked again."""
        worker = self.sql(connection)
        has_ended = not worker.query("select 1 from {schema}._private_jobs where locked_by = %s", TOKEN)
        connection.commit()
        if has_ended and not self.has_released:
            release_queue(worker)
            connection.commit()
            self.has_released = True

    def complete_as_node(self, connection: Connection) -> None:
        self.sql(connection).query(COMPLETE_OF_NODE, NODE, NODE)
        connection.commit()

    def claim(self, connection: Connection) -> None:
        """Claim the queue, with its next job, in one transaction."""
        worker = self.sql(connection)
        self.has_released = False
        claimed = worker.query(
            "update {schema}._private_job_queues set locked_by = %s, locked_at = now() where id = (select id from"
            " {schema}._private_job_queues where is_available for no key update skip locked) returning id",
            TOKEN,
        )
        if claimed:
            worker.query(
                "update {schema}._private_jobs set locked_by = %s, locked_at = now(), attempts = 1 where id = ("
                "select id from {schema}._private_jobs where is_available order by id limit 1)",
                TOKEN,
            )


@pytest.fixture
def actors(database_url: str, worker_schema: str) -> Iterator[Actors]:
    with Stage(lambda: psycopg.connect(database_url)) as stage:
        stage.observer.autocommit = True
        yield Actors(stage, worker_schema)


Script = Callable[[Actors], tuple[list[Step], list[list[Step]]]]

SCRIPTS: dict[str, Script] = {
    "pause and resume, worker": lambda a: (
        [],
        [[a.pause, a.commit, a.resume, a.commit], [a.complete, a.release]],
    ),
    "resume, pause, worker": lambda a: (
        [a.pause],
        [[a.resume, a.commit], [a.pause, a.commit], [a.complete, a.release]],
    ),
    "resume, resume": lambda a: ([a.pause], [[a.resume, a.commit], [a.resume, a.commit]]),
    "resume, settle, worker": lambda a: ([a.pause], [[a.resume, a.commit], [a.settle], [a.complete, a.release]]),
    "resume, force-unlock, worker": lambda a: (
        [a.pause],
        [[a.resume, a.commit], [a.force_unlock], [a.complete, a.release]],
    ),
    "pause and resume, claim": lambda a: (
        [a.complete, a.release],
        [[a.pause, a.commit, a.resume, a.commit], [a.claim, a.commit]],
    ),
}


RARE = ("resume, resume", "resume, settle, worker", "resume, force-unlock, worker")


def play_all(actors: Actors, token: str, prepare: Sequence[Step], scripts: Sequence[Sequence[Step]]) -> int:
    observer = actors.stage.observer
    sql = actors.sql(observer)
    for _ in scripts:
        actors.stage.session()
    played = 0
    for order in orders(scripts):
        for table in ("_private_jobs", "_private_job_queues", "_private_pauses"):
            sql.query(f"delete from {{schema}}.{table}")
        start_job(sql, token)
        actors.has_released = False
        sql.add_job(queue_name="mail")
        for step in prepare:
            step(observer)
        checked = [[_checked(actors, step) for step in script] for script in scripts]
        outcome = play(actors.stage, checked, order)
        if outcome is not None:
            for future in (future for futures in outcome.results for future in futures):
                assert not future.exception(), f"{future.exception()} in the order {order}"
            _check_end(actors, token, order)
            played += 1
    for table in ("_private_jobs", "_private_job_queues", "_private_pauses"):
        sql.query(f"delete from {{schema}}.{table}")
    return played


def _checked(actors: Actors, step: Step) -> Step:
    def run(connection: Connection) -> Any:
        answer = step(connection)
        _check_now(actors)
        return answer

    return run


def _check_now(actors: Actors) -> None:
    """While a job of the queue runs, the queue is not available."""
    with actors.stage._lock:
        both = actors.sql(actors.stage.observer).query(
            "select 1 from {schema}._private_jobs as job join {schema}._private_job_queues as queue"
            " on queue.id = job.job_queue_id where job.locked_at is not null and queue.is_available"
        )
    assert not both, "A job runs, and the queue is available."


def _check_end(actors: Actors, token: str, order: Sequence[int]) -> None:
    """When the jobs have ended, the queue is available unless it is paused."""
    observer = actors.stage.observer
    sql = actors.sql(observer)
    if token == TOKEN:
        actors.complete(observer)
        actors.release(observer)
    sql.query(SETTLE)
    held = sql.query("select * from {schema}._private_pauses")
    locked_by, locked_at, is_available = lock_text(sql)
    assert is_available is not bool(held), f"{locked_by} with the pauses {held} in the order {order}"
    if held:
        assert (locked_by, locked_at) == (held[0]["token"], "infinity")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.chaos if name in RARE else []) for name in SCRIPTS],
)
def test_queue__neither_runs_two_jobs_nor_stays_locked_in_any_order(actors: Actors, name: str) -> None:
    prepare, scripts = SCRIPTS[name](actors)
    assert play_all(actors, TOKEN, prepare, scripts) >= 2


@pytest.mark.django_db(transaction=True)
def test_queue_of_a_job_that_node_runs__stays_locked_in_no_order(actors: Actors) -> None:
    scripts: list[list[Step]] = [
        [actors.pause, actors.commit, actors.resume, actors.commit],
        [actors.complete_as_node],
    ]
    assert play_all(actors, NODE, [], scripts) == 5
