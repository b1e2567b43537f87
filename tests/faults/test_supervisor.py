"""A supervisor and its worker processes: replaced, signalled, stopped."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from django_graphile_worker import probe
from django_graphile_worker.worker.process import supervisor as supervisor_module
from django_graphile_worker.worker.process.supervisor import (
    ENDS,
    HANDLES_SIGNALS,
    HEALTHY,
    MAX_RETIRED,
    STARTED,
    Child,
    Supervisor,
    send,
)
from django_graphile_worker.worker.stop_request import WorkerStop
from tests.faults.processes import WAIT_TIMEOUT, Fleet, Wait, WorkerProcess, pause
from tests.faults.proxy import Proxy
from tests.faults.world import World

# A process that died is replaced soon, also if others died before.
SOON = {"worker.process.supervisor.LONGEST_BACKOFF": 0.2}


def start(fleet: Fleet, world: World, *options: str, is_forked: bool = True, **settings: float) -> WorkerProcess:
    """Start a supervisor with two children."""
    supervisor = fleet.start(
        "--processes", "2", *options, constants=SOON, settings=settings, is_forked=is_forked, is_ready=False
    )
    world.wait_until(lambda: len(world.workers()) == 2)
    return supervisor


def test_supervisor__replaces_a_child_that_was_killed_and_passes_signals_on(
    world: World, fleet: Fleet, tmp_path: Path, wait_until: Wait
) -> None:
    health = str(tmp_path / "health")
    # Not forked: the children are spawned from the command line.
    supervisor = start(fleet, world, "--health-file", health, is_forked=False)
    # The children have reported to the supervisor that they have started.
    supervisor.wait_for("started.*\n(.*\n)*.*started")
    victim, _ = supervisor.children()
    victim.kill()
    supervisor.wait_for(rf"Worker process {victim.pid} ended with exit code -9; replacing it")
    events = "select details from {schema}._private_events where kind = 'process_replaced'"
    wait_until(lambda: world.query(events))
    ((details,),) = world.query(events)
    assert (details["exit_code"], details["former_pid"], details["cause"]) == (-9, victim.pid, "ended")
    pids = {child.pid for child in supervisor.children()}
    assert len(pids - {victim.pid}) == 2
    files = [tmp_path / "health.0", tmp_path / "health.1"]
    wait_until(lambda: {json.loads(file.read_text())["pid"] for file in files} == pids)
    wait_until(lambda: probe.main(["--ready", health]) == 0)
    world.add_many(4, "until", {"word": "go"})
    world.wait_for("start", 4)
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for("is stopping")
    world.continue_jobs("go")
    assert supervisor.wait() == 0
    wait_until(lambda: world.count() == 0)
    world.check()
    assert "Traceback" not in supervisor.output()


@pytest.mark.chaos
def test_child_that_fails_after_its_start__is_replaced_and_logs_the_reason(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = start(fleet, world)
    supervisor.wait_for("started.*\n(.*\n)*.*started")
    world.query("alter table {schema}._private_workers rename to gone")
    try:
        supervisor.children()[0].kill()
        supervisor.wait_for(r"ended with exit code 1 \(.+\); replacing it")
    finally:
        world.query("alter table {schema}.gone rename to _private_workers")
    wait_until(lambda: len(world.workers()) >= 2)
    assert supervisor.stop() == 0


def test_supervisor_that_is_killed__leaves_no_children(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = start(fleet, world)
    children = supervisor.children()
    supervisor.kill()
    wait_until(lambda: not any(child.is_running() for child in children))
    wait_until(lambda: world.workers() == [])
    world.check_nothing_is_held()


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


def test_child__runs_its_exit_handlers_although_the_second_signal_arrives(world: World, fleet: Fleet) -> None:
    supervisor = start(fleet, world, "--grace-period", "0.3")
    # Exit handlers are called in reverse order.
    job_id = world.add("waits_for_a_pool_thread", {"at_exit": ["wait", "tell"]})
    world.wait_for("start")
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for("exit handlers are called")
    # On a busy machine it may have ended.
    with contextlib.suppress(ProcessLookupError):
        os.kill(world.events("start")[0].pid, signal.SIGQUIT)
    assert supervisor.wait() == 0, "the signal did not kill the child, and its pool thread did not keep it alive"
    assert (world.job(job_id).locked_by, world.job(job_id).attempts) == (None, 0)


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
    supervisor = Supervisor(2, lambda request, arguments: 0, {}, worker_timeout=60.0, replaces=False)
    request = WorkerStop()
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
    supervisor = fleet.start(
        "--processes",
        "2",
        constants={"worker.process.supervisor.FAILED_START_LIMIT": 2},
        environment={"FAULT_BROKEN_CHILDREN": "1"},
        is_ready=False,
    )
    assert supervisor.wait() == 70
    # The last child is not replaced.
    assert 1 <= supervisor.output().count("replacing it") <= 3
    assert supervisor.has_written(
        r"\d\d:\d\d:\d\d Worker process \d+ ended with exit code 1; "
        "a process could not start 2 times in a row: giving up"
    )


# Each process reports its health every half second.
QUICK: dict[str, Any] = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 2.0}


def test_task_that_keeps_the_lock_of_the_interpreter__has_its_process_killed(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    """The job counts as one that kills its workers; the other jobs of the process keep their attempts."""
    supervisor = start(fleet, world, "-j", "2", **QUICK)
    neighbours = world.add_many(2, "until", {"word": "go"})
    world.wait_for("start", 2)
    with world.in_one_transaction():
        stuck = world.add("keeps_the_lock_of_the_interpreter", max_attempts=1)
        # The third death ends it.
        world.query("update {schema}._private_jobs set last_error = 'It has killed two.' where id = %s", stuck)
        world.query("insert into {schema}._private_job_recoveries (job_id, recoveries) values (%s, 2)", stuck)
    supervisor.wait_for(r"Worker process \d+ has not been healthy for 2 s: killing it")
    supervisor.wait_for("in keeps_the_lock_of_the_interpreter")
    wait_until(lambda: world.job(stuck).attempts == 1 and world.job(stuck).locked_by is None)
    assert "WorkerDiedError" in world.job(stuck).last_error
    # The lease ends when the process has been silent for too long: the jobs can be recovered before it is killed.
    wait_until(lambda: supervisor.count_in_output("replacing it") == 1)
    assert supervisor.count_in_output("killing it") == 1
    world.continue_jobs("go")
    wait_until(lambda: all(world.job(neighbour) is None for neighbour in neighbours))
    # Nor does a process that hangs keep the supervisor from ending.
    last = world.add("keeps_the_lock_of_the_interpreter")
    wait_until(lambda: last in {run.job_id for run in world.executions()})
    assert supervisor.stop() == 128 + signal.SIGTERM, "a job was not released"
    assert supervisor.count_in_output("killing it") == 2


@pytest.mark.chaos
def test_child_that_is_suspended__is_replaced(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = start(fleet, world, **QUICK)
    job = world.add("until", {"word": "go"})
    world.wait_for("start")
    first, *others = supervisor.children()
    first.suspend()
    supervisor.wait_for(rf"Worker process {first.pid} has not been healthy for 2 s: killing it")
    wait_until(lambda: first not in (children := supervisor.children()) and len(children) == 2)
    assert set(others) < set(supervisor.children())
    assert supervisor.count_in_output("killing it") == 1
    world.continue_jobs("go")
    wait_until(lambda: world.job(job) is None)
    assert supervisor.stop() == 0


@pytest.mark.chaos
def test_children_that_are_suspended_with_their_supervisor__are_not_replaced(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = start(fleet, world, "-j", "1", **QUICK)
    children = supervisor.children()
    everything = [psutil.Process(supervisor.pid), *children]
    for process in everything:
        process.suspend()
    pause(3 * QUICK["WORKER_TIMEOUT"])
    for process in everything:
        process.resume()
    jobs = world.add_many(4)
    wait_until(lambda: all(world.job(job) is None for job in jobs))
    # Longer than it would take to find them silent.
    pause(1.5 * QUICK["WORKER_TIMEOUT"])
    assert supervisor.children() == children
    assert supervisor.stop() == 0
    assert "killing it" not in supervisor.output()


@pytest.mark.chaos
def test_children_that_are_busy_or_without_a_database__are_not_replaced(
    world: World, proxied_fleet: Fleet, proxy: Proxy, wait_until: Wait
) -> None:
    supervisor = start(proxied_fleet, world, "-j", "2", **QUICK)
    children = supervisor.children()
    world.add_many(4, "computes", {"seconds": 3 * QUICK["WORKER_TIMEOUT"]})
    world.wait_for("start", 4)
    proxy.refuse()
    proxy.cut()
    pause(3 * QUICK["WORKER_TIMEOUT"])
    proxy.accept()
    world.wait_until_empty()
    assert supervisor.children() == children
    assert supervisor.stop() == 0
    assert "killing it" not in supervisor.output()


class Silence(NamedTuple):
    """What a supervisor with a clock of its own sees of a child."""

    supervisor: Supervisor
    child: Child
    reports: Connection
    now: list[float]

    def pass_time(self, *, steps: int, seconds: float) -> bool:
        """Let the time pass in steps, and return whether the child was killed."""
        for _ in range(steps):
            self.now[0] += seconds
            self.supervisor._kill_hung()
        return self.child.is_hung


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silence]:
    now = [100.0]
    supervisor = Supervisor(1, lambda request, arguments: 0, {}, worker_timeout=60.0, clock=lambda: now[0])
    (child,) = supervisor.children
    child.process = DyingProcess(alive_for=1000)  # type: ignore[assignment]
    child.has_started, reports = multiprocessing.Pipe(duplex=False)
    yield Silence(supervisor, child, reports, now)
    reports.close()
    child.has_started.close()


def test_child__is_watched_for_the_timeout_from_its_first_report_of_health_until_its_end(silence: Silence) -> None:
    send(silence.reports, STARTED)
    assert not silence.pass_time(steps=59, seconds=5.0), "it may take long to load the project"
    send(silence.reports, HEALTHY)
    assert not silence.pass_time(steps=11, seconds=5.0)
    send(silence.reports, HEALTHY)
    assert not silence.pass_time(steps=11, seconds=5.0)
    send(silence.reports, ENDS)
    assert not silence.pass_time(steps=100, seconds=5.0)


def test_child_that_hangs_at_its_start__is_killed(silence: Silence, caplog: pytest.LogCaptureFixture) -> None:
    send(silence.reports, HANDLES_SIGNALS)
    assert not silence.pass_time(steps=59, seconds=5.0)
    assert silence.pass_time(steps=1, seconds=5.0)
    assert caplog.messages == ["Worker process None has not begun to work for 5 min: killing it."]


def test_child_that_is_silent_for_the_timeout__is_killed(silence: Silence) -> None:
    send(silence.reports, HEALTHY)
    assert not silence.pass_time(steps=12, seconds=5.0)
    assert silence.pass_time(steps=1, seconds=5.0)


def test_time_in_which_the_supervisor_was_suspended__does_not_count(silence: Silence) -> None:
    send(silence.reports, HEALTHY)
    assert not silence.pass_time(steps=1, seconds=0.0)
    assert not silence.pass_time(steps=2, seconds=3600.0)


def test_process_that_cannot_be_spawned__is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    supervisor = Supervisor(1, lambda request, arguments: 0, {}, worker_timeout=60.0, clock=lambda: now[0])
    (child,) = supervisor.children
    tries: list[float] = []

    def fail(process: SpawnProcess) -> None:
        tries.append(now[0])
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(SpawnProcess, "start", fail)
    before = psutil.Process().num_fds()
    for _ in range(100):
        supervisor._attend(child)
        now[0] += 0.05
    assert (child.process, child.has_started) == (None, None)
    assert psutil.Process().num_fds() == before
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6], abs=0.11), "longer each time"
    assert caplog.messages[0] == "A worker process cannot be started: Too many open files; trying again in 200 ms."


class StoppedProcess(DyingProcess):
    """A process that notes its signals, and ends at SIGQUIT."""

    def __init__(self) -> None:
        super().__init__(alive_for=0)
        self.signals: list[int] = []
        self.exitcode = 0
        self.is_over = False

    def is_alive(self) -> bool:
        return not self.is_over and signal.SIGQUIT not in self.signals

    def terminate(self) -> None:
        self.signals.append(signal.SIGTERM)


def test_retired_process_that_was_stopped__gets_no_second_signal_until_the_stop_is_urgent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second signal would cut off its jobs."""
    monkeypatch.setattr(supervisor_module, "send_signal", lambda process, number: process.signals.append(number))
    monkeypatch.setattr(Supervisor, "_start", lambda supervisor, child: None)
    supervisor = Supervisor(1, lambda request, arguments: 0, {}, worker_timeout=60.0)
    (child,) = supervisor.children
    processes: list[Any] = []
    for number in range(MAX_RETIRED + 4):
        if number == MAX_RETIRED + 2:
            processes[3].is_over = True
            supervisor._forget_ended()
        child.process = StoppedProcess()  # type: ignore[assignment]
        processes.append(child.process)
        supervisor._retire(child)
    numbers = [len(process.signals) for process in processes]
    assert numbers == [1, 1, 1, 0, 0, 0, 0, 0], "the oldest of those that run"
    with contextlib.closing(WorkerStop()) as request:
        for _ in range(2):
            request.handle_signal(signal.SIGTERM, None)
        assert supervisor._stop(request) == 128 + signal.SIGTERM
    assert [process.signals for process in processes if not process.is_over] == [[signal.SIGTERM, signal.SIGQUIT]] * 7


@pytest.mark.parametrize(
    ("options", "database", "message"),
    [
        (("--processes", "2"), {"NAME": "nowhere"}, 'Cannot reach the database: .* database "nowhere" does not exist'),
        (("--no-wait",), {"PORT": "1", "HOST": "127.0.0.1"}, "Cannot reach the database: "),
        (("--once",), {"NAME": "nowhere"}, 'Cannot reach the database: .* database "nowhere" does not exist'),
        (
            (),
            {"OPTIONS": {"options": "-c default_transaction_read_only=on"}},
            "The database is read-only, a standby perhaps: ",
        ),
    ],
    ids=["processes", "no wait", "once", "read-only"],
)
def test_unusable_database_at_the_start__is_reported_in_one_sentence(
    fleet: Fleet, options: tuple[str, ...], database: dict[str, Any], message: str
) -> None:
    worker = fleet.start(*options, environment={"FAULT_DATABASE_OPTIONS": json.dumps(database)}, is_ready=False)
    assert worker.wait() == 1
    assert worker.count_in_output(f"CommandError: {message}") == 1
    assert "Traceback" not in worker.output()


def test_child_whose_supervisor_has_ended__ignores_the_closed_pipe() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    reader.close()
    send(writer, "started")
    writer.close()


def test_signal_while_children_start__ends_them_cleanly(world: World, fleet: Fleet, wait_until: Wait) -> None:
    supervisor = fleet.start("--processes", "2", is_ready=False)
    wait_until(lambda: len(supervisor.children()) == 2)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    world.check_nothing_is_held()
