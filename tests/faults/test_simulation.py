"""Many short histories, each from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.faults.simulation import BEAT, TIMEOUT, SimulatedWorker, Simulation
from tests.faults.world import World

SEEDS = 20
STEPS = 150
# Faults in addition to lost and late statements, deaths and pauses.
OTHER_FAULTS = [{"sets_clock": True}, {"suspends_machines": True}, {"mixes_settings": True}]


@pytest.fixture
def connection(world: World) -> Iterator[psycopg.Connection[object]]:
    with psycopg.connect(world.url, autocommit=True, prepare_threshold=1) as connection:
        yield connection


def play(connection: psycopg.Connection[object], schema: str, seeds: range, **fault: Any) -> None:
    for seed in seeds:
        Simulation(connection, schema, seed, **fault).run(STEPS)


def test_simulation__loses_no_job_and_runs_none_twice_at_once(
    connection: psycopg.Connection[object], world: World
) -> None:
    play(connection, world.schema, range(SEEDS))


def test_outage__makes_the_first_worker_that_reconnects_declare_no_other_dead(
    connection: psycopg.Connection[object], world: World
) -> None:
    """No worker could send a heartbeat for longer than the timeout, so their silence proves nothing."""
    simulation = Simulation(connection, world.schema, seed=1, is_calm=True)
    first, *others = simulation.workers
    simulation.seconds += 2 * BEAT
    for worker in simulation.workers:
        worker.beat()
    simulation.seconds += 3 * TIMEOUT
    first.beat()
    first.recover()
    simulation.seconds += BEAT / 2
    first.recover()
    for worker in others:
        worker.beat()
    simulation.seconds += BEAT
    first.recover()
    assert [worker.generation for worker in simulation.workers] == [0, 0, 0]
    # A worker that is really dead is declared dead.
    for _ in range(8):
        simulation.seconds += BEAT
        first.beat()
        first.recover()
    assert simulation.query("select id from {schema}._private_workers") == [(first.worker_id,)]


def simulate_outage(
    simulation: Simulation, cut_off: list[SimulatedWorker], *, begins: float, seconds: float
) -> list[int]:
    """All workers beat at their interval, retry soon after a failure, and run the recovery all the time."""
    failing: list[SimulatedWorker] = []
    for number, worker in enumerate(simulation.workers):
        worker.next_beat = number * BEAT / len(simulation.workers)
    for second in range(int(2 * TIMEOUT + seconds)):
        simulation.seconds += 1.0
        failing = cut_off if begins <= second < begins + seconds else []
        for worker in simulation.workers:
            simulation.fate_of_statement = lambda: "lost before" if worker in failing else "done"  # type: ignore[method-assign]  # noqa: B023
            if worker.is_beat_due:
                simulation._attempt(worker.beat)
            if second % 3 == 0:
                simulation._attempt(worker.recover)
    return [worker.generation for worker in simulation.workers]


@pytest.mark.parametrize("phase", [0, 4])
def test_outage_shorter_than_the_lease_by_a_heartbeat__ends_no_lease(
    connection: psycopg.Connection[object], world: World, phase: int
) -> None:
    """The outage begins at any time between two heartbeats. The first worker back sees that others are silent."""
    simulation = Simulation(connection, world.schema, seed=1, is_calm=True)
    outage = TIMEOUT - BEAT
    assert simulate_outage(simulation, simulation.workers, begins=30.0 + phase, seconds=outage) == [0, 0, 0]


@pytest.mark.parametrize("phase", [0, 6])
def test_outage_of_one_worker__leaves_it_time_to_reconnect(
    connection: psycopg.Connection[object], world: World, phase: int
) -> None:
    """Other workers watch it. It is silent for a heartbeat interval, the outage and a retry delay."""
    simulation = Simulation(connection, world.schema, seed=1, is_calm=True)
    outage = TIMEOUT - BEAT - BEAT / 5 - 1.0
    assert simulate_outage(simulation, simulation.workers[:1], begins=30.0 + phase, seconds=outage) == [0, 0, 0]
    # An outage that is longer than the lease ends it.
    assert simulate_outage(simulation, simulation.workers[:1], begins=30.0, seconds=2 * TIMEOUT) == [1, 0, 0]


@pytest.mark.parametrize("fault", OTHER_FAULTS, ids=lambda fault: " ".join(fault))
def test_simulation_with_another_fault__loses_no_job_and_runs_none_twice_at_once(
    connection: psycopg.Connection[object], world: World, fault: dict[str, bool]
) -> None:
    play(connection, world.schema, range(SEEDS // 2), **fault)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(20))
def test_simulation_of_ten_thousand_seeds__loses_no_job_and_runs_none_twice_at_once(
    connection: psycopg.Connection[object], world: World, part: int
) -> None:
    play(connection, world.schema, range(10_000 + part * 500, 10_500 + part * 500))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", OTHER_FAULTS, ids=lambda fault: " ".join(fault))
@pytest.mark.parametrize("part", range(2))
def test_simulation_of_a_thousand_seeds_with_another_fault__loses_no_job_and_runs_none_twice_at_once(
    connection: psycopg.Connection[object], world: World, fault: dict[str, bool], part: int
) -> None:
    play(connection, world.schema, range(20_000 + part * 500, 20_500 + part * 500), **fault)


@pytest.mark.parametrize("jump", [86_400.0, 90.0, -90.0, -86_400.0], ids=["a day ahead", "ahead", "back", "a day back"])
def test_database_clock_that_is_set__ends_the_leases_of_dead_workers_only(
    connection: psycopg.Connection[object], world: World, jump: float
) -> None:
    """By the new clock, all heartbeats are old, or in the future."""
    simulation = Simulation(connection, world.schema, seed=1, is_calm=True)
    first, second, third = simulation.workers

    def continue_simulation(*alive: SimulatedWorker, beats: int) -> set[str]:
        for _ in range(beats):
            simulation.seconds += BEAT
            # The recovery runs before the other workers could send a heartbeat.
            first.recover()
            for worker in alive:
                worker.beat()
        return {row[0] for row in simulation.query("select id from {schema}._private_workers")}

    all_workers = {worker.worker_id for worker in simulation.workers}
    assert continue_simulation(first, second, third, beats=8) == all_workers
    simulation.offset += jump
    assert continue_simulation(first, second, third, beats=8) == all_workers
    # The third worker dies when the clock is set again.
    simulation.offset += jump
    assert continue_simulation(first, second, beats=18) == {first.worker_id, second.worker_id}
    assert [worker.generation for worker in simulation.workers] == [0, 0, 0]
