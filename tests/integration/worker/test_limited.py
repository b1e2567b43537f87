"""A worker with limited tasks: sorts, claims, runs and releases limited jobs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import Limit, LimitedUntil, add_job, add_jobs, conf, pause, resume, run_once, task
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.worker import database_worker
from tests.support.stepped_worker import Build, own_tasks, run_all

pytestmark = pytest.mark.django_db(transaction=True)


class Watched:
    """A task that notes how many of its jobs run at once, by key."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.most: dict[Any, int] = {}
        self.ran: list[Any] = []
        self.seconds = seconds
        self._running: dict[Any, int] = {}
        self._lock = threading.Lock()

    def __call__(self, payload: Any) -> None:
        key = payload["account"]
        with self._lock:
            self._running[key] = self._running.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self._running[key])
        threading.Event().wait(self.seconds)
        with self._lock:
            self._running[key] -= 1
            self.ran.append(key)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def limited_task(watched: Watched) -> Iterator[Build]:
    """A factory of workers whose only tasks are a limited and an ordinary one."""

    def limited(payload: Any) -> None:
        watched(payload)

    with own_tasks(limited, limit=Limit("account:{account}", concurrency=2)) as registry:
        make = Build(registry)
        yield make
        for runner in make.made:
            runner.close()


def value(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("{schema}", '"' + _schema() + '"'))
        return cursor.fetchone()[0]


def _schema() -> str:
    return conf.current().schema


def add(count: int, account: Any = 1) -> None:
    add_jobs([JobSpec("limited", {"account": account}) for _ in range(count)])


def test_run_once__runs_all_limited_jobs_within_their_limit(limited_task: Build, watched: Watched) -> None:
    add(8, account=1)
    add(3, account=2)
    run_once(concurrency=6, log_success=False)
    assert sorted(watched.ran) == [1] * 8 + [2] * 3
    assert watched.most[1] <= 2
    assert value("select count(*) from {schema}._private_jobs") == 0
    assert value("select count(*) from {schema}._private_limited_jobs") == 0
    assert value("select count(*) from {schema}._private_limit_places") == 0


def test_a_limited_job__is_sorted_by_the_keeper_and_starts(
    limited_task: Build, watched: Watched, wait_until: Callable[..., None]
) -> None:
    worker = limited_task(concurrency=5)
    assert worker.limited is not None
    # So long that the thread of the second job begins meanwhile.
    watched.seconds = 0.3
    add(5)
    worker.limited.keeper.step()
    run_all(worker, wait_until)
    assert watched.ran == [1] * 5
    assert watched.most == {1: 2}


def test_limited_until__closes_the_key_and_retries_the_job(wait_until: Callable[..., None]) -> None:
    def limited(payload: Any) -> None:
        raise LimitedUntil(60)

    with own_tasks(limited, limit=Limit("account:{account}", concurrency=1)):
        add(2, account=1)
        add(1, account=2)
        run_once(concurrency=1, log_success=False)
    closed = "select array_agg(key_text order by key_text) from {schema}._private_limit_keys where closed_until > now()"
    assert value(closed) == ["account:1", "account:2"]
    # One job of each key has run; the other one of the first waits, without an attempt.
    assert value("select array_agg(attempts order by attempts) from {schema}._private_jobs") == [0, 1, 1]


def test_a_task_without_limits_any_more__runs_its_parked_jobs(limited_task: Build, watched: Watched) -> None:
    worker = limited_task()
    add(3)
    assert worker.limited is not None
    worker.limited.keeper.step()
    assert value("select count(*) from {schema}._private_jobs where run_at = 'infinity'") == 3

    def limited(payload: Any) -> None:
        watched(payload)

    with own_tasks(limited):
        run_once(concurrency=2, log_success=False)
    assert len(watched.ran) == 3


def test_a_worker_of_old_code_that_stops_last__leaves_no_job_parked(
    limited_task: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with the limits may park jobs after the start of a worker whose code has none any more."""
    old = limited_task()
    monkeypatch.setattr(database_worker, "UNPARK_INTERVAL", 0.0)

    def limited(payload: Any) -> None: ...

    with own_tasks(limited) as registry:
        new = Build(registry)
        recovery = new().recovery
        recovery.step()
        add(3)
        assert old.limited is not None
        old.limited.keeper.step()
        assert value("select count(*) from {schema}._private_jobs where run_at = 'infinity'") == 3
        recovery.step()
        new.made[0].close()
    assert value("select count(*) from {schema}._private_jobs where run_at = 'infinity'") == 0


def test_a_queue_that_is_resumed__starts_its_limited_jobs(limited_task: Build) -> None:
    worker = limited_task()
    add_job("limited", {"account": 1}, queue_name="held")
    pause(queue="held")
    assert worker.limited is not None
    worker.heartbeat.step()
    worker.limited.keeper.step()
    worker.fetcher.step()
    assert value("select state from {schema}._private_limit_lanes") == 3
    resume(queue="held")
    worker.heartbeat.read_control_soon()
    worker.heartbeat.step()
    worker.limited.keeper.step()
    assert value("select state from {schema}._private_limit_lanes") == 1


def test_ordinary_and_limited_jobs__share_the_slots(watched: Watched) -> None:
    ran: list[str] = []

    def limited(payload: Any) -> None:
        ran.append("limited")

    def ordinary(payload: Any) -> None:
        ran.append("ordinary")

    with own_tasks(limited, limit=Limit("account:{account}", concurrency=5)) as registry:
        task(ordinary)
        add(20)
        add_jobs([JobSpec("ordinary", {}) for _ in range(20)])
        runner = Build(registry).runner(concurrency=1)
        assert runner.worker.limited is not None
        runner.worker.limited.keeper.step()
        runner.close()
        run_once(concurrency=1, local_queue_size=0, log_success=False)
    assert len(ran) == 40
    assert {"limited", "ordinary"} == set(ran[:12])


def test_a_limited_job__starts_beside_ordinary_jobs_that_are_claimed_ahead() -> None:
    """The claims ahead find no free slot."""
    ran: list[str] = []
    numbers = itertools.count(1)
    has_run = threading.Event()

    def limited(payload: Any) -> None:
        ran.append("limited")
        has_run.set()

    def ordinary(payload: Any) -> None:
        has_run.wait(0.004)
        ran.append("ordinary")
        if next(numbers) == 200:
            add(1)

    with own_tasks(limited, limit=Limit("account:{account}", concurrency=5)):
        task(ordinary)
        add_jobs([JobSpec("ordinary", {}) for _ in range(3000)])
        run_once(concurrency=4, log_success=False)
    assert len(ran) == 3001
    # The job is sorted by another thread, which may need a second on a busy machine. Then at most the jobs that are
    # claimed for 0.2 s come before it.
    assert ran.index("limited") < 2700


def test_a_queue__starts_limited_and_ordinary_jobs_in_order() -> None:
    ran: list[int] = []

    def limited(payload: Any) -> None:
        ran.append(payload["account"])

    def ordinary(payload: Any) -> None:
        ran.append(payload["account"])

    with own_tasks(limited, limit=Limit("account:{account}", concurrency=1)):
        task(ordinary)
        names = ["limited", "ordinary", "ordinary"] * 10
        add_jobs([JobSpec(name, {"account": number}, queue_name="q") for number, name in enumerate(names)])
        run_once(concurrency=4, log_success=False)
    assert ran == list(range(30))


def test_expired_jobs__do_not_use_up_the_rate() -> None:
    ran: list[str] = []

    def limited(payload: Any) -> None:
        ran.append(payload["name"])

    with own_tasks(limited, limit=Limit("account:{account}", rate="6/m")):
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        old = {"account": 1, "name": "old"}
        add_jobs([JobSpec("limited", old, run_at=long_ago, expires=long_ago + timedelta(minutes=1)) for _ in range(30)])
        add_job("limited", {"account": 1, "name": "fresh"})
        run_once(concurrency=2, log_success=False)
    assert ran == ["fresh"]
    assert value("select count(*) from {schema}._private_jobs") == 0
