"""Limits under kill -9: an outside observer never sees more jobs at once, or more claims in a window, than allowed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.faults.processes import Fleet, WorkerProcess, pause
from tests.faults.world import World

SEED = int(os.environ.get("CHAOS_SEED", "1"))
LIMITED = {"FAULT_LIMITED": "1"}
# A rate of 8 in a second, with a burst of 3: at most 3 in 3/8 of a second.
WINDOWS = ((8, 1.0), (3, 3 / 8))


def start(fleet: Fleet, slots: int) -> WorkerProcess:
    return fleet.start("-j", str(slots), environment=LIMITED, settings={"WORKER_TIMEOUT": 4.0}, is_ready=False)


@pytest.fixture(autouse=True)
def observed_claims(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the server note when the row of a job is claimed, whatever the tables of limits say."""
    name = "cluster_world" if "cluster_world" in request.fixturenames else "world"
    world: World = request.getfixturevalue(name)
    world.query("create table fault_history.claimed (task_id int, account text, at timestamptz)")
    world.query(
        "create function fault_history.note_claim() returns trigger language plpgsql as $$ begin"
        " insert into fault_history.claimed values (new.task_id, new.payload ->> 'account', clock_timestamp());"
        " return null; end $$"
    )
    world.query(
        "create trigger note_claim after update on {schema}._private_jobs for each row"
        " when (new.locked_by is not null and new.locked_by is distinct from old.locked_by)"
        " execute function fault_history.note_claim()"
    )
    yield
    # Other tests use the database, too.
    world.query("drop table fault_history.claimed")
    world.query("drop function fault_history.note_claim() cascade")


def add(world: World, task: str, accounts: int, each: int, seconds: float = 0.03) -> None:
    world.job_ids += [
        row.id
        for row in world.query(
            "select ({schema}.add_job(%s, json_build_object('account', account, 'seconds', %s::float8))).id"
            " from generate_series(1, %s) as account, generate_series(1, %s) order by random()",
            task,
            seconds,
            accounts,
            each,
        )
    ]


def check(world: World) -> None:
    assert world.count_events("violation") == 0
    starts: dict[str, list[float]] = {}
    for row in world.query(
        "select account, extract(epoch from at)::float8 as at from fault_history.claimed where task_id ="
        " (select id from {schema}._private_tasks where identifier = 'rated')"
    ):
        starts.setdefault(row.account, []).append(row.at)
    for times in map(sorted, starts.values()):
        for most, window in WINDOWS:
            assert all(later - earlier >= window for earlier, later in zip(times, times[most:], strict=False))
    for table in ("limited_jobs", "limit_places"):
        assert world.value(f"select count(*) from {{schema}}._private_{table}") == 0


def test_limits__hold_over_several_processes(world: World, fleet: Fleet) -> None:
    add(world, "limited", accounts=2, each=20, seconds=0.3)
    add(world, "rated", accounts=2, each=6)
    first = start(fleet, slots=8)
    world.wait_until(lambda: world.value("select count(*) from fault_history.effect") >= 6)
    # The second worker claims its first jobs while every place is taken.
    start(fleet, slots=8)
    world.wait_until(lambda: len(world.workers()) == 2)
    world.kill(first)
    world.wait_until(lambda: world.count() == 0)
    assert world.count_events("rated") >= 12
    check(world)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_limits__hold_while_a_worker_is_killed_every_second(cluster_world: World, cluster_fleet: Fleet) -> None:
    """500 keys with a limit of 3, the slots of twenty processes with the default settings, kill -9 every second.

    Each slot has a connection, so the workers have a server of their own.
    """
    world, fleet = cluster_world, cluster_fleet
    chance = random.Random(SEED)
    add(world, "limited", accounts=500, each=12)
    add(world, "rated", accounts=5, each=60)
    workers = [start(fleet, slots=40) for _ in range(5)]
    for _ in range(40):
        pause(1.0)
        if world.count() == 0:
            break
        place = chance.randrange(len(workers))
        world.kill(workers[place])
        workers[place] = start(fleet, slots=40)
    world.wait_until(lambda: world.count() == 0, timeout=400)
    check(world)
