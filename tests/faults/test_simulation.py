"""Many short histories, each decided by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.faults.simulation import BEAT, TIMEOUT, SimulatedWorker, Simulation
from tests.faults.world import World

SEEDS = 60
STEPS = 150
# What else may go on beside lost and late statements, deaths and pauses.
HARDSHIPS = [{}, {"sets_clock": True}, {"falls_asleep": True}, {"mixes_promises": True}]


@pytest.fixture
def connection(world: World) -> Iterator[psycopg.Connection[object]]:
    with psycopg.connect(world.url, autocommit=True, prepare_threshold=1) as connection:
        yield connection


def play(connection: psycopg.Connection[object], schema: str, seeds: range, **hardship: Any) -> None:
    for seed in seeds:
        Simulation(connection, schema, seed, **hardship).run(STEPS)


@pytest.mark.parametrize("part", range(2))
def test_simulation__no_seed_loses_a_job_or_runs_one_twice_at_once(
    connection: psycopg.Connection[object], world: World, part: int
) -> None:
    play(connection, world.schema, range(part * SEEDS // 2, (part + 1) * SEEDS // 2))


def test_outage__whoever_is_back_first_does_not_bury_the_others(
    connection: psycopg.Connection[object], world: World
) -> None:
    """Nobody could beat for longer than the timeout: that says nothing about who lives."""
    simulation = Simulation(connection, world.schema, seed=1, is_calm=True)
    first, *others = simulation.workers
    simulation.seconds += 2 * BEAT
    for worker in simulation.workers:
        worker.beat()
    simulation.seconds += 3 * TIMEOUT
    first.beat()
    first.sweep()
    simulation.seconds += BEAT / 2
    first.sweep()
    for worker in others:
        worker.beat()
    simulation.seconds += BEAT
    first.sweep()
    assert [worker.generation for worker in simulation.workers] == [0, 0, 0]
    # And when somebody is really dead, it is seen.
    for _ in range(8):
        simulation.seconds += BEAT
        first.beat()
        first.sweep()
    assert simulation.query("select id from {schema}._private_workers") == [(first.worker_id(),)]


@pytest.mark.parametrize("hardship", HARDSHIPS[1:], ids=lambda hardship: " ".join(hardship))
def test_simulation__under_a_hardship(
    connection: psycopg.Connection[object], world: World, hardship: dict[str, bool]
) -> None:
    play(connection, world.schema, range(20), **hardship)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(20))
def test_simulation__ten_thousand_seeds(connection: psycopg.Connection[object], world: World, part: int) -> None:
    play(connection, world.schema, range(10_000 + part * 500, 10_500 + part * 500))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hardship", HARDSHIPS[1:], ids=lambda hardship: " ".join(hardship))
@pytest.mark.parametrize("part", range(2))
def test_simulation__a_thousand_seeds_under_a_hardship(
    connection: psycopg.Connection[object], world: World, hardship: dict[str, bool], part: int
) -> None:
    play(connection, world.schema, range(20_000 + part * 500, 20_500 + part * 500), **hardship)


@pytest.mark.parametrize("jump", [86_400.0, 90.0, -90.0, -86_400.0], ids=["a day ahead", "ahead", "back", "a day back"])
def test_database_clock_that_is_set__buries_the_dead_and_nobody_else(
    connection: psycopg.Connection[object], world: World, jump: float
) -> None:
    """By the new clock nobody has beaten for long, or everybody only in the future."""
    simulation = Simulation(connection, world.schema, seed=1, is_calm=True)
    first, second, third = simulation.workers

    def go_on(*alive: SimulatedWorker, beats: int) -> set[str]:
        for _ in range(beats):
            simulation.seconds += BEAT
            # Whoever sweeps does so before the others had a chance to beat.
            first.sweep()
            for worker in alive:
                worker.beat()
        return {row[0] for row in simulation.query("select id from {schema}._private_workers")}

    everybody = {worker.worker_id() for worker in simulation.workers}
    assert go_on(first, second, third, beats=8) == everybody
    simulation.offset += jump
    assert go_on(first, second, third, beats=8) == everybody
    # The next time somebody dies with the old clock.
    simulation.offset += jump
    assert go_on(first, second, beats=18) == {first.worker_id(), second.worker_id()}
    assert [worker.generation for worker in simulation.workers] == [0, 0, 0]
