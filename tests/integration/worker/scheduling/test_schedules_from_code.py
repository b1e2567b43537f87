"""Tasks with an interval in the code: the schedules that workers write, fire and delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_graphile_worker import signals
from tests.conftest import RawConnection
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld

pytestmark = pytest.mark.django_db(transaction=True)

HALF_MINUTE = {"poll": 30 * SECOND}
DISABLE = "update {}.{} set is_enabled = false where name = 'poll'"


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    return ScheduleWorld(raw_connection, worker_schema, NOON)


def names(world: ScheduleWorld) -> list[str]:
    return [row[0] for row in world.execute("select name from :S._private_schedules order by name")]


def finish_jobs(world: ScheduleWorld) -> None:
    world.execute("delete from :S._private_jobs")


def test_several_workers__write_the_schedule_once_and_fire_each_tick_once(world: ScheduleWorld) -> None:
    workers = [world.worker("poll", every=HALF_MINUTE)[0] for _ in range(3)]
    for seconds in range(0, 95, 5):
        world.now = NOON + seconds * SECOND
        for scheduler in workers:
            world.settle(scheduler)
        finish_jobs(world)
    assert names(world) == ["poll"]
    assert world.row("poll")["is_from_code"] is True
    assert [run[1] for run in world.runs("poll")] == ["12:00:30", "12:01:00", "12:01:30"]


def test_while_the_last_job_is_not_over__a_tick_adds_none(world: ScheduleWorld) -> None:
    scheduler, _ = world.worker("poll", every=HALF_MINUTE)
    for seconds in (0, 30, 60, 90):
        world.now = NOON + seconds * SECOND
        world.settle(scheduler)
    assert len(world.jobs("poll")) == 1


def test_the_worker_that_starts_last__sets_the_interval(world: ScheduleWorld) -> None:
    clocks = [0.0, 0.0]
    old, _ = world.worker("poll", every=HALF_MINUTE, clock=lambda: clocks[0])
    old.fire_due()
    new, _ = world.worker("poll", every={"poll": 10 * SECOND}, clock=lambda: clocks[1])
    new.fire_due()
    # The old worker looks for its schedule again, and leaves it as it is.
    clocks[0] += 61
    old.fire_due()
    assert world.row("poll")["interval"] == "00:00:10"


def test_workers_without_it_in_their_code__do_not_fire_it(world: ScheduleWorld) -> None:
    new, _ = world.worker("poll", every=HALF_MINUTE)
    old, _ = world.worker("poll")
    world.settle(new)
    world.now = NOON + 31 * SECOND
    world.settle(old)
    assert world.jobs("poll") == []
    world.settle(new)
    assert len(world.jobs("poll")) == 1


@pytest.mark.parametrize("tasks", [("poll",), ("another",)], ids=["without interval", "without task"])
def test_what_no_worker_has_in_its_code_any_more__is_deleted(world: ScheduleWorld, tasks: tuple[str, ...]) -> None:
    new, _ = world.worker("poll", every=HALF_MINUTE)
    world.settle(new)
    old, _ = world.worker(*tasks)
    for seconds in (60, 89):
        world.now = NOON + seconds * SECOND
        world.settle(old)
    assert names(world) == ["poll"]
    world.now = NOON + 91 * SECOND
    world.settle(old)
    assert names(world) == []
    assert world.jobs() == []


def test_a_paused_schedule__stays_paused_when_workers_start(world: ScheduleWorld) -> None:
    world.settle(world.worker("poll", every=HALF_MINUTE)[0])
    world.execute("update :S._private_schedules set paused_until = '9999-12-30 23:59:59.999999+00'")
    world.now = NOON + 5 * MINUTE
    world.settle(world.worker("poll", every=HALF_MINUTE)[0])
    world.settle(world.worker("another")[0])
    assert names(world) == ["poll"]
    assert world.jobs("poll") == []


def test_a_schedule_of_a_person__keeps_its_name(world: ScheduleWorld) -> None:
    world.add("poll", cron="0 4 * * *")
    scheduler, _ = world.worker("poll", "report", every=HALF_MINUTE)
    world.settle(scheduler)
    row = world.row("poll")
    assert (row["is_from_code"], row["cron"], row["task"]) == (False, "0 4 * * *", "report")
    assert (signals.schedule_names_taken, {"names": ("poll",)}) in world.signals


@pytest.mark.parametrize("change", ["cron = '0 4 * * *', \"interval\" = null", "task = 'report'"])
def test_a_schedule_that_a_program_has_changed__is_written_again(world: ScheduleWorld, change: str) -> None:
    world.settle(world.worker("poll", "report", every=HALF_MINUTE)[0])
    world.execute(f"update :S._private_schedules set {change}")
    world.settle(world.worker("poll", "report", every=HALF_MINUTE)[0])
    row = world.row("poll")
    assert (row["task"], row["cron"], row["interval"]) == ("poll", None, "00:00:30")


@pytest.mark.parametrize("text", ["insert into {}.{} (name, task, cron) values ('poll', 'x', '@daily')", DISABLE])
def test_a_name_that_another_session_has_locked__delays_no_other_schedule(
    world: ScheduleWorld, raw_connection: Callable[..., RawConnection], worker_schema: str, text: str
) -> None:
    world.add("hand", interval="30 seconds")
    if text == DISABLE:
        world.settle(world.worker("poll", every={"poll": MINUTE})[0])
    scheduler, _ = world.worker("poll", "report", every=HALF_MINUTE)
    other = raw_connection(autocommit=False)
    other.execute(text.format(worker_schema, "_private_schedules").encode())
    world.settle(scheduler)
    world.now = NOON + 31 * SECOND
    world.settle(scheduler)
    assert len(world.jobs("hand")) == 1
    other.rollback()
    world.settle(scheduler)
    assert world.row("poll")["interval"] == "00:00:30"
