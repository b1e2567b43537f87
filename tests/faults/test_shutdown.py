"""How a worker stops: at the first signal, at the second, and during failures."""

from __future__ import annotations

import signal
import time
from typing import Any

import psycopg
import pytest

from django_graphile_worker.worker.shutdown import FORCED_RELEASE_TIMEOUT
from tests.faults.processes import Fleet, Wait, WorkerProcess, pause
from tests.faults.proxy import Proxy
from tests.faults.world import World


def test_first_signal__lets_running_jobs_finish_and_leaves_nothing_locked(world: World, fleet: Fleet) -> None:
    """The Node.js worker leaves the rows of such jobs locked for four hours."""
    worker = fleet.start("-j", "2")
    running = [world.add("until", {"word": "go"}) for _ in range(2)]
    world.wait_for("start", 2)
    waiting = world.add("quick")
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    world.continue_jobs("go")
    assert worker.wait() == 0
    assert [job.id for job in world.jobs()] == [waiting]
    assert world.job(waiting).attempts == 0
    assert {run.job_id for run in world.executions() if run.outcome == "end"} == set(running)
    world.check_nothing_is_held()
    world.check()
    assert "Traceback" not in worker.output()


def test_real_interpreter__ends_cleanly_under_load(world: World, fleet: Fleet) -> None:
    """A process that is not forked, up to the end of the interpreter."""
    worker = fleet.start("-j", "4", is_forked=False)
    world.add_many(300, payload={"seconds": 0.005})
    world.wait_for("end", 50)
    assert worker.stop() == 0
    world.check_nothing_is_held()
    world.check()
    assert all(job.attempts == 0 for job in world.jobs())
    assert "Traceback" not in worker.output()
    assert "Fatal" not in worker.output()


def test_prefetched_jobs__are_returned_with_their_attempt(world: World, fleet: Fleet, wait_until: Wait) -> None:
    """Short jobs make the worker prefetch. Then two long jobs occupy both slots, and the other jobs wait."""
    worker = fleet.start("-j", "2")
    with world.in_one_transaction():
        world.add_many(2000, "quiet")
        world.add_many(2, "until", {"word": "go"})
        world.add_many(50)
    wait_until(lambda: world.count_events("start") == 2)
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    # A slot that becomes free before that would run one of them.
    wait_until(lambda: sum(job.locked_by is not None for job in world.jobs()) == 2)
    world.continue_jobs("go")
    assert worker.wait() == 0
    world.check_nothing_is_held()
    world.check()
    assert [job.attempts for job in world.jobs()] == [0] * 50


def test_heartbeat__continues_while_the_worker_drains(world: World, fleet: Fleet, wait_until: Wait) -> None:
    """No other worker recovers a job that runs longer than the lease during a graceful stop."""
    settings = {"HEARTBEAT_INTERVAL": 0.2, "WORKER_TIMEOUT": 20.0}
    stopping = fleet.start(settings=settings)
    job_id = world.add("until", {"word": "go"})
    world.wait_for("start")
    fleet.start(settings=settings)
    stopping.signal(signal.SIGTERM)
    stopping.wait_for("is stopping")
    for _ in range(3):
        before = _last_beat(world, stopping)
        wait_until(lambda: _last_beat(world, stopping) > before)  # noqa: B023
    assert world.count_events("start") == 1
    assert world.worker_id_of(job_id) in stopping.worker_ids()
    world.continue_jobs("go")
    assert stopping.wait() == 0
    assert world.count() == 0
    world.check()


def _last_beat(world: World, worker: WorkerProcess) -> Any:
    beat = "select last_heartbeat_at from {schema}._private_workers where id = %s"
    return world.value(beat, worker.worker_ids()[-1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: str(number.name))
def test_second_signal__stops_at_once_with_its_own_exit_code(
    world: World, fleet: Fleet, number: signal.Signals
) -> None:
    worker = fleet.start()
    job_id = world.add("never_ends")
    world.wait_for("start")
    worker.signal(number)
    worker.wait_for("is stopping")
    worker.signal(number)
    assert worker.wait() == 128 + number
    job = world.job(job_id)
    assert (job.locked_by, job.attempts) == (None, 0), "it was returned without costing an attempt"


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_sigquit__stops_at_once_and_returns_running_jobs(world: World, fleet: Fleet, processes: int) -> None:
    worker = fleet.start("-j", "1", "--grace-period", "600", "--processes", str(processes))
    jobs = [world.add("never_ends", max_attempts=1) for _ in range(processes)]
    world.wait_for("start", processes)
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == 128 + signal.SIGQUIT
    for job_id in jobs:
        job = world.job(job_id)
        assert (job.locked_by, job.attempts) == (None, 0), "it was returned without costing an attempt"
    world.check_nothing_is_held()


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_sigusr1__writes_the_stacks_of_all_jobs_and_stops_nothing(world: World, fleet: Fleet, processes: int) -> None:
    worker = fleet.start("-j", "2", "--grace-period", "0", "--processes", str(processes))
    tasks = ("until", "endless_coroutine")
    jobs = [world.add(task, {"word": "go"}) for task in tasks]
    world.wait_for("start", 2)
    worker.wait_for(rf"(?s)(started on default.*){{{processes}}}")
    worker.signal(signal.SIGUSR1)
    for task in tasks:
        worker.wait_for(rf"File .*tasks\.py., line \d+, in {task}")
    assert all(world.job(job_id).locked_by for job_id in jobs), "they still run"
    assert worker.stop() in (0, 128 + signal.SIGTERM)
    assert sorted(run.job_id for run in world.executions()) == jobs


@pytest.mark.chaos
def test_sigusr1__many_times_to_a_busy_process_stops_nothing(world: World, fleet: Fleet, wait_until: Wait) -> None:
    """A thread may free a frame at any moment: reading a stack without the interpreter's lock kills the process."""
    worker = fleet.start("-j", "4")
    world.add_many(4, "recurses_until", {"word": "go"})
    world.wait_for("start", 4)

    written = 0

    # Each dump is long, so only what is new is read.
    with worker.log.open(errors="replace") as log:

        def has_written_a_hundred_times() -> bool:
            nonlocal written
            worker.signal(signal.SIGUSR1)
            written += log.read().count("Stacks of process")
            return written >= 100 or not worker.is_alive

        wait_until(has_written_a_hundred_times)
    assert worker.is_alive
    world.continue_jobs("go")
    world.wait_until_empty()
    assert worker.stop() == 0
    assert len(world.executions()) == 4


def test_row_that_cannot_be_deleted__does_not_keep_the_process_from_ending(world: World, fleet: Fleet) -> None:
    """A trigger of the site refuses the delete. The worker tries again, logs it, and ends."""
    job_id = world.add("quick")
    world.query(
        """create function {schema}.refuse() returns trigger language plpgsql as
        $$ begin raise exception 'this row stays'; end $$;
        create trigger refuse before delete on {schema}._private_jobs
        for each row execute function {schema}.refuse()"""
    )
    try:
        worker = fleet.start()
        worker.wait_for("releaser failed, .*this row stays")
        assert worker.stop(timeout=20) == 128 + signal.SIGTERM
        assert worker.has_written(
            rf"stops without the results of the jobs {job_id}, which the database refuses to store"
        )
        assert worker.has_written("worker .* stopped: SIGTERM")
    finally:
        world.query("drop function {schema}.refuse() cascade")


# The seconds that a stop gives the database for results and for counts.
SOON = {"worker.shutdown.FORCED_RELEASE_TIMEOUT": 1.0, "worker.shutdown.LAST_RECORD_TIMEOUT": 1.0}


def test_second_signal__does_not_wait_for_an_unreachable_database(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    worker = proxied_fleet.start("--no-prepared-statements", constants=SOON)
    world.add("never_ends")
    world.wait_for("start")
    proxy.blackhole("*")
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 128 + signal.SIGTERM


@pytest.mark.chaos
def test_second_signal__gives_the_database_seconds_to_store_what_was_returned(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    job_id = world.add("never_ends")
    signalled, starts = 0.0, 0
    # On a busy machine the pause may take longer than the worker has.
    while starts == 0 or (time.monotonic() - signalled > FORCED_RELEASE_TIMEOUT and starts < 3):
        starts += 1
        worker = proxied_fleet.start("--no-prepared-statements")
        world.wait_for("start", starts)
        rule = proxy.on("return", "hold", part="releaser")
        worker.signal(signal.SIGTERM)
        worker.wait_for("is stopping")
        signalled = time.monotonic()
        worker.signal(signal.SIGTERM)
        world.wait_until(rule.fired.is_set)
        pause(2.5)
        is_alive = worker.is_alive
        rule.release()
        code = worker.wait()
    # It waits for the answer. The server would also get the statement if the worker had ended.
    assert is_alive
    assert code == 128 + signal.SIGTERM
    assert (world.job(job_id).locked_by, world.job(job_id).attempts) == (None, 0)
    left = set(world.workers()) & set(worker.worker_ids())
    assert left == set(), "only a worker that has returned its jobs leaves the register"


def test_helpers_abort__is_set_at_the_first_signal(world: World, fleet: Fleet) -> None:
    worker = fleet.start("--grace-period", "600")
    world.add("until_aborted")
    world.wait_for("start")
    # Long before the end of the grace period.
    assert worker.stop() == 0
    assert world.count_events("aborted") == 1
    assert world.count() == 0


def test_task_that_asks_for_a_retry_at_the_stop__keeps_its_attempt(world: World, fleet: Fleet) -> None:
    """A batch keeps its unfinished items."""
    worker = fleet.start("-j", "2", "--grace-period", "600")
    world.add("retries_at_stop")
    world.add("retries_unfinished_items_at_stop", [1, 2, 3], max_attempts=1)
    world.wait_for("start", 2)
    assert worker.stop() == 0
    for job in world.jobs():
        assert (job.locked_by, job.attempts, job.last_error, job.is_available) == (None, 0, None, True)
    payloads = world.query("select payload::text from {schema}._private_jobs order by id")
    assert payloads == [("{}",), ("[2,3]",)]
    world.check_nothing_is_held()
    assert worker.count_in_output(r"retries_(unfinished_items_)?at_stop #\d+ interrupted") == 2


def test_coroutine__is_cancelled_after_the_grace_period_and_keeps_its_attempt(world: World, fleet: Fleet) -> None:
    worker = fleet.start("--grace-period", "0.3")
    job_id = world.add("endless_coroutine")
    world.wait_for("start")
    assert worker.stop() == 0
    assert world.count_events("cancelled") == 1
    job = world.job(job_id)
    assert (job.locked_by, job.attempts, job.last_error) == (None, 0, None)
    world.check_nothing_is_held()
    assert worker.has_written(r"endless_coroutine #\d+ interrupted")


def test_job_that_ignores_the_stop__is_returned_without_costing_an_attempt(world: World, fleet: Fleet) -> None:
    worker = fleet.start("-j", "2", "--grace-period", "0.3")
    tasks = ("never_ends", "uncancellable_coroutine")
    jobs = [world.add(task, max_attempts=1) for task in tasks]
    world.wait_for("start", 2)
    assert worker.stop() == 0
    assert [(job.id, job.attempts, job.is_available) for job in world.jobs()] == [(job_id, 0, True) for job_id in jobs]
    world.check_nothing_is_held()
    assert all(worker.has_written(rf"{task} #\d+ interrupted") for task in tasks)


@pytest.mark.chaos
@pytest.mark.parametrize("task", ["never_ends", "uncancellable_coroutine"])
def test_job_that_ignores_the_stop__starts_in_another_worker_only_after_its_process_has_ended(
    world: World, fleet: Fleet, task: str, wait_until: Wait
) -> None:
    worker = fleet.start("--grace-period", "3")
    world.add(task)
    world.wait_for("start")
    fleet.start("--poll-interval", "0.02")
    worker.signal(signal.SIGTERM)
    wait_until(lambda: world.count_events("start") == 2 or not worker.is_alive)
    wait_until(lambda: not worker.is_alive)
    world.record_death(worker)
    world.wait_for("start", 2)
    first, second = world.executions()
    assert first.ended_at is not None
    # A thread cannot be stopped, so the process returns the job immediately before it ends.
    assert (first.ended_at - second.started_at).total_seconds() < 2.5


def test_job_that_ignores_the_stop__is_returned_after_everything_else(world: World, fleet: Fleet) -> None:
    """Here the worker waits until it can write its last counts."""
    worker = fleet.start("-j", "1", "--grace-period", "0.5")
    world.add("quick")
    world.wait_until_empty()
    job_id = world.add("never_ends")
    world.wait_for("start", 2)
    table = f'"{world.schema}"._private_statistics_pending'
    waiting = "select from pg_locks where not granted and relation = %s::regclass"
    with psycopg.connect(world.url) as other:
        other.execute(f"lock table {table}".encode())
        worker.signal(signal.SIGTERM)
        world.wait_until(lambda: other.execute(waiting, [table]).fetchone() is not None)
        assert world.job(job_id).locked_by is not None, "another worker would run it beside this one"
    assert worker.wait() == 0
    assert world.job(job_id).attempts == 0
    world.check_nothing_is_held()


def test_result__is_stored_although_the_connection_breaks_during_shutdown(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    worker = proxied_fleet.start("--no-prepared-statements")
    world.add("until", {"word": "go"})
    world.wait_for("start")
    rule = proxy.on("complete", "cut before", times=3)
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    world.continue_jobs("go")
    assert worker.wait() == 0
    assert rule.fired.is_set()
    assert (world.count(), world.count_events("start")) == (0, 1)
    world.check_nothing_is_held()


@pytest.mark.parametrize("tag", ["worker_tables", "register-worker"])
def test_signal_during_the_start__ends_the_worker_cleanly(
    world: World, proxied_fleet: Fleet, proxy: Proxy, wait_until: Wait, tag: str
) -> None:
    world.add("quick")
    rule = proxy.on(tag, "hold")
    worker = proxied_fleet.start("--no-prepared-statements", is_ready=False)
    wait_until(rule.fired.is_set)
    worker.signal(signal.SIGTERM)
    rule.release()
    assert worker.wait() == 0
    world.check_nothing_is_held()
    world.check()


@pytest.mark.parametrize("tag", ["claim", "complete", "beat", "release-queues"])
def test_signal_during_a_statement__leaves_nothing_locked(
    world: World, proxied_fleet: Fleet, proxy: Proxy, wait_until: Wait, tag: str
) -> None:
    """A signal may arrive between a statement and its answer. The worker processes the answer nevertheless."""
    worker = proxied_fleet.start("--no-prepared-statements")
    rule = proxy.on(tag, "hold")
    world.add("quick", queue_name="q")
    wait_until(rule.fired.is_set)
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    rule.release()
    assert worker.wait() == 0
    world.check_nothing_is_held()
    world.check()
    assert all(job.attempts == 0 for job in world.jobs())


def test_signal_while_the_database_is_unreachable__ends_an_idle_worker(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    worker = proxied_fleet.start("--no-prepared-statements")
    proxy.refuse()
    worker.wait_for("failed, next try in")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_signal_while_the_database_is_unreachable__keeps_results_until_it_is_reachable(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    worker = proxied_fleet.start("--no-prepared-statements")
    world.add("until", {"word": "go"})
    world.wait_for("start")
    proxy.refuse()
    worker.wait_for("failed, next try in")
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    world.continue_jobs("go")
    world.wait_for("end")
    worker.wait_for("releaser failed, next try in")
    assert worker.is_alive
    proxy.accept()
    assert worker.wait() == 0
    assert (world.count(), world.count_events("start")) == (0, 1)


def test_signal_while_the_database_stays_unreachable__ends_after_the_grace_period(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    worker = proxied_fleet.start("--no-prepared-statements", "--grace-period", "1", constants=SOON)
    job_id = world.add("until", {"word": "go"})
    world.wait_for("start")
    proxy.refuse()
    worker.wait_for("failed, next try in")
    world.continue_jobs("go")
    world.wait_for("end")
    worker.wait_for("releaser failed, next try in")
    worker.signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 128 + signal.SIGTERM
    assert world.job(job_id).locked_by is not None, "its lease ends it"


# A process that waits for the thread of a pool never ends; otherwise it ends within a few seconds.
ENDS = 30.0


def test_thread_of_a_pool__does_not_keep_the_process_alive_after_a_second_signal(world: World, fleet: Fleet) -> None:
    worker = fleet.start("--grace-period", "600", is_forked=False)
    world.add("waits_for_a_pool_thread")
    world.wait_for("start")
    worker.signal(signal.SIGTERM)
    worker.wait_for("is stopping")
    worker.signal(signal.SIGTERM)
    assert worker.wait(timeout=ENDS) == 128 + signal.SIGTERM


def test_thread_of_a_pool__does_not_keep_the_process_alive_after_its_job_has_ended(world: World, fleet: Fleet) -> None:
    worker = fleet.start(is_forked=False)
    world.add("leaves_a_pool_thread")
    world.wait_for("end")
    assert worker.stop(timeout=ENDS) == 0
    assert world.count() == 0


def test_thread_of_a_pool_and_an_exit_handler__do_not_keep_the_process_alive(world: World, fleet: Fleet) -> None:
    """The jobs are returned, and the exit handlers are called: for example, one that sends reports."""
    worker = fleet.start("-j", "2", "--grace-period", "0.3", is_forked=False)
    # Exit handlers are called in reverse order.
    jobs = [
        world.add("waits_for_a_pool_thread", {"at_exit": ["wait", "write"]}, max_attempts=1),
        world.add("waits_for_an_asyncio_thread", max_attempts=1),
    ]
    world.wait_for("start", 2)
    assert worker.stop(timeout=ENDS) == 0
    assert worker.count_in_output(r"waits_for_an?_\w+_thread #\d+ interrupted") == 2
    assert worker.has_written("stopped: SIGTERM")
    assert worker.count_in_output("written at exit") == 1, "the buffered output is written, too"
    assert [(job.id, job.attempts) for job in world.jobs()] == [(job_id, 0) for job_id in jobs]
    world.check_nothing_is_held()
