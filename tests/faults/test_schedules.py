"""Schedules of the database, fired by real workers: each tick once, whatever happens to the workers."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from tests.faults.cluster import Cluster
from tests.faults.processes import Fleet, pause
from tests.faults.proxy import Proxy
from tests.faults.world import World

SECOND = timedelta(seconds=1)


def add_schedule(world: World, name: str, **columns: Any) -> int:
    """Add a schedule of the task ``quick``, each second, as a program of another language would; return its id.

    Missed ticks are made up, so that no tick may be lost.
    """
    columns = {"interval": "1 second", "missed": "all", "missed_within": "1 hour", **columns}
    columns = {"name": name, "task": "quick", **columns}
    names = ", ".join(f'"{column}"' for column in columns)
    places = ", ".join(["%s"] * len(columns))
    text = f"insert into {{schema}}._private_schedules ({names}) values ({places}) returning id"
    return int(world.value(text, *columns.values()))


def runs(world: World, schedule_id: int) -> list[Any]:
    return world.query("select * from {schema}._private_schedule_runs where schedule_id = %s order by id", schedule_id)


def wait_for_runs(world: World, schedule_id: int, number: int) -> None:
    world.wait_until(lambda: len(runs(world, schedule_id)) >= number)


def check_ticks(world: World, schedule_id: int) -> None:
    """Check that every second has one run with a job of its own, and that each job ran once.

    A job that ran in a process that was killed may run again: its end may not have been stored.
    """
    found = runs(world, schedule_id)
    ticks = [run.tick for run in found]
    assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]
    assert len({run.job_id for run in found} - {None}) == len(ticks)
    killed = {event.pid for event in world.events("death")}
    starts = [event.job_id for event in world.events("start") if event.pid not in killed]
    assert sorted(starts) == sorted(set(starts))


def is_armed(world: World) -> bool:
    return bool(world.value("select bool_and(isfinite(next_at)) from {schema}._private_schedules"))


def test_a_new_schedule__fires_at_once_and_so_does_its_change(world: World, fleet: Fleet) -> None:
    worker = fleet.start(settings={"HEARTBEAT_INTERVAL": 300.0, "WORKER_TIMEOUT": 1_000.0})
    worker.wait_for("is listening")
    schedule = add_schedule(world, "often", interval="1 hour")
    world.wait_until(lambda: is_armed(world))
    world.query("update {schema}._private_schedules set interval = '1 second'")
    wait_for_runs(world, schedule, 2)
    world.query("delete from {schema}._private_schedules")
    jobs = world.value("select last_value from {schema}.jobs_id_seq1")
    add_schedule(world, "other", run_at=world.value("select now() + interval '2 seconds'"), interval=None)
    world.wait_until(lambda: world.value("select bool_and(next_at = 'infinity') from {schema}._private_schedules"))
    assert world.value("select last_value from {schema}.jobs_id_seq1") == jobs + 1, "a deleted schedule fires nothing"
    assert worker.stop() == 0


def test_without_notifications__a_change_takes_effect_long_before_the_next_heartbeat(
    world: World, fleet: Fleet
) -> None:
    settings = {"HEARTBEAT_INTERVAL": 30.0, "WORKER_TIMEOUT": 100.0}
    worker = fleet.start("--no-listen", settings=settings)
    schedule = add_schedule(world, "often")
    wait_for_runs(world, schedule, 2)
    first = runs(world, schedule)[0]
    assert (first.kind, first.added_at - first.tick < timedelta(seconds=20)) == ("on_time", True)
    check_ticks(world, schedule)
    assert worker.stop() == 0


def test_kill_while_a_tick_is_fired__neither_loses_nor_repeats_it(
    world: World, proxied_fleet: Fleet, proxy: Proxy
) -> None:
    """The server has fired the tick, and the worker gets no answer."""
    victim = proxied_fleet.start("--no-prepared-statements")
    schedule = add_schedule(world, "often")
    world.wait_until(lambda: is_armed(world))
    rule = proxy.on("fire-schedules", "blackhole after")
    world.wait_until(rule.fired.is_set)
    world.kill(victim)
    fired = len(runs(world, schedule))
    successor = proxied_fleet.start("--no-prepared-statements")
    wait_for_runs(world, schedule, fired + 2)
    check_ticks(world, schedule)
    assert successor.stop() == 0


def test_a_worker_without_cron__leaves_schedules_to_others(world: World, fleet: Fleet) -> None:
    idle = fleet.start("--no-cron")
    idle.wait_for("is listening")
    schedule = add_schedule(world, "often")
    world.query("select pg_sleep_until(created_at + interval '2 seconds') from {schema}._private_schedules")
    assert (runs(world, schedule), is_armed(world)) == ([], False)
    other = fleet.start()
    wait_for_runs(world, schedule, 2)
    check_ticks(world, schedule)
    assert [worker.stop() for worker in (idle, other)] == [0, 0]


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(3))
def test_chaos__five_workers_with_kills_restarts_and_changes_fire_each_tick_once(
    cluster: Cluster, cluster_world: World, cluster_fleet: Fleet, seed: int
) -> None:
    world, chance = cluster_world, random.Random(seed)
    schedules = [add_schedule(world, f"often {number}") for number in range(20)]
    workers = [cluster_fleet.start(settings={"WORKER_TIMEOUT": 20.0}) for _ in range(5)]
    for _ in range(12):
        pause(chance.uniform(0.1, 2.0))
        fault = chance.choice(["kill", "kill", "restart", "change"])
        if fault == "kill":
            world.kill(workers.pop(chance.randrange(5)))
            workers.append(cluster_fleet.start(settings={"WORKER_TIMEOUT": 20.0}))
        elif fault == "restart":
            world.close()
            cluster.restart(chance.choice(["immediate", "fast"]))
        else:
            world.query("update {schema}._private_schedules set description = %s", str(chance.random()))
    last = len(runs(world, schedules[0]))
    wait_for_runs(world, schedules[0], min(last + 3, 50))
    for schedule in schedules:
        ticks = [run.tick for run in runs(world, schedule)]
        assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]
    assert [worker.stop() for worker in workers] == [0] * 5
