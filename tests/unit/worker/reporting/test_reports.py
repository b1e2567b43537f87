"""How long the database did not answer."""

from __future__ import annotations

import math
from unittest.mock import Mock

import psycopg
import pytest

from django_graphile_worker import signals
from django_graphile_worker.worker.reporting.reports import OUTAGE_CHECK_INTERVAL, Outage, WorkerReports


class World:
    """Three parts, each with the trouble of its last step, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.troubles: list[BaseException | None] = [None] * 3
        self.over: list[float] = []
        self.outage = Outage(clock=lambda: self.now)

    def fail(self, part: int, error: BaseException) -> None:
        self.troubles[part] = error
        self.outage.begin(error)

    def look_at(self, now: float) -> None:
        """Look whether the outage is over, as the worker does while there is one."""
        self.now = now
        if self.outage.is_under_way and (duration := self.outage.end(self.troubles)) is not None:
            self.over.append(duration)


@pytest.fixture
def world() -> World:
    return World()


def test_trouble_of_every_part__is_over_with_the_last_and_lasted_until_the_first(world: World) -> None:
    for part in range(3):
        world.fail(part, psycopg.OperationalError())
        world.look_at(101.0 + part)
        assert world.outage.is_under_way
    for part, now in ((1, 114.0), (0, 120.0)):
        world.troubles[part] = None
        world.look_at(now)
        assert world.outage.is_under_way
    world.troubles[2] = None
    world.look_at(124.0)
    assert not world.outage.is_under_way
    assert world.over == [14.0]


def test_part_that_falls_back__was_not_the_end(world: World) -> None:
    world.fail(0, psycopg.OperationalError())
    world.fail(1, psycopg.OperationalError())
    world.look_at(101.0)
    world.troubles[1] = None
    world.look_at(105.0)
    world.fail(1, psycopg.OperationalError())
    world.look_at(106.0)
    world.troubles[:] = [None] * 3
    world.look_at(130.0)
    assert world.over == [30.0]


def test_error_of_the_site_s_own_code__is_no_outage(world: World) -> None:
    world.fail(0, SystemExit())
    assert not world.outage.is_under_way
    world.troubles[0] = None
    world.look_at(102.0)
    assert world.over == []


def test_worker__checks_often_during_an_outage_and_reports_its_end() -> None:
    worker, error = Mock(), psycopg.OperationalError()
    events = WorkerReports(worker)
    assert events.check_outage() == math.inf
    events.database_trouble("fetcher", error, 1.0)
    worker.troubles.return_value = [error, None]
    assert events.check_outage() == OUTAGE_CHECK_INTERVAL
    worker.troubles.return_value = [None, None]
    assert events.check_outage() == math.inf
    sent = [call.args[0] for call in worker.signal_sender.send.call_args_list]
    assert sent == [signals.database_trouble, signals.database_answered]
