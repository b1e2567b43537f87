"""The metrics and probes of real worker processes, while children are killed or stopped, and without the database."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.processes import Fleet, Wait, WorkerProcess
from tests.faults.proxy import Proxy
from tests.faults.world import World
from tests.support.ports import free_port
from tests.support.scrapes import Scrape, get, is_up, scrape

# The outcomes of the history.
OUTCOMES = {1: "succeeded", 2: "failed", 3: "permanently_failed", 4: "interrupted", 8: "cancelled", 9: "expired"}


@pytest.fixture
def port() -> int:
    return free_port("127.0.0.1")


def start(fleet: Fleet, port: int, *options: str, **settings: Any) -> WorkerProcess:
    return fleet.start("--metrics-port", f"127.0.0.1:{port}", *options, is_ready=False, settings=settings)


def test_metrics_of_several_processes__equal_the_history__when_one_was_killed(
    world: World, fleet: Fleet, port: int, wait_until: Wait
) -> None:
    supervisor = start(fleet, port, "--processes", "2", "-j", "2", HISTORY=3600)
    wait_until(lambda: len(world.workers()) == 2)
    world.add_many(2, "until", {"word": "go"})
    world.wait_for("start", 2)
    add_batch(world)
    wait_until(lambda: scrape(port).sum("jobs_total") == recorded(world) and world.count() == 3)
    victim = supervisor.children()[0]
    victim.kill()
    add_batch(world)
    world.continue_jobs("go")
    wait_until(lambda: world.count() == 2)
    wait_until(lambda: scrape(port).sum("jobs_total") == recorded(world))
    check_equals_history(scrape(port), world)
    assert {child.pid for child in supervisor.children()} != {victim.pid}
    # Jobs that the child lost were claimed twice.
    lost = world.value("select count(*) from {schema}._private_history where outcome = 5")
    assert scrape(port).sum("jobs_claimed_total") == recorded(world) + lost
    assert supervisor.stop() == 0


def add_batch(world: World) -> None:
    """Add jobs that succeed, fail, and one that fails for good; it stays."""
    world.add_many(200, "quiet")
    world.add_many(10, "quick", queue_name="mail")
    world.add_many(3, "failing", {"failures": 2})
    world.add("failing", {"failures": 99}, max_attempts=1)


def recorded(world: World) -> int:
    return int(world.value("select count(*) from {schema}._private_history where outcome = any (%s)", list(OUTCOMES)))


def check_equals_history(found: Scrape, world: World) -> None:
    rows = world.query("""select task_identifier, coalesce(queue_name, ''), outcome, count(*)
        from {schema}._private_history where outcome <> 5 group by 1, 2, 3""")
    assert len(rows) >= 4
    for task, queue, outcome, number in rows:
        assert found.value("jobs_total", task=task, queue=queue, outcome=OUTCOMES[outcome]) == number
    runs = found.sum("jobs_total")
    assert found.sum("job_run_seconds_count") == found.sum("job_wait_seconds_count") == runs
    assert found.sum("job_run_seconds_bucket", le="+Inf") == runs


def test_children_that_are_stopped__leave_the_supervisor_answering(
    world: World, fleet: Fleet, port: int, wait_until: Wait
) -> None:
    supervisor = start(fleet, port, "--processes", "2", WORKER_TIMEOUT=60.0)
    wait_until(lambda: len(world.workers()) == 2)
    wait_until(lambda: is_up(port))
    one, other = supervisor.children()
    one.suspend()
    world.add_many(20, "quiet")
    wait_until(lambda: world.count() == 0)
    assert scrape(port).value("workers") == 2
    other.suspend()
    wait_until(lambda: get(port, "/ready").status == 503)
    assert f"process {other.pid}: it has not reported for" in get(port, "/ready").text
    assert get(port, "/live").status == 200
    assert scrape(port).sum("jobs_total", outcome="succeeded") == 20
    one.resume()
    wait_until(lambda: is_up(port))
    other.resume()
    assert supervisor.stop() == 0


def test_database_that_does_not_answer__makes_the_worker_unready_and_keeps_it_alive(
    world: World, proxied_fleet: Fleet, proxy: Proxy, port: int, wait_until: Wait
) -> None:
    worker = start(proxied_fleet, port)
    wait_until(lambda: is_up(port))
    world.add_many(5, "quiet")
    wait_until(lambda: scrape(port).sum("jobs_total") == 5)
    proxy.refuse()
    wait_until(lambda: get(port, "/ready").status == 503)
    assert "the database does not answer" in get(port, "/ready").text
    assert get(port, "/live") == (200, "ok\n")
    # The gauges that were read a moment ago are shown for some seconds.
    wait_until(lambda: scrape(port).value("up") == 0)
    assert scrape(port).sum("jobs_total") == 5
    assert scrape(port).sum("workers") == 0
    proxy.accept()
    wait_until(lambda: is_up(port))
    wait_until(lambda: scrape(port).sum("up") == 1)
    assert worker.stop() == 0
