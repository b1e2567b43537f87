"""``--max-jobs``, ``--max-memory`` and ``--max-age``: processes that are replaced before they reach a limit."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import psutil
import pytest

from django_graphile_worker.worker.process import recycling
from tests.faults.processes import Fleet, Wait, is_alive
from tests.faults.world import World


def ran_once(world: World) -> None:
    """Check that each job ran once, and that its attempt was not cut off."""
    world.check()
    runs = world.executions()
    assert Counter(run.job_id for run in runs) == Counter(world.job_ids)
    assert {(run.attempt, run.outcome) for run in runs} == {(1, "end")}


def test_task_that_leaks__never_exceeds_the_limit_and_loses_no_job(world: World, fleet: Fleet) -> None:
    # The first process tells what one needs without jobs.
    base = fleet.start("--max-memory", "10000", is_forked=False)
    world.wait_until(lambda: len(base.children()) == 1)
    needed = base.children()[0].memory_info().rss / 1_048_576
    assert base.stop() == 0
    limit = int(needed) + 100
    supervisor = fleet.start("--max-memory", str(limit), "-j", "2")
    world.add_many(250, "leaks", {"seconds": 0.02})
    world.wait_until_empty()
    assert supervisor.stop() == 0
    ran_once(world)
    assert max(int(event.note) for event in world.events("memory")) <= limit * 1.1
    pids = {event.pid for event in world.events("memory")}
    assert len(pids) >= 3
    assert supervisor.count_in_output(rf"Worker process \d+ uses \d+ of at most {limit} MB; replacing it") >= 2
    assert "ended with exit code" not in supervisor.output()
    world.check_nothing_is_held()


def test_process_near_its_limit__works_until_another_is_ready_and_lets_its_jobs_end(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    """No job is cut off, although it takes longer than the grace period."""
    supervisor = fleet.start("--max-jobs", "40", "-j", "2", "--grace-period", "0.1")
    world.add("until", {"word": "go"})
    world.wait_for("start")
    (old,) = supervisor.children()
    world.add_many(36)
    wait_until(lambda: len(supervisor.children()) == 2)
    (new,) = {*supervisor.children()} - {old}
    new.suspend()
    # It cannot become ready, and the old process works on, but not beyond its limit.
    world.add_many(20)
    world.wait_for("start", 40)
    wait_until(
        lambda: world.query("select id from {schema}._private_workers where metadata ->> 'is_stopping' = 'true'")
    )
    assert supervisor.has_written(rf"Worker process {old.pid} has run [23]\d of at most 40 jobs; replacing it")
    assert {event.pid for event in world.events("start")} == {old.pid}
    assert world.count_events("start") <= 42, "forty, and the two that ran"
    new.resume()
    wait_until(lambda: world.count() == 1)
    assert is_alive(old)
    world.continue_jobs("go")
    wait_until(lambda: supervisor.children() == [new])
    assert supervisor.stop() == 0
    ran_once(world)
    assert "ended with exit code" not in supervisor.output()
    assert world.query("select id from {schema}._private_events where kind = 'process_replaced'") == []


def test_process_that_is_to_be_replaced__is_replaced_also_when_it_or_the_other_dies(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    supervisor = fleet.start(
        "--max-jobs", "100", "-j", "2", constants={"worker.process.supervisor.LONGEST_BACKOFF": 0.2}
    )
    world.add_many(95)
    (old,) = supervisor.children()
    wait_until(lambda: len(supervisor.children()) == 2)
    (killed,) = {*supervisor.children()} - {old}
    killed.kill()
    supervisor.wait_for(rf"Worker process {killed.pid} ended with exit code -9; replacing it")
    wait_until(lambda: {*supervisor.children()} - {old, killed})
    with contextlib.suppress(psutil.NoSuchProcess):
        # It may have ended already, for the other.
        old.kill()
    world.add_many(5)
    world.wait_until_empty()
    wait_until(lambda: len(supervisor.children()) == 1)
    assert supervisor.stop() == 0
    world.check()


def test_old_process__is_replaced(world: World, fleet: Fleet) -> None:
    supervisor = fleet.start("--max-age", "5", "--processes", "2", is_ready=False)
    supervisor.wait_for(r"(Worker process \d+ has run for [2-5](\.\d)? s of at most 5 s; replacing it[^$]*){2}")
    world.add_many(20)
    world.wait_until_empty()
    assert supervisor.stop() == 0
    ran_once(world)


def test_limit_below_what_a_process_needs__is_an_error_at_the_start(fleet: Fleet) -> None:
    worker = fleet.start("--max-memory", "1", is_ready=False)
    assert worker.wait() == 1
    assert worker.has_written(r"CommandError: MAX_MEMORY: a process needs \d+ MB before its first job, got 1\.")


@pytest.mark.parametrize("other", ["--once", "--reload"])
def test_limit__is_refused_where_no_process_is_replaced(fleet: Fleet, other: str) -> None:
    worker = fleet.start("--max-age", "60", other, is_ready=False)
    assert worker.wait() == 1
    assert worker.has_written(f"CommandError: --max-age cannot be used with {other}: no process is replaced then.")


def test_memory__is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recycling.memory() == pytest.approx(psutil.Process().memory_info().rss / 1_048_576, rel=0.05)
    # As on macOS, which tells only the largest so far.
    monkeypatch.setattr(recycling, "_STATM", Path("/nowhere"))
    assert recycling.memory() >= psutil.Process().memory_info().rss / 1_048_576 * 0.95
