"""Each statement of the worker, cut before it is sent and after it was executed: no job is lost or runs twice."""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.faults.processes import Fleet
from tests.faults.proxy import Proxy
from tests.faults.world import World

MODES = ["cut before", "cut after"]
RUNNING_TAGS = [
    "claim",
    "complete",
    "fail",
    "still-claimed",
    "release-queues",
    "waiting-queues",
    "complete-atomic",
    "beat",
    "append-statistics",
    "fold-statistics",
    "listen",
    "proof",
    "look-at-fleet",
    "remove-dead-workers",
    "recover",
    "recover-queues",
    "wake",
    "claims-of",
    "set-up-session",
]
# Statements of the first recovery, and then of every twentieth.
CLEANUP_TAGS = ["stale-jobs", "stale-queues", "forget-ended", "prune-statistics"]
STOPPING_TAGS = ["return", "deregister-worker"]
# The longest delay before a part tries again.
SOON = {"worker.service.LAST_RETRY": 0.2}


@pytest.mark.parametrize("is_in_turn", [False, pytest.param(True, marks=pytest.mark.chaos)], ids=["all", "in turn"])
def test_running_worker__survives_a_cut_before_and_after_each_statement(
    world: World, proxied_fleet: Fleet, proxy: Proxy, is_in_turn: bool
) -> None:
    """Cut each statement of one worker, all in the same moments or each in turn, then check the whole history."""
    options = ("--no-prepared-statements", "--poll-interval", "0.2", "-j", "4")
    settings = {"WORKER_TIMEOUT": 4.0, "HEARTBEAT_INTERVAL": 0.3}
    worker = proxied_fleet.start(*options, constants=SOON, settings=settings)
    for tags in [[tag] for tag in RUNNING_TAGS] if is_in_turn else [RUNNING_TAGS]:
        for mode in MODES:
            print(f"{tags}: {mode}")  # noqa: T201 - pytest shows it with the failure
            provoke(world, proxy, tags, mode)
            assert worker.is_alive
    world.wait_until_empty()
    world.check()
    assert worker.stop() == 0
    world.check_nothing_is_held()
    # Of these faults, only a dead worker makes a job start a second time.
    runs = world.executions()
    assert max(run.attempt for run in runs) <= 2
    effects = [row.job_id for row in world.query("select job_id from fault_history.effect")]
    assert len(effects) == len(set(effects))


def test_fast_claim__survives_a_cut_before_and_after(world: World, proxied_fleet: Fleet, proxy: Proxy) -> None:
    """An idle worker claims a single job with the fast claim, a statement of its own."""
    worker = proxied_fleet.start()
    world.add("quick")
    world.wait_until_empty()
    for mode in MODES:
        rule = proxy.on("fast_claim", mode)
        world.wait_until(lambda: world.add("quick") and rule.fired.wait(0.2))  # noqa: B023 - used at once
        world.wait_until_empty()
        assert worker.is_alive
    world.check()
    assert worker.stop() == 0
    world.check_nothing_is_held()
    assert {run.attempt for run in world.executions()} == {1}


def provoke(world: World, proxy: Proxy, tags: list[str], mode: str) -> None:
    """Add jobs until the worker has sent the statements."""
    parts = {"set-up-session": "fetcher"}
    rules = [proxy.on(tag, mode, part=parts.get(tag)) for tag in tags]
    if "claims-of" in tags:
        # The statement is sent only after the answer to a claim was lost.
        proxy.on("claim", "cut after")
    if not {"listen", "set-up-session"}.isdisjoint(tags):
        proxy.cut("fetcher")
    world.wait_until(lambda: _busy(world) and all(rule.fired.wait(0.05) for rule in rules))
    # No job is there for the next cut, which could cost it another attempt.
    world.wait_until(world.is_drained)


def _busy(world: World) -> bool:
    """Add jobs with queues, failures and transactions, a dead worker, and a row that another session locks."""
    if world.count() > 20:
        return True
    world.add("quick")
    for _ in range(2):
        world.add("quick", queue_name="q")
    world.add("failing", {"delay": 0.0})
    world.add("exactly_once")
    _add_dead_worker(world)
    _hold_a_row_for_a_moment(world)
    return True


def _add_dead_worker(world: World) -> None:
    """Insert a worker that died some time ago, with claims on a job and a queue."""
    job_id = world.add("quick", queue_name="of the dead", run_at="2999-01-01")
    worker_id = f"django-worker-dead-{job_id}"
    world.query(
        "insert into {schema}._private_workers (id, last_heartbeat_at) values (%s, now() - interval '1 hour')",
        worker_id,
    )
    world.query(
        "update {schema}._private_jobs set run_at = now(), attempts = 1, locked_by = %s, locked_at = now()"
        " - interval '1 hour' where id = %s",
        worker_id,
        job_id,
    )
    world.query(
        "update {schema}._private_job_queues set locked_by = %s, locked_at = now() - interval '1 hour'"
        " where queue_name = 'of the dead' and locked_by is null",
        worker_id,
    )


def _hold_a_row_for_a_moment(world: World) -> None:
    """Lock the row of a job until it has ended, so that the releaser has to try again."""
    job_id = world.add("quick", {"seconds": 0.05})
    world.wait_until(
        lambda: world.query("select 1 from fault_history.event where kind = 'start' and job_id = %s", job_id)
    )
    with world.in_one_transaction():
        world.query("select from {schema}._private_jobs where id = %s for update", job_id)
        world.wait_until(
            lambda: world.query("select 1 from fault_history.event where kind = 'end' and job_id = %s", job_id)
        )


def test_cleanup_that_is_cut__is_repeated(world: World, proxied_fleet: Fleet, proxy: Proxy) -> None:
    rules = [proxy.on(tag, mode) for tag, mode in zip(CLEANUP_TAGS, cycle(MODES), strict=False)]
    worker = proxied_fleet.start("--no-prepared-statements", constants=SOON)
    world.wait_until(lambda: all(rule.fired.is_set() for rule in rules))
    world.wait_until(lambda: proxy.seen[CLEANUP_TAGS[-1]] == 2)
    world.add("quick")
    world.wait_until_empty()
    assert worker.stop() == 0


@pytest.mark.parametrize(
    ("tag", "mode"),
    [("worker_tables", "cut before"), ("register-tasks", "cut after"), ("register-worker", "cut after")],
)
def test_cut_while_starting__ends_the_process_and_leaves_nothing(
    world: World, proxied_fleet: Fleet, proxy: Proxy, tag: str, mode: str
) -> None:
    """The next worker starts without help."""
    world.add("quick")
    # The worker sends this statement twice. The first time, while it connects ahead of its start, it ignores errors.
    rule = proxy.on(tag, mode, times=2 if tag == "worker_tables" else 1)
    worker = proxied_fleet.start("--no-prepared-statements", "--no-wait", is_ready=False)
    assert worker.wait() == 1
    assert rule.fired.is_set()
    assert world.locked() == 0
    worker = proxied_fleet.start("--no-prepared-statements")
    world.wait_until_empty()
    world.check()
    assert worker.stop() == 0


def test_worker_that_waits_for_its_database__registers_once(world: World, proxied_fleet: Fleet, proxy: Proxy) -> None:
    """After a lost answer the worker tries again, and finds the row that it has inserted."""
    rule = proxy.on("register-worker", "cut after")
    worker = proxied_fleet.start("--no-prepared-statements")
    assert rule.fired.is_set()
    world.add("quick")
    world.wait_until_empty()
    assert world.workers() == worker.worker_ids()
    assert worker.stop() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tag", STOPPING_TAGS)
def test_cut_while_stopping__costs_no_attempt(
    world: World, proxied_fleet: Fleet, proxy: Proxy, tag: str, mode: str
) -> None:
    worker = proxied_fleet.start("--no-prepared-statements", "-j", "1", "--grace-period", "0.2")
    job_id = world.add("endless_coroutine")
    world.wait_for("start")
    rule = proxy.on(tag, mode)
    assert worker.stop() == 0
    assert rule.fired.is_set()
    job = world.job(job_id)
    assert (job.locked_by, job.attempts) == (None, 0)
