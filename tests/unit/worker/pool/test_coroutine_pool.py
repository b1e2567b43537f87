"""Jobs that run without a thread: how many at once, and which threads start them and take their outcomes."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.outcomes import Outcome, Succeeded
from django_graphile_worker.worker.pool.pool import Pool
from tests.conftest import WAIT_TIMEOUT
from tests.support.pool_worker import Calls, worker_with
from tests.unit.worker.pool.test_pool import claim

COROUTINE, PLAIN = 7, 8
Wait = Callable[..., None]


def coroutines(*numbers: int) -> list[Claim]:
    return [claim(number)._replace(task_id=COROUTINE) for number in numbers]


def plain(*numbers: int) -> list[Claim]:
    return [claim(number)._replace(task_id=PLAIN) for number in numbers]


class Site(Calls):
    """Starts coroutines that end when the test says so, and plain jobs that end when the test says so."""

    coroutine_tasks = frozenset({COROUTINE})

    def __init__(self, concurrency: int) -> None:
        self.started: list[Claim] = []
        self.ran: list[int] = []
        self.ended: list[int] = []
        self.threads: set[int] = set()
        self.may_end = threading.Event()
        self.may_resume = threading.Event()
        self.may_resume.set()
        self.refused: frozenset[int] = frozenset()
        self.pool = Pool(worker_with(self, concurrency))

    def run(self, claim: Claim) -> Outcome:
        self.ran.append(claim.id)
        assert self.may_end.wait(WAIT_TIMEOUT)
        return Succeeded(claim, 0.0)

    def start_job(self, claim: Claim) -> Outcome | None:
        self.threads.add(threading.get_ident())
        self.started.append(claim)
        return Succeeded(claim, 0.0) if claim.id in self.refused else None

    def resume_job(self, run: Any) -> Outcome:
        self.threads.add(threading.get_ident())
        assert self.may_resume.wait(WAIT_TIMEOUT)
        return Succeeded(run, 0.0)

    def job_ended(self, outcome: Outcome) -> None:
        self.ended.append(outcome.claim.id)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(4)
    yield site
    site.may_end.set()
    site.may_resume.set()
    site.pool.stop()
    assert site.pool.join(WAIT_TIMEOUT)


def test_coroutines__are_started_and_ended_by_one_thread(site: Site, wait_until: Wait) -> None:
    site.pool.submit(coroutines(1, 2, 3, 4), callers=4)
    wait_until(lambda: len(site.started) == 4)
    wait_until(lambda: site.pool.running() == 4)
    assert site.pool.free == 0
    assert not site.pool.is_idle
    wait_until(lambda: site.pool.threads.resting == 1)
    site.pool.coroutines.resume_ended(site.started[:])
    wait_until(lambda: site.pool.is_idle)
    assert sorted(site.ended) == [1, 2, 3, 4]
    assert len(site.threads) == 1


def test_no_more_jobs_than_slots__run_at_once(site: Site, wait_until: Wait) -> None:
    site.pool.submit(coroutines(1, 2, 3), callers=4)
    wait_until(lambda: len(site.started) == 3)
    site.pool.submit([*plain(4, 5), *coroutines(6)], callers=4)
    wait_until(lambda: site.ran == [4])
    wait_until(lambda: site.pool.threads.resting == len(site.pool.threads) - 1)
    assert (site.pool.running(), site.pool.backlog, site.pool.could_do_more) == (4, 2, False)
    site.pool.coroutines.resume_ended([site.started[0]])
    wait_until(lambda: site.ran == [4, 5])
    assert len(site.started) == 3
    site.pool.coroutines.resume_ended([site.started[1]])
    wait_until(lambda: len(site.started) == 4)


def test_run_that_needs_a_thread__keeps_its_slot(site: Site, wait_until: Wait) -> None:
    site.pool.submit(coroutines(1, 2, 3, 4), callers=4)
    wait_until(lambda: len(site.started) == 4)
    site.may_resume.clear()
    site.pool.coroutines.resume(site.started[0])
    wait_until(lambda: site.pool.coroutines.count == 3)
    assert site.pool.running() == 4
    site.may_resume.set()
    wait_until(lambda: site.ended == [1])


def test_end_that_takes_long__delays_no_other(site: Site, wait_until: Wait) -> None:
    site.pool.submit(coroutines(1, 2, 3), callers=4)
    wait_until(lambda: len(site.started) == 3)
    wait_until(lambda: site.pool.threads.resting == 1)
    site.may_resume.clear()
    slots = site.pool.coroutines
    slots.resume_ended(site.started[:])
    wait_until(lambda: slots.count == 2)
    assert slots.call_more()
    assert slots.count == 2, "a run that waits since this moment needs no other thread yet"
    assert slots.call_more()
    wait_until(lambda: slots.count == 1)
    assert slots.call_more()
    wait_until(lambda: slots.count == 0)
    assert not slots.call_more()


def test_start_that_takes_long__delays_no_other(wait_until: Wait) -> None:
    """The fetcher calls a slot again while jobs wait and slots are free."""

    class Slow(Site):
        def start_job(self, claim: Claim) -> Outcome | None:
            self.started.append(claim)
            assert claim.id > 1 or self.may_resume.wait(WAIT_TIMEOUT)
            return Succeeded(claim, 0.0)

    site = Slow(4)
    site.may_resume.clear()
    site.pool.submit(coroutines(1, 2, 3), callers=4)
    wait_until(lambda: len(site.started) == 1)
    assert site.pool.could_do_more
    site.pool.call(4)
    wait_until(lambda: site.ended == [2, 3])
    assert len(site.pool.threads) == 2
    site.may_resume.set()
    site.pool.stop()
    assert site.pool.join(WAIT_TIMEOUT)


class RandomSite(Calls):
    """Coroutines that end in random order on another thread, beside plain jobs, and the most jobs at once."""

    coroutine_tasks = frozenset({COROUTINE})

    def __init__(self, concurrency: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.at_once = self.most_at_once = 0
        self.ended: list[int] = []
        self.started: SimpleQueue[Claim | None] = SimpleQueue()
        self.pool = Pool(worker_with(self, concurrency))

    def run(self, claim: Claim) -> Outcome:
        self.count(1)
        self.count(-1)
        return Succeeded(claim, 0.0)

    def start_job(self, claim: Claim) -> Outcome | None:
        self.count(1)
        self.started.put(claim)
        return None

    def resume_job(self, run: Any) -> Outcome:
        self.count(-1)
        return Succeeded(run, 0.0)

    def count(self, number: int) -> None:
        with self.lock:
            self.at_once += number
            self.most_at_once = max(self.most_at_once, self.at_once)

    def job_ended(self, outcome: Outcome) -> None:
        self.ended.append(outcome.claim.id)

    def end_coroutines(self) -> None:
        """End what was started, as the event loop does: some make a synchronous call first."""
        batch: list[Claim] = []
        while (started := self.started.get()) is not None:
            batch.append(started)
            if self.started.empty() or self.random.random() < 0.2:
                if self.random.random() < 0.2:
                    self.pool.coroutines.resume(batch.pop())
                self.pool.coroutines.resume_ended(batch)
                batch = []


@pytest.mark.parametrize("seed", range(6))
def test_any_order__ends_all_jobs_and_runs_no_more_than_slots(seed: int, wait_until: Wait) -> None:
    site = RandomSite(1 + seed, seed)
    loop = threading.Thread(target=site.end_coroutines, daemon=True)
    loop.start()
    submitted = 0
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(100):
            numbers = range(submitted, submitted + site.random.randint(1, 12))
            kinds = site.random.choice(((COROUTINE,), (COROUTINE, PLAIN)))
            claims = [claim(number)._replace(task_id=site.random.choice(kinds)) for number in numbers]
            site.pool.submit(claims, callers=len(claims))
            submitted += len(claims)
        wait_until(lambda: site.pool.is_idle)
    finally:
        sys.setswitchinterval(interval)
        site.started.put(None)
        site.pool.stop()
    assert sorted(site.ended) == list(range(submitted))
    assert site.most_at_once <= site.pool.concurrency
