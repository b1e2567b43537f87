"""Processes that jobs fork do not become workers."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.faults.processes import Fleet, Wait, WorkerProcess, is_alive
from tests.faults.world import World


def _children(worker: WorkerProcess) -> list[psutil.Process]:
    return [child for child in psutil.Process(worker.pid).children(recursive=True) if is_alive(child)]


@pytest.mark.parametrize(
    ("task", "payload"),
    [
        ("forks_and_returns", {}),
        ("forks_and_returns", {"how": "exit"}),
        ("forks_and_returns", {"how": "error"}),
        ("forks_and_returns_atomically", {}),
        ("forks_and_awaits", {}),
        ("forks_in_a_synchronous_part", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else value.get("how", "returns"),
)
def test_forked_process_that_does_not_end_itself__never_becomes_a_worker(
    world: World, fleet: Fleet, wait_until: Wait, task: str, payload: dict[str, str]
) -> None:
    worker = fleet.start("-j", "2")
    world.add_many(4, task, payload)
    world.add_many(40, "quick")
    world.wait_for("forked", 4)
    world.wait_until_empty()
    wait_until(lambda: not _children(worker))
    assert {event.pid for event in world.events()} == {worker.pid}, "no job ran in a process that a job has made"
    assert world.count_events("start") == world.count_events("end") == 40
    assert worker.count_in_output("forked by a job of process") == 4
    assert worker.stop() == 0
    assert not worker.has_written("SSL error|lost synchronization|Traceback|was no longer claimed by this worker")
    world.check_nothing_is_held()


def test_process_forked_by_a_callable_of_the_settings__claims_nothing(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    worker = fleet.start(settings={"FORBIDDEN_FLAGS": "tests.worker_app.tasks.forbidden_by_a_fork"})
    world.add_many(20, "quick")
    world.wait_until_empty()
    wait_until(lambda: not _children(worker))
    assert {event.pid for event in world.events()} == {worker.pid}
    assert worker.has_written("forked by a job of process")
    assert worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_forked_process__is_ended_by_signals(world: World, fleet: Fleet, number: signal.Signals) -> None:
    worker = fleet.start()
    world.add("has_a_child")
    world.wait_for("child")
    child = int(world.events("child")[0].note)
    os.kill(child, number)
    world.wait_for("child ended")
    # Python raises an exception at SIGINT, and multiprocessing then ends the child with the exit code 1.
    expected = "1" if number == signal.SIGINT else str(-number)
    assert world.events("child ended")[0].note == expected
    assert not worker.has_written("is stopping"), "the worker got none of it"
    assert worker.stop() == 0
