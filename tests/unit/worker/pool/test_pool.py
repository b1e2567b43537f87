"""Threads that run jobs, and run the fetcher in turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import EndedWithoutThread, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.pool.line import WorkUnit
from django_graphile_worker.worker.pool.pool import Pool
from tests.conftest import WAIT_TIMEOUT
from tests.support.pool_worker import Calls, worker_with

Wait = Callable[..., None]


def claim(number: int) -> Claim:
    return Claim(number, 1, 1, "{}", None, 0, 0.0, 25, None, 0, None, None, 0.0, 0.0, None, "w/1")


def unit(number: int) -> WorkUnit:
    return WorkUnit([claim(number)], None, time.monotonic())


class Site(Calls):
    """Slots whose jobs wait until the test lets them end, and a shared loop that does what the test orders."""

    def __init__(self, concurrency: int) -> None:
        self.began: dict[int, int] = {}
        self.may_end = threading.Event()
        self.orders: list[Callable[[], bool]] = []
        self.has_orders = threading.Semaphore(0)
        self.fetchers: list[int] = []
        self.ended_threads = 0
        self.pool = Pool(worker_with(self, concurrency))

    def run(self, claim: Claim) -> Outcome:
        self.began[claim.id] = threading.get_ident()
        assert self.may_end.wait(WAIT_TIMEOUT)
        return Succeeded(claim, 0.0)

    def thread_finished(self) -> None:
        self.ended_threads += 1

    def fetch(self) -> bool:
        """Take a turn: carry out orders until one of them ends it."""
        self.fetchers.append(threading.get_ident())
        while True:
            assert self.has_orders.acquire(timeout=WAIT_TIMEOUT)
            if not self.orders.pop(0)():
                return self.pool.turns.kept is not None

    def order(self, order: Callable[[], bool]) -> None:
        self.orders.append(order)
        self.has_orders.release()

    def keep(self, number: int) -> None:
        self.order(lambda: not self.pool.keep(unit(number)))

    def submit(self, *numbers: int) -> None:
        def submit() -> bool:
            self.pool.submit([claim(number) for number in numbers], callers=len(numbers))
            return True

        self.order(submit)


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(concurrency: int = 2) -> Site:
        made.append(Site(concurrency))
        return made[-1]

    yield make
    for each in made:
        each.may_end.set()
        # Nothing kept: the last turn.
        each.order(lambda: False)
        each.pool.stop()
        assert each.pool.join(WAIT_TIMEOUT)


def test_the_thread_that_fetched_a_job_runs_it_while_another_fetches(
    site: Callable[..., Site], wait_until: Wait
) -> None:
    here = site()
    here.pool.turns.share(here.fetch)
    here.keep(1)
    wait_until(lambda: 1 in here.began and len(here.fetchers) == 2)
    assert here.began[1] == here.fetchers[0]
    assert here.fetchers[1] != here.fetchers[0]
    assert here.pool.vacant == 1
    here.keep(2)
    wait_until(lambda: 2 in here.began and len(here.fetchers) == 3)
    assert here.began[2] == here.fetchers[1]
    assert len(set(here.fetchers)) == 3


def test_no_more_jobs_run_than_may(site: Callable[..., Site], wait_until: Wait) -> None:
    here = site(2)
    here.pool.turns.share(here.fetch)
    here.keep(1)
    here.submit(2, 3, 4)
    wait_until(lambda: len(here.began) == 2 and here.pool.backlog == 2)
    # The thread that has the turn fetches still, and runs no job.
    here.order(lambda: True)
    wait_until(lambda: not here.orders)
    assert here.pool.running() == 2
    assert len(here.began) == 2
    here.may_end.set()
    wait_until(lambda: here.pool.is_idle)
    assert sorted(here.began) == [1, 2, 3, 4]


def test_any_work_is_taken_up_though_threads_are_few(site: Callable[..., Site], wait_until: Wait) -> None:
    """A fetcher that keeps what it fetches, beside slots that come and go: no job is left waiting."""
    here = site(3)
    here.may_end.set()
    here.pool.turns.share(here.fetch)
    for number in range(0, 300, 3):
        here.submit(number, number + 1)
        here.keep(number + 2)
    wait_until(lambda: here.pool.totals()[0] == 300)
    wait_until(lambda: here.pool.is_idle)


def test_work_unit__is_returned_from_the_job_on_that_may_not_begin() -> None:
    """The lease ran out while the first job ran: another worker may have the jobs that were claimed with it."""
    outcomes: list[Outcome] = []
    queues: list[HeldQueue] = []
    has_ended = threading.Event()
    answers = iter([True, False, False])

    class LosesLease(Calls):
        def may_begin(self, claim: Claim) -> bool:
            return next(answers)

        def job_ended(self, outcome: Outcome) -> None:
            outcomes.append(outcome)

        def release_queue(self, queue: HeldQueue) -> None:
            queues.append(queue)
            has_ended.set()

    pool = Pool(worker_with(LosesLease(), 1))
    claims = [claim(number) for number in (3, 2, 1)]
    pool.submit([WorkUnit(claims, HeldQueue(7, "w/1"), time.monotonic())], callers=1)
    assert has_ended.wait(WAIT_TIMEOUT)
    pool.stop()
    assert [(type(outcome), outcome.claim.id) for outcome in outcomes] == [
        (Succeeded, 1),
        (Interrupted, 2),
        (Interrupted, 3),
    ]
    assert queues == [HeldQueue(7, "w/1")]


def test_interrupt_running__returns_the_jobs_and_their_queues_and_ignores_what_they_end_with(
    site: Callable[..., Site], wait_until: Wait
) -> None:
    here = site(1)
    outcomes: list[Outcome] = []
    here.pool._on_outcome = outcomes.append  # type: ignore[assignment]
    queue = HeldQueue(7, "w/1")
    here.pool.submit([WorkUnit([claim(1)], queue, time.monotonic())], callers=1)
    wait_until(lambda: 1 in here.began)
    returned = here.pool.interrupt_running([claim(1)])
    assert [type(each) for each in returned] == [Interrupted, HeldQueue]
    here.may_end.set()
    wait_until(lambda: here.pool.running() == 0)
    assert outcomes == []


def test_wants_jobs__is_said_when_a_job_ends_that_no_other_waits_behind(
    site: Callable[..., Site], wait_until: Wait
) -> None:
    """Of long jobs none is claimed ahead: the fetcher claims when a slot becomes free."""
    here = site(1)
    calls: list[int] = []
    here.wake_fetcher = lambda: calls.append(1)  # type: ignore[method-assign]
    here.pool.submit([claim(1)], callers=1)
    wait_until(lambda: 1 in here.began)
    here.pool.wants_jobs = False
    here.may_end.set()
    wait_until(lambda: here.pool.is_idle and here.pool.threads.resting == 1)
    assert calls == [1]


def test_waiting_size__counts_lone_jobs_and_those_of_queues_until_they_begin(
    site: Callable[..., Site], wait_until: Wait
) -> None:
    here = site(1)
    queue = WorkUnit([claim(3), claim(2)], HeldQueue(7, "w/1"), time.monotonic())
    here.pool.submit([claim(1), queue, claim(4)], callers=1)
    wait_until(lambda: 1 in here.began)
    assert here.pool.waiting_size == 3 * len("{}")
    removed = here.pool.remove_waiting()
    assert [[each.id for each in unit.claims] for unit in removed] == [[3, 2], [4]]
    assert here.pool.waiting_size == 0
    here.may_end.set()
    wait_until(lambda: here.pool.is_idle)


def test_replaced_thread__leaves_its_slot_and_the_rest_of_its_queue(wait_until: Wait) -> None:
    may_end, has_begun, ran, threads_ended = threading.Event(), threading.Event(), [], []

    class Stuck(Calls):
        def run(self, claim: Claim) -> Outcome:
            if claim.id == 1:
                has_begun.set()
                assert may_end.wait(WAIT_TIMEOUT)
                raise EndedWithoutThread
            ran.append(claim.id)
            return Succeeded(claim, 0.0)

        def thread_finished(self) -> None:
            threads_ended.append(threading.get_ident())

    pool = Pool(worker_with(Stuck(), 1))
    queue = HeldQueue(5, "w/1")
    pool.submit([WorkUnit([claim(3), claim(2), claim(1)], queue, time.monotonic())], callers=1)
    assert has_begun.wait(WAIT_TIMEOUT)
    (stuck,) = pool.threads._threads
    assert stuck.ident is not None
    with pool.removal_lock:
        rest = pool.replace_thread(stuck.ident)
        assert pool.replace_thread(-1) is None, "another thread is not of this pool"
    assert rest is not None
    assert ([each.id for each in rest.claims], rest.queue) == ([3, 2], queue)
    assert pool.is_idle
    pool.submit([claim(4)], callers=1)
    wait_until(lambda: ran == [4] and pool.is_idle)
    may_end.set()
    stuck.join(WAIT_TIMEOUT)
    assert threads_ended == [stuck.ident], "the thread ends, and closes its connections"
    pool.stop()
    assert pool.join(WAIT_TIMEOUT)


class Stepped(Calls):
    """Slots whose jobs end one at a time, each when the test says so."""

    def __init__(self, concurrency: int) -> None:
        self.may_end: dict[int, threading.Event] = {}
        self.began: list[int] = []
        self.pool = Pool(worker_with(self, concurrency))

    def submit(self, *numbers: int, callers: int) -> None:
        self.may_end |= {number: threading.Event() for number in numbers}
        self.pool.submit([claim(number) for number in numbers], callers=callers)

    def run(self, claim: Claim) -> Outcome:
        self.began.append(claim.id)
        assert self.may_end[claim.id].wait(WAIT_TIMEOUT)
        return Succeeded(claim, 0.0)

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.may_end[number].set()


def test_slots_to_rest__rest_although_jobs_wait_and_can_be_called_again(wait_until: Wait) -> None:
    here = Stepped(3)
    here.submit(1, 2, 3, 4, 5, 6, 7, callers=3)
    wait_until(lambda: len(here.began) == 3)
    before = here.pool.finished()
    here.pool.rest(2)
    here.end(1, 2)
    wait_until(lambda: here.pool.threads.resting == 2)
    assert (here.pool.running(), here.pool.backlog, here.pool.running_since(before)) == (1, 4, 0)
    here.end(3)
    wait_until(lambda: here.began[3:] == [4])
    assert here.pool.running_since(before) == 1
    here.pool.call(2)
    wait_until(lambda: len(here.began) == 6)
    here.end(4, 5, 6, 7)
    wait_until(lambda: here.pool.is_idle)
    here.pool.stop()
    assert here.pool.join(WAIT_TIMEOUT)


def test_slots_to_rest__go_on_when_the_pool_ends(wait_until: Wait) -> None:
    here = Stepped(2)
    here.submit(1, 2, 3, callers=2)
    wait_until(lambda: len(here.began) == 2)
    here.pool.stop()
    here.pool.rest(5)
    here.end(1, 2, 3)
    assert here.pool.join(WAIT_TIMEOUT)
    assert sorted(here.began) == [1, 2, 3]


def test_slot_to_rest__takes_an_open_turn(wait_until: Wait) -> None:
    """Of three slots, one takes the turn and ends with it, one rests, and one runs the last job."""
    here = Stepped(3)
    turns: list[int] = []

    def take_turn() -> bool:
        turns.append(1)
        return False

    here.submit(1, 2, 3, 4, callers=3)
    wait_until(lambda: len(here.began) == 3)
    here.pool.rest(1)
    here.pool.turns.open.append(take_turn)
    here.end(1, 2, 3, 4)
    wait_until(lambda: turns == [1] and here.pool.is_idle)
    here.pool.stop()
    assert here.pool.join(WAIT_TIMEOUT)


def test_new_jobs__are_not_left_to_slots_that_were_to_rest(wait_until: Wait) -> None:
    """All slots have come to rest for want of jobs, before they were to rest for want of work for so many."""
    here = Stepped(2)
    here.submit(1, 2, callers=2)
    wait_until(lambda: len(here.began) == 2)
    here.end(1, 2)
    wait_until(lambda: here.pool.threads.resting == 2)
    here.pool.rest(1)
    here.submit(3, callers=1)
    here.end(3)
    wait_until(lambda: here.pool.is_idle)
    here.pool.stop()
    assert here.pool.join(WAIT_TIMEOUT)
