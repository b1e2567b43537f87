"""A loop that the threads of a pool run in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.fetching.pool_loop import PoolLoop
from django_graphile_worker.worker.outcomes import Outcome, Succeeded
from django_graphile_worker.worker.pool.slot_pool import SlotPool
from django_graphile_worker.worker.work_units import WorkUnit
from tests.conftest import WAIT_TIMEOUT
from tests.support.slot import make_claim
from tests.unit.worker.pool.test_slot_pool import Calls

Wait = Callable[..., None]


class Ran(Calls):
    """The jobs that a pool has run."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def run(self, claim: Claim) -> Outcome:
        self.ids.append(claim.id)
        return Succeeded(claim, 0.0)


class Keeping(PoolLoop):
    """Keeps a job in each of its first steps, then waits."""

    name = "keeping"

    def __init__(self, pool: SlotPool, jobs: int, error: type[BaseException] | None = None) -> None:
        super().__init__(pool)
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
def pool(ran: Ran) -> Iterator[SlotPool]:
    pool = SlotPool(3, ran)
    yield pool
    pool.stop()
    assert pool.join(WAIT_TIMEOUT)


def test_goes_on_while_the_threads_run_what_they_kept(pool: SlotPool, ran: Ran, wait_until: Wait) -> None:
    loop = Keeping(pool, 20)
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


def test_that_was_stopped_before__never_starts(pool: SlotPool) -> None:
    loop = Keeping(pool, 1)
    loop.stop()
    loop.start()
    assert loop.join(WAIT_TIMEOUT)
    assert (loop.steps, loop.has_died) == (0, False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whose_turn_raises__has_died(pool: SlotPool) -> None:
    """Errors of a step are tried again; what raises here is the wait."""
    loop = Keeping(pool, 0, error=ValueError)
    loop.start()
    assert loop.join(WAIT_TIMEOUT)
    assert loop.has_died
    assert loop.closings == 1
