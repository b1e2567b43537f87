"""How long the database did not answer."""

from __future__ import annotations

import math

import psycopg
import pytest

from django_graphile_worker.worker.reporting.events import OUTAGE_CHECK_INTERVAL, Outage


class World:
    """Three parts, each with the trouble of its last step, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.troubles: list[BaseException | None] = [None] * 3
        self.over: list[float] = []
        self.outage = Outage(lambda: self.troubles, self.over.append, clock=lambda: self.now)

    def fail(self, part: int, error: BaseException) -> None:
        self.troubles[part] = error
        self.outage.begin(error)

    def check_at(self, now: float) -> float:
        self.now = now
        return self.outage.check()


@pytest.fixture
def world() -> World:
    return World()


def test_without_trouble__there_is_nothing_to_check(world: World) -> None:
    assert world.check_at(101.0) == math.inf
    assert world.over == []


def test_trouble_of_every_part__is_over_with_the_last_and_lasted_until_the_first(world: World) -> None:
    for part in range(3):
        world.fail(part, psycopg.OperationalError())
        assert world.check_at(101.0 + part) == OUTAGE_CHECK_INTERVAL
    world.troubles[1] = None
    assert world.check_at(114.0) == OUTAGE_CHECK_INTERVAL
    world.troubles[0] = None
    assert world.check_at(120.0) == OUTAGE_CHECK_INTERVAL
    world.troubles[2] = None
    assert world.check_at(124.0) == math.inf
    assert world.over == [14.0]


def test_part_that_falls_back__was_not_the_end(world: World) -> None:
    world.fail(0, psycopg.OperationalError())
    world.fail(1, psycopg.OperationalError())
    world.check_at(101.0)
    world.troubles[1] = None
    world.check_at(105.0)
    world.fail(1, psycopg.OperationalError())
    world.check_at(106.0)
    world.troubles[:] = [None] * 3
    world.check_at(130.0)
    assert world.over == [30.0]


def test_second_outage__is_reported_like_the_first(world: World) -> None:
    for _ in range(2):
        world.fail(0, psycopg.OperationalError())
        world.check_at(world.now)
        world.troubles[0] = None
        world.check_at(world.now + 7.0)
    assert world.over == [7.0, 7.0]


def test_error_of_the_site_s_own_code__is_no_outage(world: World) -> None:
    world.fail(0, SystemExit())
    assert world.check_at(101.0) == math.inf
    world.troubles[0] = None
    world.check_at(102.0)
    assert world.over == []
