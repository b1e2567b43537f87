"""Several processes under one: replaced, told, stopped."""

from __future__ import annotations

import signal

import psutil

from tests.faults.processes import Fleet, Wait, WorkerProcess
from tests.faults.world import World


def start(fleet: Fleet, world: World, *options: str, processes: int = 2) -> WorkerProcess:
    """A real process: its children are spawned anew from the command line."""
    supervisor = fleet.start("--processes", str(processes), *options, is_forked=False, is_ready=False)
    world.wait_until(lambda: len(world.workers()) == processes, timeout=40)
    return supervisor


def test_supervisor__replaces_a_child_that_was_killed_and_passes_signals_on(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = start(fleet, world)
    victim = supervisor.children()[0].pid
    psutil.Process(victim).kill()
    supervisor.wait_for(rf"Worker process {victim} ended with exit code -9; replacing it", timeout=30)
    wait_until(lambda: len(supervisor.children()) == 2, timeout=30)
    assert victim not in [child.pid for child in supervisor.children()]
    # The dead one's row goes by the sweep, the new one's comes by its start.
    wait_until(lambda: len(world.workers()) == 2 and "started" in supervisor.output(), timeout=30)
    world.add_many(4, "until", {"word": "go"})
    world.wait_for("start", 4)
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for("is stopping")
    world.go("go")
    assert supervisor.wait() == 0
    wait_until(lambda: world.count() == 0)
    world.check()
    assert "Traceback" not in supervisor.output()


def test_supervisor__that_is_killed_takes_its_children_along(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = start(fleet, world)
    children = supervisor.children()
    supervisor.kill()
    wait_until(lambda: not any(child.is_running() for child in children), timeout=20)
    wait_until(lambda: world.workers() == [])
    world.check_nothing_is_held()


def test_supervisor__second_signal_stops_all_at_once(world: World, fleet: Fleet) -> None:
    supervisor = start(fleet, world)
    world.add("stubborn")
    world.wait_for("start")
    supervisor.signal(signal.SIGINT)
    supervisor.wait_for("is stopping")
    supervisor.signal(signal.SIGINT)
    assert supervisor.wait(timeout=10) == 128 + signal.SIGINT
    job = world.jobs()[0]
    assert (job.locked_by, job.attempts) == (None, 0)


def test_supervisor__survives_jobs_that_kill_one_child_after_the_other(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    """Six poison jobs at the head of the queue are six quick deaths in a row, and no reason to give up."""
    world.add_many(6, "poison", max_attempts=1)
    world.query("update {schema}._private_jobs set priority = -1")
    healthy = world.add_many(10)
    supervisor = fleet.start("--processes", "1", "-j", "1", "--local-queue-size", "0", is_forked=False, is_ready=False)
    # One process is run without a supervisor: two, then.
    assert supervisor.exit_code is None or supervisor.exit_code == 77
    supervisor.kill()
    world.clean()
    world.add_many(6, "poison", max_attempts=1)
    healthy = world.add_many(10)
    supervisor = fleet.start("--processes", "2", "-j", "1", is_forked=False, is_ready=False)
    wait_until(lambda: {run.job_id for run in world.executions() if run.outcome == "end"} >= set(healthy), timeout=80)
    assert supervisor.is_alive


def test_supervisor__gives_up_on_children_that_cannot_start(fleet: Fleet, world: World) -> None:
    """The database is not there: not once, and not a thousand times a second."""
    nowhere = "postgresql://postgres@127.0.0.1:1/nowhere?connect_timeout=2"
    supervisor = fleet.start(
        "--processes",
        "2",
        environment={"DATABASE_URL": nowhere},
        settings={"PROCESSES": 2},
        is_forked=False,
        is_ready=False,
    )
    assert supervisor.wait(timeout=60) == 70
    deaths = supervisor.output().count("replacing it")
    assert 5 <= deaths <= 10
    assert supervisor.says("could not start 5 times in a row: giving up")


def test_signal_while_children_start__ends_them_cleanly(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = fleet.start("--processes", "2", is_forked=False, is_ready=False)
    wait_until(lambda: len(supervisor.children()) == 2, timeout=30)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    world.check_nothing_is_held()
