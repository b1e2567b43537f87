"""All faults in random order, from a seed, for `make chaos`."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from tests.faults.cluster import Cluster
from tests.faults.processes import Fleet, WorkerProcess, pause
from tests.faults.proxy import Proxy
from tests.faults.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

KILLED_AT = ["claim", "complete", "fail", "release-queues", "complete-atomic", "beat", "register-worker"]


@pytest.mark.parametrize("mode", ["blackhole", "blackhole after"], ids=["before", "after"])
@pytest.mark.parametrize("tag", KILLED_AT)
def test_kill_during_a_statement__loses_nothing(
    world: World, proxied_fleet: Fleet, proxy: Proxy, tag: str, mode: str
) -> None:
    """Send SIGKILL before a statement reaches the server, and after it was executed and before its answer."""
    rule = proxy.on(tag, mode)
    world.add_many(5)
    world.add("failing", {"delay": 0.0})
    world.add_many(3, queue_name="q")
    world.add("exactly_once")
    victim = proxied_fleet.start("--no-prepared-statements", "-j", "2", is_ready=False)
    world.wait_until(rule.fired.is_set)
    world.kill(victim)
    proxied_fleet.start("--no-prepared-statements")
    world.wait_until_empty()
    world.check()
    effects = world.value("select count(*) from fault_history.effect")
    assert effects == 1


class RandomFaults:
    """Random faults that a seed chooses, while jobs run."""

    def __init__(self, seed: int, world: World, fleet: Fleet, cluster: Cluster) -> None:
        self.chance = random.Random(seed)
        self.world = world
        self.fleet = fleet
        self.cluster = cluster
        self.workers = [self.new_worker() for _ in range(3)]

    def new_worker(self) -> WorkerProcess:
        return self.fleet.start("-j", "4", "--poll-interval", "0.3", settings={"WORKER_TIMEOUT": 4.0})

    def kill(self) -> None:
        place = self.chance.randrange(3)
        self.world.kill(self.workers[place])
        self.workers[place] = self.new_worker()

    def stop(self) -> None:
        place = self.chance.randrange(3)
        assert self.workers[place].stop() == 0
        self.workers[place] = self.new_worker()

    def freeze(self) -> None:
        worker = self.chance.choice(self.workers)
        worker.signal(signal.SIGSTOP)
        # The longest pause is longer than the lease.
        pause(self.chance.choice([0.2, 1.0, 6.0]))
        worker.signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.world.query(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'graphile_worker %%'"
            " and random() < 0.5"
        )

    def restart(self) -> None:
        self.world.close()
        self.cluster.restart(self.chance.choice(["immediate", "fast"]))

    def feed(self) -> None:
        self.world.add_many(30, payload={"seconds": 0.02}, max_attempts=1000)
        self.world.add_many(10, payload={"seconds": 0.02}, queue_name=f"q{self.chance.randrange(3)}", max_attempts=1000)
        self.world.add("failing", {"delay": 0.1})
        self.world.add_many(3, "exactly_once", {"seconds": 0.05}, max_attempts=1000)

    def play(self, turns: int) -> None:
        faults: list[Callable[[], None]] = [self.kill, self.stop, self.freeze, self.terminate, self.restart]
        for _ in range(turns):
            self.feed()
            pause(self.chance.random() * 0.5)
            self.chance.choice(faults)()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_faults__lose_nothing(cluster: Cluster, cluster_world: World, cluster_fleet: Fleet, seed: int) -> None:
    world = cluster_world
    faults = RandomFaults(seed, world, cluster_fleet, cluster)
    faults.play(turns=15)
    world.wait_until(world.is_drained, timeout=120)
    world.check()
    once = world.query("select job_id from fault_history.effect group by 1 having count(*) > 1")
    assert once == []
    # A killed worker that had no jobs may be registered until the next sweep. Nobody sweeps after the stop.
    world.wait_until(lambda: len(world.workers()) == 3)
    assert [worker.stop() for worker in faults.workers] == [0, 0, 0]
    assert world.workers() == []


@pytest.mark.parametrize("seed", range(3))
def test_long_kill_loop__loses_nothing(world: World, fleet: Fleet, seed: int) -> None:
    """Kill one of four workers again and again while they run two thousand jobs."""
    chance = random.Random(seed)
    world.add_many(1500, payload={"seconds": 0.005}, max_attempts=1000)
    for number in range(10):
        world.add_many(50, payload={"seconds": 0.002}, queue_name=f"q{number}", max_attempts=1000)
    workers = [fleet.start("-j", "4", is_ready=False) for _ in range(4)]
    for _ in range(30):
        pause(0.15)
        place = chance.randrange(4)
        world.kill(workers[place])
        workers[place] = fleet.start("-j", "4", is_ready=False)
    world.wait_until(world.is_drained, timeout=120)
    world.check()
