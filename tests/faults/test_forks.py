"""Processes that jobs fork do not become workers."""

from __future__ import annotations

import os
import signal

import psutil

from tests.faults.processes import Fleet, Wait, WorkerProcess, is_alive
from tests.faults.world import World


def _children(worker: WorkerProcess) -> list[psutil.Process]:
    return [child for child in psutil.Process(worker.pid).children(recursive=True) if is_alive(child)]


FORKING: list[tuple[str, dict[str, str]]] = [
    ("forks_and_returns", {}),
    ("forks_and_returns", {"how": "exit"}),
    ("forks_and_returns", {"how": "error"}),
    ("forks_and_returns_atomically", {}),
    ("forks_and_awaits", {}),
    ("forks_in_a_synchronous_part", {}),
]


def test_forked_process_that_does_not_end_itself__never_becomes_a_worker(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    worker = fleet.start("-j", "2")
    for task, payload in FORKING:
        world.add_many(2, task, payload)
    world.add_many(40, "quick")
    world.wait_for("forked", 2 * len(FORKING))
    world.wait_until_empty()
    wait_until(lambda: not _children(worker))
    assert {event.pid for event in world.events()} == {worker.pid}, "no job ran in a process that a job has made"
    assert world.count_events("start") == world.count_events("end") == 40
    assert worker.count_in_output("forked by a job of process") == 2 * len(FORKING)
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


def test_forked_process__is_ended_by_signals(world: World, fleet: Fleet) -> None:
    # Python raises an exception at SIGINT, and multiprocessing then ends the child with the exit code 1.
    codes = {number: -number for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)}
    codes[signal.SIGINT] = 1
    worker = fleet.start("-j", str(len(codes)))
    jobs = world.add_many(len(codes), "has_a_child")
    world.wait_for("child", len(codes))
    children = {event.job_id: int(event.note) for event in world.events("child")}
    for number, job_id in zip(codes, jobs, strict=True):
        os.kill(children[job_id], number)
    world.wait_for("child ended", len(codes))
    ended = {event.job_id: int(event.note) for event in world.events("child ended")}
    assert ended == dict(zip(jobs, codes.values(), strict=True))
    assert not worker.has_written("is stopping"), "the worker got none of it"
    assert worker.stop() == 0
