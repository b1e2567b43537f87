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


def test_slots_that_one_thread_has_freed__are_used_by_others(site: Site, wait_until: Wait) -> None:
    site.pool.submit(coroutines(1, 2, 3, 4), callers=4)
    wait_until(lambda: len(site.started) == 4)
    site.pool.submit(plain(5, 6, 7, 8), callers=4)
    wait_until(lambda: site.pool.threads.resting == len(site.pool.threads))
    site.pool.coroutines.resume_ended(site.started[:])
    wait_until(lambda: sorted(site.ran) == [5, 6, 7, 8])


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


def test_ends_that_take_long__get_twice_as_many_threads_with_each_look(wait_until: Wait) -> None:
    """A thread takes one run after the other, so that another run is the first at each look."""
    site = Site(32)
    site.pool.submit(coroutines(*range(1, 33)), callers=32)
    wait_until(lambda: len(site.started) == 32)
    site.may_resume.clear()
    slots = site.pool.coroutines
    slots.resume_ended(site.started[:])
    slots.call_more()
    for busy in (1, 2, 4, 8, 16, 32):
        wait_until(lambda busy=busy: slots.count == 32 - busy)
        slots.call_more()
    site.may_resume.set()
    wait_until(lambda: len(site.ended) == 32)
    site.pool.stop()
    assert site.pool.join(WAIT_TIMEOUT)


def test_looks_at_runs_that_are_taken_in_time__call_no_thread(site: Site, wait_until: Wait) -> None:
    slots = site.pool.coroutines
    slots.ended.extend(coroutines(1, 2))
    assert slots.call_more()
    slots.ended.clear()
    slots.ended.extend(coroutines(3, 4))
    assert slots.call_more()
    assert len(site.pool.threads) == 0
    slots.ended.clear()


def test_calls_for_coroutines__call_a_thread_if_few_have_started_since_the_last_call(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With slow receivers, another job is the first of the line at each look, but few have left it."""
    called: list[int] = []
    monkeypatch.setattr(site.pool.threads, "call", called.append)
    site.pool._line.extend(coroutines(*range(30)))
    for starts, calls in [(8, []), (9, []), (7, [1]), (3, [1, 1])]:
        for _ in range(starts):
            site.pool._waiting.popleft()
        site.pool.call(4)
        assert called == calls
    site.pool._waiting.clear()


def test_coroutines_behind_others__need_no_thread_of_their_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(site.pool.threads, "call", called.append)
    site.pool.submit(coroutines(1, 2), callers=4)
    site.pool.submit(coroutines(3), callers=4)
    assert called == [1]
    site.pool.submit(plain(4), callers=1)
    site.pool.submit(coroutines(5, 6), callers=4)
    assert called == [1, 1, 1], "the thread of the plain job runs that job and cannot start these"
    site.pool._waiting.clear()


def test_calls_for_coroutines_without_a_free_slot__call_no_thread(site: Site) -> None:
    site.pool.coroutines.count = site.pool.concurrency
    site.pool._waiting.extend(coroutines(1))
    for _ in range(3):
        site.pool.call(4)
    assert len(site.pool.threads) == 0
    site.pool._waiting.clear()
    site.pool.coroutines.count = 0


def test_call_for_jobs_that_have_begun_meanwhile__starts_no_thread(site: Site) -> None:
    site.pool.call(4)
    assert len(site.pool.threads) == 0


def test_call_for_a_job_that_waits__starts_one_thread(site: Site, wait_until: Wait) -> None:
    """The other threads would never be used."""
    site.pool._totals.submit(plain(1))
    site.pool._line.extend(plain(1))
    site.pool.call(4)
    assert len(site.pool.threads) == 1
    wait_until(lambda: site.ran == [1])


def test_job_that_could_not_start__frees_its_slot(site: Site, wait_until: Wait) -> None:
    site.refused = frozenset({1})
    site.pool.submit(coroutines(1), callers=1)
    wait_until(lambda: site.pool.is_idle)
    assert (site.ended, site.pool.running()) == ([1], 0)


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


def test_start_that_takes_long__has_one_slot(wait_until: Wait) -> None:
    class Slow(Site):
        def start_job(self, claim: Claim) -> Outcome | None:
            self.started.append(claim)
            assert self.may_resume.wait(WAIT_TIMEOUT)
            return None

    site = Slow(2)
    site.may_resume.clear()
    site.pool.submit(coroutines(1), callers=1)
    wait_until(lambda: len(site.started) == 1)
    assert site.pool.running() == 1
    site.pool.submit(plain(2), callers=1)
    wait_until(lambda: site.ran == [2])
    site.may_resume.set()
    site.may_end.set()
    site.pool.coroutines.resume_ended(site.started[:])
    wait_until(lambda: site.pool.is_idle)
    site.pool.stop()
    assert site.pool.join(WAIT_TIMEOUT)


class NotingLock:
    """A lock that notes when a thread wants it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_wanted = threading.Event()

    def __enter__(self) -> None:
        self.is_wanted.set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_run_that_gets_a_thread__never_counts_twice(site: Site, wait_until: Wait) -> None:
    """A thread that counts it twice finds no slot for a job that waits, and rests: nobody would call it again."""
    site.pool.submit(coroutines(1), callers=1)
    wait_until(lambda: len(site.started) == 1)
    wait_until(lambda: site.pool.threads.resting == 1)
    lock = NotingLock()
    site.pool.coroutines.lock = lock  # type: ignore[assignment]
    with lock.lock:
        site.pool.coroutines.resume(site.started[0])
        assert lock.is_wanted.wait(WAIT_TIMEOUT)
        assert site.pool._running() == 1
    wait_until(lambda: site.ended == [1])


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
