"""Many schedules that are due at once, and several workers: one of them fires, the others look whether it does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from django_graphile_worker.schedules.times import MAX_TICKS
from django_graphile_worker.sql.schedules.firing import read_due
from django_graphile_worker.worker.scheduling.decisions import MAX_AT_ONCE
from django_graphile_worker.worker.scheduling.scheduler import Scheduler
from django_graphile_worker.worker.scheduling.yielding import FIRST_READ
from tests.conftest import RawConnection
from tests.support.schedule_world import MINUTE, NOON, ScheduleWorld

NUMBER = 300


class Seconds:
    """The clock of a worker."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    """Return a world in which many schedules are due."""
    world = ScheduleWorld(lambda **_: raw_connection(options="-c statement_timeout=5s"), worker_schema, NOON)
    world.execute(
        "insert into :S._private_schedules (name, task, cron)"
        f" select 'tenant ' || number, 'report', '* * * * *' from generate_series(1, {NUMBER}) as number"
    )
    world.settle(world.worker()[0])
    world.now = NOON + MINUTE
    # One plan for the statement, however many times it runs.
    world.execute("analyze :S._private_schedules")
    return world


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def number_of_jobs(world: ScheduleWorld) -> int:
    ((number, different),) = world.execute("select count(*), count(distinct flags::text) from :S._private_jobs")
    assert number == different, "none is fired twice"
    return int(number)


def first_ids(session: RawConnection, world: ScheduleWorld, number: int) -> list[int]:
    """Return the schedules that workers read first, by their statement: all are due at the same time."""
    with session.cursor() as cursor:
        return [
            each.id for each in read_due(cursor, schema=world.schema, max_schedules=number, now=world.now).schedules
        ]


def lock_first(session: RawConnection, world: ScheduleWorld, number: int) -> None:
    """Lock the schedules that workers read first."""
    session.execute(
        f'select from "{world.schema}"._private_schedules where id = any (%s) for update'.encode(),
        [first_ids(session, world, number)],
    )


def fire_next(world: ScheduleWorld, number: int) -> None:
    """Move the schedules that are first, as another worker does."""
    world.execute(
        "update :S._private_schedules set next_at = next_at + interval '1 minute' where id = any (%s)",
        first_ids(world.connection, world, number),
    )


def lose(world: ScheduleWorld, scheduler: Scheduler) -> float:
    """Run a round while another worker fires the same schedules."""
    other = world.connect()
    with other.transaction(force_rollback=True):
        lock_first(other, world, FIRST_READ)
        return scheduler.fire_due()


def test_a_worker_that_has_lost__waits_while_another_fires(world: ScheduleWorld, clock: Seconds) -> None:
    scheduler, source = world.worker(clock=clock)
    assert 0.5 < lose(world, scheduler) <= 1
    sent = len(source.statements)
    clock.now += 0.25
    assert 0.25 < scheduler.fire_due() <= 0.75, "a notification makes it look no earlier"
    assert len(source.statements) == sent
    for _ in range(3):
        fire_next(world, 50)
        clock.now += 1
        assert 0.5 < scheduler.fire_due() <= 1
    assert len(source.statements) == sent + 3, "one statement for each look"
    assert number_of_jobs(world) == 0


def test_a_worker_that_has_lost__fires_the_rest_if_the_other_dies(world: ScheduleWorld, clock: Seconds) -> None:
    scheduler, _ = world.worker(clock=clock)
    lose(world, scheduler)
    clock.now += 1
    assert world.settle(scheduler) > 50
    assert number_of_jobs(world) == NUMBER


def test_schedules_that_a_person_has_locked__delay_no_others(world: ScheduleWorld, clock: Seconds) -> None:
    scheduler, _ = world.worker(clock=clock)
    other = world.connect()
    with other.transaction(force_rollback=True):
        lock_first(other, world, NUMBER - 10)
        assert scheduler.fire_due() > 0.5
        clock.now += 1
        world.settle(scheduler)
        assert number_of_jobs(world) == 10
    clock.now += 1
    for _ in range(3):
        clock.now += 1
        world.settle(scheduler)
    assert number_of_jobs(world) == NUMBER


def test_a_long_backlog__makes_no_other_schedule_late(world: ScheduleWorld) -> None:
    seconds = itertools.count()
    world.execute("delete from :S._private_schedules")
    world.now = NOON
    world.execute(
        "insert into :S._private_schedules (name, task, interval, missed, missed_within)"
        f" select 'often ' || number, 'report', '1 second', 'all', '1 day' from generate_series(1, {FIRST_READ})"
        " as number"
    )
    world.add("on time", run_at=NOON + timedelta(hours=1))
    world.settle(world.worker()[0])
    world.now = NOON + timedelta(hours=1)
    # Each statement takes a second.
    scheduler, _ = world.worker(clock=lambda: float(next(seconds)))
    scheduler.fire_due()
    assert world.ticks("on time") == []
    scheduler.fire_due()
    assert world.ticks("on time") == ["13:00:00"]
    ((most,),) = world.execute(
        "select max(number) from (select count(*) as number from :S._private_jobs group by xmin::text) as statement"
    )
    assert most <= MAX_AT_ONCE + MAX_TICKS, "jobs of one statement"
