"""Named queues: one job at a time in the whole fleet, in order, without waiting for polls."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from django_graphile_worker.sql import claims, recovery
from tests.faults.processes import Fleet, Wait, pause
from tests.faults.proxy import Proxy
from tests.faults.world import World


def test_queues__never_overlap_and_run_in_order_across_three_workers(world: World, fleet: Fleet) -> None:
    for _ in range(3):
        fleet.start("-j", "4")
    # Until more than one worker has run jobs.
    while len({run.pid for run in world.executions() if run.queue_name}) < 2:
        with world.in_one_transaction():
            world.add_many(300, "quiet")
            for number in range(180):
                world.add("quick", {"seconds": 0.002}, queue_name=f"q{number % 6}")
            world.add_many(60)
        world.wait_until_empty()
    world.check()
    for name in {f"q{number}" for number in range(6)}:
        started = [run.job_id for run in world.executions() if run.queue_name == name]
        assert started == sorted(started), f"{name} ran out of order"


def test_one_queue__is_not_limited_by_the_poll_interval(world: World, fleet: Fleet) -> None:
    """The Node.js worker runs one job of a queue per poll interval."""
    fleet.start("--poll-interval", "2")
    world.add_many(200, queue_name="q")
    world.wait_until_empty()
    runs = world.executions()
    seconds = (runs[-1].started_at - runs[0].started_at).total_seconds()
    assert seconds < 200 * 2 / 10, f"200 jobs of a queue took {seconds} s"
    world.check()
    assert [run.job_id for run in runs] == world.job_ids


def test_one_queue__moves_between_two_workers_without_polling(world: World, fleet: Fleet) -> None:
    for _ in range(2):
        fleet.start("--poll-interval", "30")
    world.add_many(60, payload={"seconds": 0.01}, queue_name="q")
    world.wait_until_empty()
    started = [run.started_at for run in world.executions()]
    longest = max((later - earlier).total_seconds() for earlier, later in pairwise(started))
    # A worker that listens also polls, every ten seconds.
    assert longest < 7, "no worker was notified that the queue was free"
    world.check()


def test_long_job__returns_the_rest_of_its_work_unit_and_keeps_its_queue(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    with world.in_one_transaction():
        world.add_many(50, queue_name="q")
        long_job = world.add("until", {"word": "go"}, queue_name="q")
        rest = world.add_many(5, queue_name="q")
    first = fleet.start("-j", "1", "--poll-interval", "600", "--no-listen")
    world.wait_for("start", 51)
    wait_until(lambda: world.locked() == 1)
    assert all(world.job(job_id).attempts == 0 for job_id in rest)
    fleet.start()
    assert world.value("select split_part(locked_by, '/', 1) from {schema}._private_job_queues") in first.worker_ids()
    world.continue_jobs("go")
    world.wait_until_empty()
    ended = [run.job_id for run in world.executions()]
    assert ended[-6:] == [long_job, *rest]
    world.check()


def test_failure__releases_the_queue(world: World, fleet: Fleet) -> None:
    fleet.start("--poll-interval", "30")
    world.add("failing", {"delay": 0.2}, queue_name="q")
    world.add("quick", queue_name="q")
    world.wait_until_empty()
    assert world.count_events("failed") == 1
    world.check()


def test_queue_whose_release_got_no_answer__is_not_released_again_after_its_next_claim(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    """The answer to the release is lost, and the worker has claimed the queue again when it repeats the release."""
    proxied_fleet.start("--no-prepared-statements").wait_for("is listening")
    rule, again = proxy.on("release-queues", "cut after"), proxy.on("release-queues", "hold")
    with world.in_one_transaction():
        world.add("quick", queue_name="q")
        world.add_many(3, "until", {"word": "go"}, queue_name="q")
    world.wait_until(rule.fired.is_set)
    world.wait_for("start", 2)
    world.wait_until(again.fired.is_set)
    again.release()
    fleet.start("--poll-interval", "0.05")
    world.wait_until(lambda: world.locked() <= 1 or world.count_events("start") > 2)
    # The rest of the work unit is returned, and the other worker polls often.
    pause(0.3)
    assert world.count_events("start") == 2
    world.continue_jobs("go")
    world.wait_until_empty()
    world.check()


def test_jobs_whose_return_got_no_answer__are_not_returned_again_after_their_next_claim(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    """The answer to the return is lost, and the worker has claimed the jobs again when it repeats the return."""
    proxied_fleet.start("--no-prepared-statements", "-j", "2", settings={"STATEMENT_TIMEOUT": 1.0})
    rule = proxy.on("return", "blackhole after", part="releaser")
    with world.in_one_transaction():
        world.add_many(1500, "quiet")
        world.add_many(2, "until", {"word": "first"})
        world.add_many(10, "until", {"word": "second"})
    world.wait_until(rule.fired.is_set)
    # The slots are free, the jobs are free, and the releaser waits for an answer that never comes.
    world.continue_jobs("first")
    # The same worker claims some of them again before it knows that they were returned.
    world.wait_for("start", 4)
    fleet.start("-j", "10", "--poll-interval", "0.05")
    world.wait_for("start", 12)
    world.wait_until(lambda: proxy.seen["return"] >= 2)
    pause(0.3)
    world.continue_jobs("second")
    world.wait_until_empty()
    world.check()


def test_list_that_was_replaced_while_it_was_prefetched__runs_after_it_was_returned(world: World, fleet: Fleet) -> None:
    """The claimed job kept its items when its key went to the new job, so it has to run.

    A job that was removed meanwhile does not run.
    """
    worker = fleet.start("-j", "1", constants={"worker.fetching.fetcher.WAITING_TIMEOUT": 600})
    with world.in_one_transaction():
        world.add_many(1500, "quiet")
        world.add("until", {"word": "go"})
        first = world.add("records_items", [1, 2, 3], job_key="a list")
        removed = world.add("records_items", [5], job_key="removed")
    world.wait_for("start")
    world.wait_until(lambda: None not in (world.job(first).locked_by, world.job(removed).locked_by))
    second = world.add("records_items", [4], job_key="a list")
    assert second != first
    world.query("select {schema}.remove_job('removed')")
    world.job_ids.remove(removed)
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    world.continue_jobs("go")
    assert worker.wait() == 0
    fleet.start()
    world.wait_until_empty()
    assert sorted(event.note for event in world.events("item")) == ["1", "2", "3", "4"]
    world.check()


def test_recovery_in_parts__releases_a_queue_with_its_last_job(world: World) -> None:
    """If the queue were released before, a later job of it could start first."""
    jobs = world.add_many(30, queue_name="q")
    with psycopg.connect(world.url, autocommit=True) as connection:
        held = claim(world, connection, "django-worker-dead/1", max_per_queue=30)
        assert held == jobs
        for _ in range(3):
            assert world.value("select locked_by from {schema}._private_job_queues") is not None
            recovery.recover_claims(connection.cursor(), ["django-worker-dead"], schema=world.schema, limit=11)
    assert world.value("select locked_by from {schema}._private_job_queues") is None
    assert world.locked() == 0


def test_free_queue_behind_thousands_of_locked_queues__is_found_without_a_poll(world: World, fleet: Fleet) -> None:
    """A claim steps over a limited number of queues and reports that; the next claim continues behind them."""
    free = world.add("quick", queue_name="free")
    world.query(
        "insert into {schema}._private_job_queues (queue_name, locked_at, locked_by)"
        " select 'held' || n, now(), 'another' from generate_series(1, 10000) as n"
    )
    world.query(
        "insert into {schema}._private_jobs (task_id, job_queue_id, run_at)"
        " select job.task_id, queue.id, job.run_at - interval '1 hour' from {schema}._private_jobs as job"
        " cross join {schema}._private_job_queues as queue where queue.locked_by = 'another'"
    )
    # Behind all others.
    world.query(
        "with last as (insert into {schema}._private_job_queues (queue_name) values ('last') returning id)"
        f" update {{schema}}._private_jobs as job set job_queue_id = last.id from last where job.id = {free}"
    )
    fleet.start("--poll-interval", "600", "--no-listen")
    world.wait_for("end")
    assert [run.job_id for run in world.executions()] == [free]


def test_shutdown_with_queued_jobs__releases_the_queue(world: World, fleet: Fleet) -> None:
    worker = fleet.start("-j", "2")
    with world.in_one_transaction():
        world.add_many(50, queue_name="q")
        world.add("until", {"word": "go"}, queue_name="q")
        rest = world.add_many(20, queue_name="q")
    world.wait_for("start", 51)
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    world.continue_jobs("go")
    assert worker.wait() == 0
    world.check_nothing_is_held()
    assert {job.id for job in world.jobs()} == set(rest)
    assert all(job.attempts == 0 for job in world.jobs())


@pytest.fixture
def slow_choice_of_queues(world: World) -> Iterator[Any]:
    """Make claims wait between choosing a queue and locking it, unless faults.no_wait is set."""
    name, types = "_private_look_at_queues", "{schema}._private_claim_terms, {schema}._private_place, int[], int[], int"
    world.query(f"alter function {{schema}}.{name}({types}) rename to without_waiting")
    world.query(
        f"create function {{schema}}.{name}({types},"
        """ out candidates {schema}._private_candidate[], out end_run_at timestamptz, out end_id bigint,
            out is_blocked boolean)
        language plpgsql as $$
        begin
            select looked.* into candidates, end_run_at, end_id, is_blocked
            from {schema}.without_waiting($1, $2, $3, $4, $5) as looked;
            if current_setting('faults.no_wait', true) is distinct from 'on' then
                perform pg_advisory_xact_lock_shared(4711);
            end if;
        end $$"""
    )
    with psycopg.connect(world.url, autocommit=True) as holder:
        holder.execute("select pg_advisory_lock(4711)")
        yield holder
    world.query(f"drop function {{schema}}.{name}({types})")
    world.query(f"alter function {{schema}}.without_waiting({types}) rename to {name}")


def test_queue_that_another_claim_has_just_locked__is_not_claimed(world: World, slow_choice_of_queues: Any) -> None:
    """The queue is free when the claim chooses it, and locked when the claim locks it."""
    first, second = world.add_many(2, queue_name="q")
    with (
        psycopg.connect(world.url, autocommit=True) as slow,
        psycopg.connect(world.url, autocommit=True) as quick,
        ThreadPoolExecutor() as threads,
    ):
        quick.execute("set faults.no_wait = on")
        late = threads.submit(claim, world, slow, "slow")
        world.wait_until(lambda: world.value("select exists (select from pg_locks where objid = 4711 and not granted)"))
        try:
            assert claim(world, quick, "quick") == [first]
        finally:
            slow_choice_of_queues.execute("select pg_advisory_unlock(4711)")
        assert late.result() == []
    assert world.job(second).locked_by is None


def claim(world: World, connection: psycopg.Connection[Any], token: str, *, max_per_queue: int = 1) -> list[int]:
    task_ids = [world.value("select id from {schema}._private_tasks where identifier = 'quick'")]
    claimed = claims.claim_jobs(
        connection.cursor(binary=True),
        schema=world.schema,
        token=token,
        task_ids=task_ids,
        max_jobs=max(5, max_per_queue),
        max_per_queue=max_per_queue,
    )
    return [job.id for job in claimed.claims]
