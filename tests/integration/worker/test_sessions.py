"""What a worker costs the database while it has nothing to do: the sessions it keeps, and what it says in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_graphile_worker.routing import places_to_serve
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.process.worker_process import build_runners, run_with_signals
from tests.support.factories import make_job
from tests.support.stepped_worker import own_tasks, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Sessions = Callable[[], dict[int, str]]
Wait = Callable[..., None]


def quick(payload: Any) -> None:
    pass


@pytest.fixture
def sessions(raw_connection: Callable[..., Any]) -> Sessions:
    """The part of the worker that each session belongs to."""
    connection = raw_connection()

    def find() -> dict[int, str]:
        rows = connection.execute(
            "select pid, split_part(application_name, ' ', 2) from pg_stat_activity"
            " where datname = current_database() and application_name like 'graphile_worker %'"
        )
        return dict(rows.fetchall())

    # Sessions of other tests may need a moment to end.
    others = find()
    return lambda: {pid: part for pid, part in find().items() if pid not in others}


@pytest.fixture
def worker() -> Iterator[DatabaseWorker]:
    """One whose beats have come through for a while."""
    with stepped_workers(quick) as make:
        worker = make()
        worker.recovery.skips_watching = True
        yield worker


class OverheardCursor:
    def __init__(self, cursor: Any, said: list[str]) -> None:
        self._cursor = cursor
        self._said = said

    def execute(self, text: str, *arguments: Any) -> Any:
        self._said.append(text.split()[1].removeprefix("gw:"))
        return self._cursor.execute(text, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def overhear(database: Database) -> list[str]:
    """What is said from now on: each cursor (behind a pooler that may be a transaction), and each statement's tag."""
    said: list[str] = []
    original = database.cursor

    @contextmanager
    def cursor() -> Iterator[Any]:
        said.append("cursor")
        with original() as cursor:
            yield OverheardCursor(cursor, said)

    database.cursor = cursor  # type: ignore[method-assign]
    return said


def test_recovery__keeps_one_session(worker: DatabaseWorker, sessions: Sessions) -> None:
    """A session costs more than the sweep: its start is three transactions, and a process."""

    def swept() -> list[int]:
        worker.recovery.step()
        return [pid for pid, part in sessions().items() if part == "recovery"]

    first = swept()
    assert len(first) == 1
    assert swept() == first


def test_releaser__has_its_session_before_the_first_job_ends(worker: DatabaseWorker, sessions: Sessions) -> None:
    """To open a session and to plan its statements takes longer than many jobs."""
    worker.releaser.warm_up()
    worker.releaser.step()
    first = [pid for pid, part in sessions().items() if part == "releaser"]
    assert len(first) == 1
    said = overhear(worker.release_database)
    worker.releaser.release_queue(HeldQueue(1, "django-worker-1/1"))
    worker.releaser.step()
    assert [pid for pid, part in sessions().items() if part == "releaser"] == first
    assert said == ["cursor", "release-queues", "cursor", "waiting-queues"]


def test_once__leaves_no_session(sessions: Sessions, wait_until: Wait) -> None:
    """Not even that of the one sweep, which no thread of its own closes."""
    make_job("quick")
    with own_tasks(quick):
        # Kept until the end, as a script would: what nobody refers to is closed with a warning.
        runners = build_runners(
            places_to_serve(change=lambda settings: settings.replace(log_success=False)), with_cron=False
        )
        assert run_with_signals(runners, None, once=True) == 0
    wait_until(lambda: not sessions())


def test_beat__comes_first_and_alone_whatever_was_done(worker: DatabaseWorker, wait_until: Wait) -> None:
    """Statistics and everything else are written on other connections: nothing delays a beat."""
    beat = ["cursor", "beat", "cursor", "proof"]
    said = overhear(worker.heartbeat._database)
    worker.heartbeat.step()
    assert said == beat
    make_job("quick")
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.step()
    said.clear()
    worker.heartbeat.step()
    assert said == beat
