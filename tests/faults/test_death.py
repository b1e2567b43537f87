"""Workers that die: other workers run their jobs soon, and once."""

from __future__ import annotations

import random
import signal

from tests.faults.processes import Fleet, Wait, WorkerProcess
from tests.faults.proxy import Proxy
from tests.faults.world import World

# A lease that expires while the test waits. RECOVERED_WITHIN allows for the recovery and for a slow machine.
SHORT_LEASE = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 3.0}
RECOVERED_WITHIN = 40.0
# No notification says that a job of which the test has changed the time is due.
POLLING = ("--poll-interval", "0.1")


def test_kill__makes_jobs_start_in_another_worker_soon_and_in_order(world: World, fleet: Fleet) -> None:
    victim = fleet.start(settings=SHORT_LEASE)
    job_id = world.add("until", {"word": "go"}, queue_name="q")
    world.wait_for("start")
    behind = [world.add("quick", queue_name="q") for _ in range(3)]
    successor = fleet.start(settings=SHORT_LEASE)
    victim.kill()
    world.record("death", pid=victim.pid)
    world.wait_for("start", 2)
    world.continue_jobs("go")
    world.wait_until_empty()
    first, second, *later = world.executions()
    assert [run.job_id for run in (first, second, *later)] == [job_id, job_id, *behind]
    assert (first.attempt, second.attempt) == (1, 1), "the death was not the job's fault"
    assert first.ended_at is not None
    assert (second.started_at - first.ended_at).total_seconds() < RECOVERED_WITHIN
    assert successor.has_written(rf"recovered the jobs {job_id} of dead workers: {victim.worker_ids()[0]}")
    world.check()


def test_kill_loop__loses_nothing_and_runs_nothing_twice_at_once(world: World, fleet: Fleet) -> None:
    """Kill one of two workers again and again while they run jobs. The effects of atomic tasks happen once."""
    fates = random.Random(7)
    atomic = world.add_many(30, "exactly_once", {"seconds": 0.02}, max_attempts=1000)
    world.add_many(90, payload={"seconds": 0.01}, max_attempts=1000)
    for number in range(40):
        world.add("quick", {"seconds": 0.01}, queue_name=f"q{number % 4}")
    workers = [fleet.start("-j", "4", *POLLING, is_ready=False) for _ in range(2)]
    for _ in range(4):
        world.wait_for_progress(5)
        place = fates.randrange(2)
        world.kill(workers[place])
        workers[place] = fleet.start("-j", "4", *POLLING, is_ready=False)
    world.wait_until(world.is_drained)
    world.check()
    assert max((run.attempt for run in world.executions()), default=0) <= 25
    effects = [row.job_id for row in world.query("select job_id from fault_history.effect order by 1")]
    assert effects == atomic


def test_claim_that_commits_after_its_worker_died__is_recovered(world: World, fleet: Fleet, wait_until: Wait) -> None:
    """The server continues a statement whose client has died, so the claim appears after the death."""
    world.add("quick")
    world.query("begin")
    world.query("lock table {schema}._private_jobs in share mode")
    dead = fleet.start()
    blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%gw:claim%%'"
    blocked += " and datname = current_database()"
    # Inside a transaction the view does not change by itself.
    wait_until(lambda: world.query("select pg_stat_clear_snapshot()") and world.value(blocked) > 0)
    world.kill(dead)
    # The worker is removed before its claim commits.
    world.query("delete from {schema}._private_workers")
    world.query("commit")
    wait_until(lambda: world.locked() == 1)
    # As if a timeout had passed since the claim.
    world.query("update {schema}._private_jobs set locked_at = locked_at - interval '1 hour'")
    fleet.start()
    world.wait_until_empty()
    world.check()


def test_poison_job__fails_permanently_after_three_deaths_and_other_jobs_succeed(world: World, fleet: Fleet) -> None:
    poison = world.add("poison", max_attempts=1)
    neighbours = world.add_many(20, max_attempts=3)
    for death in range(3):
        worker = fleet.start("-j", "2", *POLLING, is_ready=False)
        _wait_for_death(world, worker, poison)
        world.record_death(worker)
        assert world.count_events("start") >= death + 1
    survivor = fleet.start("-j", "2", *POLLING)
    world.wait_until(lambda: _expedite(world) and (world.count(), world.locked()) == (1, 0))
    assert survivor.is_alive
    job = world.job(poison)
    assert (job.attempts, job.locked_by, job.is_available) == (1, None, False)
    assert "died" in job.last_error
    starts = [run.job_id for run in world.executions()]
    assert starts.count(poison) == 3
    assert {run.job_id for run in world.executions() if run.outcome == "end"} == set(neighbours)
    world.check()


def _wait_for_death(world: World, worker: WorkerProcess, poison: int) -> None:
    world.wait_until(lambda: _expedite(world, poison) and not worker.is_alive)


def _expedite(world: World, *job_ids: int) -> bool:
    """Make postponed jobs due: jobs that were recovered more than once wait longer than a test has time for."""
    world.query(
        "update {schema}._private_jobs set run_at = now() where run_at > now() and locked_at is null"
        " and (id = any (%s) or cardinality(%s::bigint[]) = 0)",
        list(job_ids),
        list(job_ids),
    )
    return True


def test_suspension_within_the_lease__lets_the_worker_continue_to_listen(world: World, fleet: Fleet) -> None:
    """The worker got no notification for longer than its heartbeat interval, because it was suspended itself."""
    lease = {"HEARTBEAT_INTERVAL": 0.5, "WORKER_TIMEOUT": 60.0}
    suspended = fleet.start("--poll-interval", "600", settings=lease)
    suspended.wait_for("is listening")
    suspended.signal(signal.SIGSTOP)
    world.wait_until(
        lambda: world.value("select now() - max(last_heartbeat_at) > interval '2 s' from {schema}._private_workers")
    )
    suspended.signal(signal.SIGCONT)
    world.add("quick")
    world.wait_until_empty()
    assert suspended.stop() == 0
    assert not suspended.has_written("stopped listening")


def test_suspension_past_the_lease__lets_another_worker_run_the_job_and_rejects_the_late_result(
    world: World, fleet: Fleet, wait_until: Wait
) -> None:
    """SIGSTOP is like a machine that is paused or that swaps."""
    suspended = fleet.start("-j", "2")
    job_id = world.add("until", {"word": "go"}, queue_name="q")
    world.wait_for("start")
    suspended.signal(signal.SIGSTOP)
    world.expire_lease(suspended)
    successor = fleet.start("-j", "2")
    world.wait_for("start", 2)
    assert world.worker_id_of(job_id) in successor.worker_ids()
    suspended.signal(signal.SIGCONT)
    suspended.wait_for("lost its lease and continues as")
    assert world.worker_id_of(job_id) in successor.worker_ids()
    world.continue_jobs(f"go {suspended.pid}")
    suspended.wait_for(rf"until #{job_id} was no longer claimed by this worker when it ended")
    assert world.worker_id_of(job_id) in successor.worker_ids(), "the late end changed nothing"
    world.continue_jobs("go")
    world.wait_until_empty()
    assert len(set(suspended.worker_ids())) == 2
    wait_until(lambda: suspended.worker_ids()[-1] in world.workers())
    runs = world.executions()
    assert [run.outcome for run in runs] == ["end", "end"]
    assert len(suspended.output().split("was no longer claimed by this worker")) == 2, "logged once"
    # The worker continues with its new worker id.
    world.kill(successor)
    world.add("quick")
    world.wait_until_empty()
    assert suspended.stop() == 0


def test_tasks_that_keep_the_interpreter_busy__end_no_lease(world: World, fleet: Fleet) -> None:
    """The event loop is blocked and every slot computes, for longer than the lease."""
    lease = SHORT_LEASE | {"WORKER_TIMEOUT": 4.0}
    worker = fleet.start("-j", "4", settings=lease)
    world.add("blocks_the_loop", {"seconds": 5})
    world.add_many(3, "computes", {"seconds": 5})
    world.wait_for("start", 4)
    fleet.start(settings=lease)
    world.wait_for("end", 4)
    world.wait_until_empty()
    assert world.count_events("start") == 4
    assert not worker.has_written("lost its lease")
    world.check()


def test_atomic_task_with_a_lost_claim__is_rolled_back(
    world: World, proxied_fleet: Fleet, proxy: Proxy, fleet: Fleet
) -> None:
    """The worker loses its connections while the task runs. Another worker runs the job; the first cannot commit."""
    slow = proxied_fleet.start("--no-prepared-statements", settings=SHORT_LEASE)
    job_id = world.add("exactly_once", {"word": "go"})
    world.wait_for("start")
    proxy.refuse("heartbeat")
    world.query("update {schema}._private_jobs set payload = '{}'")
    fleet.start(settings=SHORT_LEASE)
    world.wait_for("start", 2)
    world.wait_until_empty()
    world.continue_jobs("go")
    world.wait_for("end", 2)
    slow.wait_for(rf"exactly_once #{job_id} was no longer claimed by this worker")
    assert [row.job_id for row in world.query("select job_id from fault_history.effect")] == [job_id]
