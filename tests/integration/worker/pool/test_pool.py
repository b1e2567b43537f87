"""Jobs of one queue in order, also when threads meet at the worst moment: the test brings them there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.outcomes import Interrupted
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, Gate, expect_jobs_of, stepped_workers

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
    """A lock that tells when a thread has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_awaited = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_awaited.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def claim_all(worker: DatabaseWorker) -> list[Claim]:
    return worker.claimer.claim(max_jobs=10, max_per_queue=10).claims


@pytest.mark.parametrize("occasion", ["timeout", "shutdown"])
def test_queue__is_not_released_while_the_rest_of_its_work_unit_is_on_its_way_back(
    runner: Build, wait_until: Wait, occasion: str
) -> None:
    """The job ends, and the slot finds nothing left, just when the rest was removed and not yet returned."""
    job_ids = [make_job("gated", queue_name="q") for _ in range(4)]
    stepped, other = runner.runner(concurrency=1, grace_period=0.0), runner(concurrency=1)
    worker = stepped.worker
    lock = worker.pool.removal_lock = cast(Any, NoticedLock())
    is_released = threading.Event()

    def release(queue: HeldQueue) -> None:
        worker.releaser.put(queue)
        is_released.set()

    worker.releaser.release_queue = release  # type: ignore[method-assign]
    worker.releaser.start()
    expect_jobs_of(0.033, worker)
    worker.fetcher.step()
    assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
    return_jobs, seen = worker.releaser.return_jobs, []

    def return_late(outcomes: Sequence[Interrupted], queues: Sequence[HeldQueue]) -> None:
        gate.may_end.set()
        wait_until(lambda: lock.is_awaited.is_set() or is_released.is_set())
        wait_until(lambda: worker.releaser.wait_until_empty(0.1))
        seen.append([claim.id for claim in claim_all(other)])
        return_jobs(outcomes, queues)

    worker.releaser.return_jobs = return_late  # type: ignore[method-assign]
    if occasion == "shutdown":
        stepped.shutdown("test")
    else:
        worker.fetcher.return_all_jobs()
        worker.fetcher.step()
        wait_until(is_released.is_set)
        wait_until(lambda: worker.releaser.wait_until_empty(0.1))
        worker.releaser.stop()
    # No worker could claim the last job before the two that came back.
    assert seen == [[]]
    assert [claim.id for claim in claim_all(other)] == job_ids[1:]
