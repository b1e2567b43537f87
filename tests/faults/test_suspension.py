"""Workers that are suspended until their leases expire, and machines whose clocks stop meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.clocks import IS_POSSIBLE, ShiftedClock
from tests.faults.processes import Fleet, WorkerProcess
from tests.faults.proxy import Proxy
from tests.faults.world import World

LEASE = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 3.0}
# The worker keeps its prefetched jobs.
KEEPS_PREFETCHED = {"worker.fetching.fetcher.WAITING_TIMEOUT": 600.0}
OPTIONS = ("-j", "1", "--no-prepared-statements")


@pytest.fixture
def clock() -> Iterator[ShiftedClock]:
    with ShiftedClock.create() as clock:
        yield clock


def fill(world: World) -> tuple[int, list[int]]:
    """Add a job that runs until it may end, and twenty jobs that the same claim locks."""
    with world.in_one_transaction():
        world.add_many(1500, "quiet")
        first = world.add("until", {"word": "go"})
        rest = world.add_many(20)
    world.wait_for("start")
    world.wait_until(lambda: any(world.job(job_id).locked_by for job_id in rest))
    return first, rest


def suspend(world: World, worker: WorkerProcess) -> None:
    """Suspend a worker, and let its job end when it continues."""
    worker.signal(signal.SIGSTOP)
    world.continue_jobs("go")


def wait_until_another_worker_ran(world: World, suspended: WorkerProcess, job_ids: list[int]) -> None:
    """Wait until the lease has expired and another worker has run the jobs."""
    world.wait_until(
        lambda: (
            {run.job_id for run in world.executions() if run.outcome == "end" and run.pid != suspended.pid}
            >= set(job_ids)
        )
    )


def test_prefetched_jobs__do_not_start_after_the_lease_has_expired(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    """The first job ends when the process continues, before a statement shows that the lease is lost."""
    suspended = proxied_fleet.start(*OPTIONS, constants=KEEPS_PREFETCHED, settings=LEASE)
    first, rest = fill(world)
    suspend(world, suspended)
    other = fleet.start("-j", "4", settings=LEASE)
    wait_until_another_worker_ran(world, suspended, [first, *rest])
    check_continuation(world, proxy, suspended, other, rest)


@pytest.mark.chaos
@pytest.mark.skipif(not IS_POSSIBLE, reason="needs Linux and a C compiler")
def test_prefetched_jobs__do_not_start_after_a_suspension_that_stopped_the_clock(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet, clock: ShiftedClock
) -> None:
    """A machine is suspended to memory: by its monotonic clock no time has passed."""
    suspended = proxied_fleet.start(
        *OPTIONS, constants=KEEPS_PREFETCHED, environment=clock.environment, settings=LEASE, is_forked=False
    )
    first, rest = fill(world)
    stopped_at = time.monotonic()
    suspend(world, suspended)
    other = fleet.start("-j", "4", settings=LEASE)
    wait_until_another_worker_ran(world, suspended, [first, *rest])
    clock.suspend(seconds=int(time.monotonic() - stopped_at))
    check_continuation(world, proxy, suspended, other, rest)


def check_continuation(
    world: World, proxy: Proxy, suspended: WorkerProcess, other: WorkerProcess, job_ids: list[int]
) -> None:
    """Check that prefetched jobs are returned unrun before a heartbeat shows that the lease is lost."""

    def started() -> list[int]:
        return [run.job_id for run in world.executions() if run.pid == suspended.pid and run.job_id in job_ids]

    beat = proxy.on("beat", "hold")
    suspended.signal(signal.SIGCONT)
    world.wait_until(beat.fired.is_set)
    world.wait_until(lambda: any(run.pid == suspended.pid and run.outcome == "end" for run in world.executions()))
    world.wait_until(lambda: proxy.seen["return"] > 0)
    assert started() == []
    beat.release()
    suspended.wait_for("lost its lease and continues as")
    world.add("quick")
    world.wait_until_empty()
    assert started() == [], f"{suspended.output()}\n{other.output()}\n{world.executions()}"
    assert suspended.stop() == 0
