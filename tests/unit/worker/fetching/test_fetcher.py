"""The loop that the threads of a pool run in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from django_graphile_worker import conf
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.outcomes import Outcome, Succeeded
from django_graphile_worker.worker.pool.line import WorkUnit
from django_graphile_worker.worker.pool.pool import Pool
from tests.conftest import WAIT_TIMEOUT
from tests.support.pool_worker import Calls, worker_with
from tests.support.slot import make_claim

Wait = Callable[..., None]


class Ran(Calls):
    """The jobs that a pool has run."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def run(self, claim: Claim) -> Outcome:
        self.ids.append(claim.id)
        return Succeeded(claim, 0.0)


class Keeping(Fetcher):
    """Keeps a job in each of its first steps, then waits."""

    def __init__(self, worker: Any, jobs: int, error: type[BaseException] | None = None) -> None:
        super().__init__(worker)
        self.jobs = jobs
        self.steps = 0
        self.closings = 0
        self.error = error

    def step(self) -> float:
        self.steps += 1
        if self.steps > self.jobs:
            return math.inf
        assert self._pool.keep(WorkUnit([make_claim(id=self.steps)], None, 0.0))
        return 0.0

    def pause(self, delay: float) -> bool:
        if self.error is not None:
            raise self.error
        return super().pause(delay)

    def close(self) -> None:
        self.closings += 1


@pytest.fixture
def ran() -> Ran:
    return Ran()


@pytest.fixture
def worker(ran: Ran) -> Iterator[Any]:
    worker: Any = worker_with(ran, 3)
    worker.settings = conf.current().replace(concurrency=3, listen=False)
    worker.reports, worker.listener = Mock(), None
    worker.pool = Pool(worker)
    yield worker
    worker.pool.stop()
    assert worker.pool.join(WAIT_TIMEOUT)


def test_goes_on_while_the_threads_run_what_they_kept(worker: Any, ran: Ran, wait_until: Wait) -> None:
    loop = Keeping(worker, 20)
    loop.start()
    loop.start()
    wait_until(lambda: loop.steps == 21 and len(ran.ids) == 20)
    assert sorted(ran.ids) == list(range(1, 21))
    assert not loop.join(0)
    assert not loop.has_died
    loop.stop()
    assert loop.join(WAIT_TIMEOUT)
    assert loop.closings == 1
    assert not loop.has_died


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whose_turn_raises__has_died(worker: Any) -> None:
    """Errors of a step are tried again; what raises here is the wait."""
    loop = Keeping(worker, 0, error=ValueError)
    loop.start()
    assert loop.join(WAIT_TIMEOUT)
    assert loop.has_died
    assert loop.closings == 1


@pytest.mark.parametrize("seconds_until_next", [None, 5.0])
def test_jobs_that_the_fast_path_starts__do_not_keep_limited_jobs_waiting(
    worker: Any, seconds_until_next: float | None
) -> None:
    """One notification may have announced both. Without such jobs, the claim follows, which asks for both."""
    worker.may_claim, worker.limited, worker.fast_path = Mock(), Mock(), Mock()
    worker.fast_path.start_due_jobs.return_value = seconds_until_next
    assert Fetcher(worker)._has_started_due_jobs() is (seconds_until_next is not None)
    assert worker.limited.keeper.call.called is (seconds_until_next is not None)
