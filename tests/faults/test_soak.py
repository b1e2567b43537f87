"""Load and faults for long: the resources of a worker must not grow. SOAK_SECONDS makes the test longer."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import psutil
import pytest

from tests.faults.processes import Fleet, WorkerProcess
from tests.faults.world import World

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
JOBS_PER_ROUND = 200
# Allow for memory that the allocator keeps, and for the statistics of a new minute.
GROWTH_ALLOWED = 12 * 2**20

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(SECONDS * 2 + 240)]


class Resources(NamedTuple):
    memory: int
    threads: int
    files: int


def resources_of(worker: WorkerProcess) -> Resources:
    process = psutil.Process(worker.pid)
    return Resources(process.memory_info().rss, process.num_threads(), process.num_fds())


def play_round(world: World, number: int) -> None:
    """Run jobs of every kind, break some connections, and hold a snapshot in a transaction."""
    with world.in_one_transaction():
        world.query("set transaction isolation level repeatable read")
        world.add_many(JOBS_PER_ROUND, "quiet")
    world.add_many(20, queue_name=f"q{number % 7}")
    world.add_many(5, "exactly_once")
    world.add("failing", {"delay": 0.0})
    if number % 5 == 0:
        world.query(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like 'graphile_worker %%' and random() < 0.3 and datname = current_database()"
        )
    world.wait_until(lambda: world.count() == 0)


def test_soak__memory_threads_files_and_sessions_do_not_grow(world: World, fleet: Fleet) -> None:
    worker = fleet.start("-j", "4", "--no-log-success", settings={"WORKER_TIMEOUT": 60.0})
    for number in range(20):
        play_round(world, number)
    before = resources_of(worker)
    end, number = time.monotonic() + SECONDS, 20
    while time.monotonic() < end:
        play_round(world, number)
        number += 1
    after = resources_of(worker)
    jobs = f"{number * JOBS_PER_ROUND} jobs: {before} became {after}"
    assert after.memory - before.memory < GROWTH_ALLOWED, jobs
    assert after.threads <= before.threads + 1, jobs
    assert after.files <= before.files + 3, jobs
    sessions = "select count(*) from pg_stat_activity where application_name like 'graphile_worker %%'"
    sessions += " and datname = current_database()"
    assert world.value(sessions) < 10
    world.check()
    assert worker.stop() == 0
    world.check_nothing_is_held()
    assert world.value(sessions) == 0
