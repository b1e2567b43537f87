"""A supervisor and its worker processes: replaced, signalled, stopped."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from django_graphile_worker import probe
from django_graphile_worker.worker.process.child import Child, _send
from django_graphile_worker.worker.process.supervisor import Supervisor
from django_graphile_worker.worker.stop_request import StopState
from tests.faults.processes import WAIT_TIMEOUT, Fleet, Wait, WorkerProcess
from tests.faults.world import World


def start(fleet: Fleet, world: World, *options: str, processes: int = 2) -> WorkerProcess:
    """Start a process that is not forked: its children are spawned from the command line."""
    supervisor = fleet.start("--processes", str(processes), *options, is_forked=False, is_ready=False)
    world.wait_until(lambda: len(world.workers()) == processes)
    return supervisor


def test_supervisor__replaces_a_child_that_was_killed_and_passes_signals_on(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = start(fleet, world)
    # The children have reported to the supervisor that they have started.
    supervisor.wait_for("started.*\n(.*\n)*.*started")
    victim = supervisor.children()[0].pid
    psutil.Process(victim).kill()
    supervisor.wait_for(rf"Worker process {victim} ended with exit code -9; replacing it")
    wait_until(lambda: len(supervisor.children()) == 2)
    assert victim not in [child.pid for child in supervisor.children()]
    # Recovery deletes the row of the dead child, and the new child inserts its row.
    wait_until(lambda: len(world.workers()) == 2 and "started" in supervisor.output())
    world.add_many(4, "until", {"word": "go"})
    world.wait_for("start", 4)
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for("is stopping")
    world.continue_jobs("go")
    assert supervisor.wait() == 0
    wait_until(lambda: world.count() == 0)
    world.check()
    assert "Traceback" not in supervisor.output()


def test_supervisor_that_is_killed__leaves_no_children(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = start(fleet, world)
    children = supervisor.children()
    supervisor.kill()
    wait_until(lambda: not any(child.is_running() for child in children))
    wait_until(lambda: world.workers() == [])
    world.check_nothing_is_held()


def test_supervisor__second_signal_stops_all_at_once(world: World, fleet: Fleet) -> None:
    supervisor = start(fleet, world)
    world.add("never_ends")
    world.wait_for("start")
    supervisor.signal(signal.SIGINT)
    supervisor.wait_for("is stopping")
    supervisor.signal(signal.SIGINT)
    assert supervisor.wait() == 128 + signal.SIGINT
    job = world.jobs()[0]
    assert (job.locked_by, job.attempts) == (None, 0)


def test_supervisor__second_signal_stops_a_child_that_has_not_handled_the_first(world: World, fleet: Fleet) -> None:
    """The system merges two equal signals if the process handles none in between."""
    supervisor = start(fleet, world, "-j", "1", "--grace-period", "600")
    world.add_many(2, "never_ends")
    world.wait_for("start", 2)
    late, other = supervisor.children()
    late.suspend()
    supervisor.signal(signal.SIGINT)
    supervisor.wait_for("is stopping")
    supervisor.signal(signal.SIGINT)
    other.wait(WAIT_TIMEOUT)
    late.resume()
    assert supervisor.wait() == 128 + signal.SIGINT
    assert [(job.locked_by, job.attempts) for job in world.jobs()] == [(None, 0)] * 2


def test_supervisor__does_not_wait_for_the_pool_thread_of_a_returned_job(world: World, fleet: Fleet) -> None:
    supervisor = start(fleet, world, "--grace-period", "0.3")
    job_id = world.add("waits_for_a_pool_thread")
    world.wait_for("start")
    assert supervisor.stop(timeout=30.0) == 0
    assert (world.job(job_id).locked_by, world.job(job_id).attempts) == (None, 0)


def test_child__runs_its_exit_handlers_although_the_second_signal_arrives(world: World, fleet: Fleet) -> None:
    supervisor = start(fleet, world, "--grace-period", "0.3")
    # Exit handlers are called in reverse order.
    world.add("waits_for_a_pool_thread", {"at_exit": ["wait", "tell"]})
    world.wait_for("start")
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for("exit handlers are called")
    # On a busy machine it may have ended.
    with contextlib.suppress(ProcessLookupError):
        os.kill(world.events("start")[0].pid, signal.SIGQUIT)
    assert supervisor.wait() == 0, "the signal did not kill the child"


@pytest.mark.parametrize(("had_started", "failed_starts"), [(True, 0), (False, 7)])
def test_child_that_died_after_its_start__is_not_a_failed_start(had_started: bool, failed_starts: int) -> None:
    """The supervisor must not give up when jobs kill one process after the other."""
    child = Child(0)
    for _ in range(7):
        child.has_started, tells_start = multiprocessing.Pipe(duplex=False)
        if had_started:
            tells_start.send("started")
        tells_start.close()
        child.note_death(now=child.started_at + 0.5)
    assert child.failed_starts == failed_starts
    assert child.quick_deaths == 7, "but each waits longer"
    assert child.start_after > child.started_at + 5


class DyingProcess:
    """A process that still counts as alive when it is checked first, and ends soon."""

    pid = None
    exitcode = 3

    def __init__(self, alive_for: int) -> None:
        self._looks = alive_for
        self.sentinel, writer = os.pipe()
        os.close(writer)

    def is_alive(self) -> bool:
        self._looks -= 1
        return self._looks >= 0


@pytest.mark.parametrize("alive_for", range(6))
def test_supervisor_that_replaces_no_child__notices_every_death(
    monkeypatch: pytest.MonkeyPatch, alive_for: int
) -> None:
    def start(supervisor: Supervisor, child: Child) -> None:
        child.process = DyingProcess(alive_for)  # type: ignore[assignment]

    monkeypatch.setattr(Supervisor, "_start", start)
    supervisor = Supervisor(2, lambda request, arguments: 0, {}, replaces=False)
    request = StopState()
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run(request)), daemon=True)
    thread.start()
    thread.join(10)
    has_ended = not thread.is_alive()
    request("the test is over")
    thread.join(60)
    request.close()
    assert has_ended
    assert codes == [1], "a child failed"


def test_supervisor__gives_up_on_children_that_cannot_start(fleet: Fleet, world: World) -> None:
    """The supervisor tries several times, with pauses, before it gives up."""
    broken = {"FAULT_BROKEN_CHILDREN": "1"}
    supervisor = fleet.start("--processes", "2", environment=broken, is_forked=False, is_ready=False)
    assert supervisor.wait() == 70
    # The last child is not replaced.
    assert 4 <= supervisor.output().count("replacing it") <= 9
    assert supervisor.has_written(
        r"\d\d:\d\d:\d\d Worker process \d+ ended with exit code 1; "
        "a process could not start 5 times in a row: giving up"
    )


def test_health_file__is_updated_by_each_process(world: World, fleet: Fleet, tmp_path: Path) -> None:
    health = str(tmp_path / "health")
    worker = fleet.start("--processes", "2", "--health-file", health, is_forked=False)
    world.wait_until(lambda: {path.name for path in tmp_path.glob("health*")} >= {"health.0", "health.1"})
    world.wait_until(lambda: probe.main(["--ready", health]) == 0)
    pids = {json.loads((tmp_path / f"health.{place}").read_text())["pid"] for place in (0, 1)}
    assert pids == {child.pid for child in worker.children()}
    assert worker.stop() == 0


@pytest.mark.parametrize("options", [(), ("--once",)], ids=["for good", "once"])
@pytest.mark.parametrize("processes", [1, 2])
def test_unreachable_database_at_the_start__is_reported_in_one_sentence_by_any_number_of_processes(
    world: World, fleet: Fleet, processes: int, options: tuple[str, ...]
) -> None:
    away = {"FAULT_DATABASE_OPTIONS": '{"NAME": "nowhere"}'}
    worker = fleet.start(
        "--processes", str(processes), *options, environment=away, is_forked=processes == 1, is_ready=False
    )
    assert worker.wait() == 1
    assert worker.count_in_output("CommandError: Expected the database to answer, got: ") == 1
    assert worker.has_written('database "nowhere" does not exist')
    assert "Traceback" not in worker.output()


@pytest.mark.parametrize("processes", [1, 2])
def test_read_only_database_at_the_start__is_reported_in_one_sentence(
    world: World, fleet: Fleet, processes: int
) -> None:
    read_only = {"FAULT_DATABASE_OPTIONS": '{"OPTIONS": {"options": "-c default_transaction_read_only=on"}}'}
    worker = fleet.start("--processes", str(processes), environment=read_only, is_forked=processes == 1, is_ready=False)
    assert worker.wait() == 1
    assert worker.count_in_output("CommandError: Expected a database that can be written to, got a read-only one") == 1
    assert "Traceback" not in worker.output()


def test_child_whose_supervisor_has_ended__ignores_the_closed_pipe() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    reader.close()
    _send(writer, "started")
    writer.close()


def test_child_that_fails_after_its_start__is_replaced_and_logs_the_reason(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = start(fleet, world)
    supervisor.wait_for("started.*\n(.*\n)*.*started")
    world.query("alter table {schema}._private_workers rename to gone")
    try:
        victim = supervisor.children()[0]
        victim.kill()
        supervisor.wait_for(r"ended with exit code 1 \(.+\); replacing it")
    finally:
        world.query("alter table {schema}.gone rename to _private_workers")
    wait_until(lambda: len(world.workers()) >= 2)
    assert supervisor.stop() == 0


def test_signal_while_children_start__ends_them_cleanly(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = fleet.start("--processes", "2", is_forked=False, is_ready=False)
    wait_until(lambda: len(supervisor.children()) == 2)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    world.check_nothing_is_held()
