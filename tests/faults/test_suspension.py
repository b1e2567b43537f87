"""Workers that are suspended past their leases, which run out by themselves; and machines whose clocks stand still."""

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
# What a worker has claimed ahead stays with it.
KEEPS_PREFETCHED = {"FAULT_WAITING_TIMEOUT": "600"}
OPTIONS = ("-j", "1", "--no-prepared-statements")


@pytest.fixture
def clock() -> Iterator[ShiftedClock]:
    with ShiftedClock.create() as clock:
        yield clock


def fill(world: World) -> tuple[int, list[int]]:
    """A job that runs for a while, and twenty more that the same claim brings."""
    with world.in_one_transaction():
        world.add_many(1500, "quiet")
        first = world.add("quick", {"seconds": 1.0})
        rest = world.add_many(20)
    world.wait_for("start")
    assert world.locked() > 1
    return first, rest


def wait_until_others_ran(world: World, suspended: WorkerProcess, job_ids: list[int]) -> None:
    """The lease runs out while we wait."""
    world.wait_until(
        lambda: (
            {run.job_id for run in world.executions() if run.outcome == "end" and run.pid != suspended.pid}
            >= set(job_ids)
        )
    )


def test_prefetched_jobs__do_not_start_after_the_lease_has_expired(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    """The first job ends when the process runs again, before the database can tell the worker."""
    suspended = proxied_fleet.start(*OPTIONS, environment=KEEPS_PREFETCHED, settings=LEASE)
    first, rest = fill(world)
    suspended.signal(signal.SIGSTOP)
    fleet.start("-j", "4", settings=LEASE)
    wait_until_others_ran(world, suspended, [first, *rest])
    check_awakening(world, proxy, suspended, rest)


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs Linux and a C compiler")
def test_prefetched_jobs__do_not_start_after_a_suspension_that_stopped_the_clock(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet, clock: ShiftedClock
) -> None:
    """A machine that is suspended to memory: by the clock of durations no time has passed."""
    environment = KEEPS_PREFETCHED | clock.environment
    suspended = proxied_fleet.start(*OPTIONS, environment=environment, settings=LEASE, is_forked=False)
    first, rest = fill(world)
    stopped_at = time.monotonic()
    suspended.signal(signal.SIGSTOP)
    fleet.start("-j", "4", settings=LEASE)
    wait_until_others_ran(world, suspended, [first, *rest])
    clock.sleep_through(seconds=int(time.monotonic() - stopped_at))
    check_awakening(world, proxy, suspended, rest)


def check_awakening(world: World, proxy: Proxy, suspended: WorkerProcess, job_ids: list[int]) -> None:
    """What was claimed ahead goes back unbegun, though no beat has told the worker that its lease is lost."""
    beat = proxy.on("beat", "hold")
    suspended.signal(signal.SIGCONT)
    world.wait_until(beat.fired.is_set)
    world.wait_until(lambda: any(run.pid == suspended.pid and run.outcome == "end" for run in world.executions()))
    world.wait_until(lambda: proxy.seen["return"] > 0)
    beat.release()
    suspended.wait_for("lost its lease and continues as")
    world.add("quick")
    world.wait_until_empty()
    assert [run.job_id for run in world.executions() if run.pid == suspended.pid and run.job_id in job_ids] == []
    assert suspended.stop() == 0
