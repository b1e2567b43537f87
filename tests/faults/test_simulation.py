"""Many short histories, each decided by a seed."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.faults.simulation import BEAT, TIMEOUT, Simulation
from tests.faults.world import World

SEEDS = 110
STEPS = 55


@pytest.fixture
def connection(world: World) -> Iterator[psycopg.Connection[object]]:
    with psycopg.connect(world.url, autocommit=True, prepare_threshold=1) as connection:
        yield connection


def play(connection: psycopg.Connection[object], schema: str, seeds: range) -> None:
    for seed in seeds:
        Simulation(connection, schema, seed).run(STEPS)


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
    assert simulation.query("select id from {schema}._private_workers") == [(first.holder(),)]


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
def test_simulation__thousands_of_seeds(connection: psycopg.Connection[object], world: World, part: int) -> None:
    play(connection, world.schema, range(10_000 + part * 500, 10_500 + part * 500))
