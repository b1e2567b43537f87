"""Jobs of one queue in order, also when threads meet at the worst moment: each test brings them there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import psycopg
import pytest

from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql import releases
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.fetching import claimer
from django_graphile_worker.worker.outcomes import Interrupted, Succeeded
from django_graphile_worker.worker.parts import Parts
from django_graphile_worker.worker.work_units import WorkUnit
from tests.conftest import PATIENCE
from tests.support.factories import make_job
from tests.support.slot import make_claim
from tests.support.stepped_worker import Build, Gate, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]

gate = Gate()


def gated(payload: Any) -> None:
    gate(payload)


@pytest.fixture
def runner() -> Iterator[Build]:
    gate.__init__()  # type: ignore[misc]
    with stepped_workers(gated) as make:
        yield make
        gate.may_end.set()


class NoticedLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_awaited = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_awaited.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def claim_all(worker: Parts) -> list[Claim]:
    return worker.claimer(max_jobs=10, max_queues=10, stretch=10).claims


def test_rest_that_is_taken_back__leaves_the_slot_the_next_job_not_a_later_one() -> None:
    """The slot takes a job while another thread is taking them back one by one."""
    first, second, third = (make_claim(id=number) for number in (1, 2, 3))
    started: list[Claim] = []

    class Shared(list[Claim]):
        def pop(self, index: Any = -1) -> Claim:
            taken = super().pop(index)
            if not started:
                started.append(super().pop())
            return taken

    taken = WorkUnit(Shared([third, second, first]), HeldQueue(7, "w/1"), 0.0).take_back()
    assert started == [first]
    assert taken == [third, second]


@pytest.mark.parametrize("occasion", ["patience", "shutdown"])
def test_queue__is_not_let_go_while_the_rest_of_its_stretch_is_on_its_way_back(
    runner: Build, wait_until: Wait, occasion: str
) -> None:
    """The job ends, and the slot finds nothing left, just when the rest was taken and not yet handed over."""
    job_ids = [make_job("gated", queue_name="q") for _ in range(4)]
    stepped, other = runner.runner(concurrency=1, grace_period=0.0), runner(concurrency=1)
    worker = stepped.parts
    lock = worker.slots.taking_back = cast(Any, NoticedLock())
    is_let_go = threading.Event()

    def let_go(queue: HeldQueue) -> None:
        worker.releaser.put(queue)
        is_let_go.set()

    worker.slots._on_queue_done = let_go
    worker.releaser.start()
    worker.fetcher._pace._seconds = 0.033
    worker.fetcher.step()
    assert gate.has_begun.acquire(timeout=PATIENCE)
    return_jobs, seen = worker.releaser.return_jobs, []

    def return_late(outcomes: Sequence[Interrupted], queues: Sequence[HeldQueue]) -> None:
        gate.may_end.set()
        wait_until(lambda: lock.is_awaited.is_set() or is_let_go.is_set())
        wait_until(lambda: worker.releaser.wait_until_empty(0.1))
        seen.append([claim.id for claim in claim_all(other)])
        return_jobs(outcomes, queues)

    worker.releaser.return_jobs = return_late  # type: ignore[method-assign]
    if occasion == "shutdown":
        stepped.shutdown("test")
    else:
        worker.fetcher.give_all_back()
        worker.fetcher.step()
        wait_until(is_let_go.is_set)
        wait_until(lambda: worker.releaser.wait_until_empty(0.1))
        worker.releaser.stop()
    # Nobody could claim the last job before the two that came back.
    assert seen == [[]]
    assert [claim.id for claim in claim_all(other)] == job_ids[1:]


def test_queue__is_not_let_go_by_a_look_for_lost_claims_that_saw_its_last_job_end(
    runner: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the releaser, whose business that is, would let it go again under the next job."""
    worker = runner()
    make_job("gated", queue_name="q")
    (claim,) = claim_all(worker)
    claims_of = releases.claims_of

    def and_then_it_ends(*arguments: Any, **options: Any) -> Any:
        held = claims_of(*arguments, **options)
        worker.releaser.put(Succeeded(claim, 0.0))
        worker.releaser.step()
        return held

    monkeypatch.setattr(releases, "claims_of", and_then_it_ends)
    worker.claimer.return_lost()
    assert not Job.objects.exists()
    assert JobQueue.objects.get().locked_by == worker.worker_id


def test_queue_of_a_lost_claim__is_not_let_go_before_all_its_jobs_are_back(
    runner: Build, monkeypatch: pytest.MonkeyPatch, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    """A transaction of the site has the first job, so it cannot be given back yet; nobody else would do it later."""
    monkeypatch.setattr(claimer, "LOST_CLAIM_INTERVAL", 0.0)
    worker, other, site = runner(), runner(), raw_connection(autocommit=False)
    job_ids = [make_job("gated", queue_name="q") for _ in range(2)]
    claim_all(worker)
    worker.claimer.in_hand.clear()
    site.execute(f'select from "{worker_schema}"._private_jobs where id = {job_ids[0]} for update')
    worker.claimer.return_lost()
    assert claim_all(other) == []
    site.rollback()
    assert [claim.id for claim in claim_all(worker)] == job_ids


def test_queue_of_a_lost_claim__is_let_go_also_where_notifications_cannot_be_sent(
    runner: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's queue of notifications is full: that must not keep the worker from claiming."""
    worker = runner()
    job_id = make_job("gated", queue_name="q")
    claim_all(worker)
    worker.claimer.in_hand.clear()

    def fail(*arguments: Any, **options: Any) -> None:
        raise psycopg.errors.ProgramLimitExceeded("too many notifications in the NOTIFY queue")

    monkeypatch.setattr(releases, "waiting_queues", fail)
    worker.claimer.return_lost()
    assert [claim.id for claim in claim_all(worker)] == [job_id]
