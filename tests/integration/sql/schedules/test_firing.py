"""Firing: what is read as due, one tick beside other sessions, and the plan of the statement."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg import sql

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.control import read_control
from django_graphile_worker.sql.schedules.firing import MAX_RUNS, Decision, Fired, TickJob, fire, read_due, run_by_hand
from django_graphile_worker.worker.scheduling.decisions import decide_schedule
from tests.conftest import RawConnection
from tests.support.buffers import MeasuringCursor
from tests.support.cron_world import CronWorld
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld


def test_reading_what_is_due__walks_the_index(shared_connection: RawConnection, worker_schema: str) -> None:
    world = ScheduleWorld(lambda **options: shared_connection, worker_schema, NOON)
    world.execute(
        "insert into :S._private_schedules (name, task, cron, is_enabled)"
        " select 'tenant ' || number, 'report', '0 4 * * *', number %% 2 = 0 from generate_series(1, 10000) as number"
    )
    world.execute(
        "update :S._private_schedules set next_at = %s::timestamptz + id * interval '1 second'"
        " where next_at = '-infinity'",
        NOON,
    )
    # Without the rows as they were before the update: until they are removed, the first read passes them in the index.
    world.execute("vacuum (analyze) :S._private_schedules")
    cursor = MeasuringCursor(shared_connection)
    due = read_due(cursor, schema=worker_schema, max_schedules=2000, now=NOON)
    assert (due.schedules, due.next_at is not None) == ((), True)
    assert cursor.buffers < 20
    due = read_due(cursor, schema=worker_schema, max_schedules=2000, unknown_tasks=["other"], now=NOON + MINUTE)
    assert (len(due.schedules), cursor.buffers < 60) == (30, True)
    control = read_control(cursor, "worker", schema=worker_schema, now=NOON)
    assert control.until_schedule == 2.0
    assert cursor.buffers < 20


def test_schedules_that_failed__are_left_out_until_they_are_changed(
    raw_connection: Callable[..., RawConnection], worker_schema: str
) -> None:
    world = ScheduleWorld(raw_connection, worker_schema, NOON)
    id_ = world.add("broken", cron="x")
    with world.connection.cursor() as cursor:
        assert read_due(cursor, schema=worker_schema, max_schedules=9, failing={id_: 0}, now=NOON).schedules == ()
        world.execute("update :S._private_schedules set cron = '* * * * *'")
        (due,) = read_due(cursor, schema=worker_schema, max_schedules=9, failing={id_: 0}, now=NOON).schedules
        assert (due.next_at, due.revision) == (None, 1)


def test_schedules_of_unknown_tasks__are_left_out_for_a_minute(
    raw_connection: Callable[..., RawConnection], worker_schema: str
) -> None:
    world = ScheduleWorld(raw_connection, worker_schema, NOON)
    world.add("foreign", cron="* * * * *")
    world.execute("update :S._private_schedules set next_at = %s", NOON)
    with world.connection.cursor() as cursor:
        for minutes, number in ((0, 0), (0.9, 0), (1, 1)):
            now = NOON + minutes * MINUTE
            due = read_due(cursor, schema=worker_schema, max_schedules=9, unknown_tasks=["report"], now=now)
            assert len(due.schedules) == number


TASK: Task[Any, Any] = Task(lambda payload: None, "report", defaults=JobDefaults())


# A statement that waits for another session fails.
NO_WAIT = "-c statement_timeout=5s"


def due_world(connect: Callable[..., RawConnection], schema: str) -> ScheduleWorld:
    """Return a world in which the schedule ``often`` is due."""
    world = ScheduleWorld(connect, schema, NOON + 30 * SECOND)
    world.add("often", cron="* * * * *", payload={"version": "old"})
    world.settle(world.worker()[0])
    world.now = NOON + MINUTE
    return world


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    return due_world(lambda **options: raw_connection(options=NO_WAIT), worker_schema)


@pytest.fixture
def other(world: ScheduleWorld) -> RawConnection:
    """Another session."""
    return world.connect()


def decisions(world: ScheduleWorld) -> list[Decision]:
    """Read what is due, and decide; nothing is locked afterwards."""
    with world.connection.cursor() as cursor:
        due = read_due(cursor, schema=world.schema, max_schedules=100, now=world.now)
    decided = [decide_schedule(each, TASK, due.now) for each in due.schedules]
    return [decision for decision in decided if decision is not None]


def fire_on(connection: RawConnection, world: ScheduleWorld, read: list[Decision]) -> dict[int | str, Fired]:
    with connection.cursor() as cursor:
        return fire(cursor, read, schema=world.schema, now=world.now)


def change(connection: RawConnection, world: ScheduleWorld, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select set_config('graphile_worker.now', %s, false)", [world.now.isoformat()])
        cursor.execute(text.replace(":S.", f'"{world.schema}".').encode())


EDIT = """update :S._private_schedules set payload = '{"version": "new"}', task = 'other' where name = 'often'"""
RETIME = "update :S._private_schedules set cron = '*/2 * * * *'"


def test_of_two_workers_at_one_tick__one_fires(world: ScheduleWorld, other: RawConnection) -> None:
    first, second = decisions(world), decisions(world)
    (fired,) = fire_on(other, world, first).values()
    assert (len(fired.job_ids), fired.skipped) == (1, 0)
    assert fire_on(world.connection, world, second) == {}
    assert world.ticks("often") == ["12:01:00"]


def test_a_schedule_that_another_worker_is_firing__is_not_waited_for(
    world: ScheduleWorld, other: RawConnection
) -> None:
    read = decisions(world)
    with other.transaction(force_rollback=True):
        assert len(fire_on(other, world, read)) == 1
        assert fire_on(world.connection, world, read) == {}
    assert len(fire_on(world.connection, world, read)) == 1, "the other worker has died before its commit"
    assert (world.ticks("often"), world.runs("often")) == (["12:01:00"], [("on_time", "12:01:00", 1)])


def test_a_change_between_reading_and_firing__fires_the_new_definition(
    world: ScheduleWorld, other: RawConnection
) -> None:
    read = decisions(world)
    change(other, world, EDIT)
    assert fire_on(world.connection, world, read) == {}
    assert world.jobs() == []
    assert len(fire_on(world.connection, world, decisions(world))) == 1
    (job,) = world.jobs()
    assert (job["task"], job["payload"]["version"]) == ("other", "new")


def test_a_change_of_the_times_after_the_tick__leaves_the_tick_to_the_times_before(
    world: ScheduleWorld, other: RawConnection
) -> None:
    read = decisions(world)
    change(other, world, RETIME)
    assert fire_on(world.connection, world, read) == {}
    scheduler, _ = world.worker()
    for minute in (1, 2, 3, 4):
        world.now = NOON + minute * MINUTE
        world.settle(scheduler)
    assert world.ticks("often") == ["12:01:00", "12:02:00", "12:04:00"]


def test_a_deletion_during_the_firing__leaves_no_runs(world: ScheduleWorld, other: RawConnection) -> None:
    assert len(fire_on(other, world, decisions(world))) == 1
    change(other, world, "delete from :S._private_schedules")
    assert world.execute("select count(*) from :S._private_schedule_runs") == [(0,)]
    assert world.execute("select before ->> 'name', after from :S._private_schedule_changes") == [("often", None)]


def test_a_job_key_that_another_session_has_locked__delays_no_other_schedule(
    world: ScheduleWorld, other: RawConnection
) -> None:
    world.add("keyed", run_at=NOON + MINUTE + SECOND, job_key="busy")
    world.now = NOON + MINUTE + SECOND
    seconds = 0.0
    scheduler, _ = world.worker(clock=lambda: seconds)
    with other.transaction(force_rollback=True):
        change(other, world, "select from :S.add_job('another', job_key => 'busy')")
        assert scheduler.fire_due() < 1
        assert (world.ticks("often"), world.ticks("keyed")) == (["12:01:00"], [])
    seconds += 1
    world.settle(scheduler)
    assert world.ticks("keyed") == ["12:01:01"]
    assert world.troubles == []


def test_a_run_by_hand_that_is_not_committed__delays_no_tick(world: ScheduleWorld, other: RawConnection) -> None:
    world.add("full", interval=SECOND, missed="all", missed_within=60 * MINUTE)
    scheduler, _ = world.worker()
    world.settle(scheduler)
    world.now += (MAX_RUNS + 1) * SECOND
    world.settle(scheduler)
    with other.transaction(force_rollback=True):
        job = TickJob(world.now, False, None, None, None, None, None, ())
        with other.cursor() as cursor:
            run_by_hand(cursor, world.row("full")["id"], job, by="maria", schema=world.schema, now=world.now)
        world.now += SECOND
        world.settle(scheduler)
        assert world.ticks("full")[-1] == "12:01:52", "the oldest row of runs is locked"
    world.now += SECOND
    world.settle(scheduler)
    assert len(world.runs("full")) == MAX_RUNS


def test_a_server_that_accepts_no_writes__is_asked_once(world: ScheduleWorld) -> None:
    world.add("other", cron="* * * * *", job_key="other")
    world.settle(world.worker()[0])
    world.now += MINUTE
    scheduler, source = world.worker()
    source.connection.execute("set default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        scheduler.fire_due()
    assert world.troubles == [], "it is the trouble of no schedule"
    source.connection.execute("set default_transaction_read_only = off")
    world.settle(scheduler)
    assert world.ticks("often") == ["12:01:00", "12:02:00"]


def test_a_session_that_has_changed_settings__reads_and_fires_the_same(
    world: ScheduleWorld, other: RawConnection
) -> None:
    other.execute("set timezone = 'Asia/Kathmandu'")
    other.execute("set datestyle = 'german'")
    other.execute("set intervalstyle = 'sql_standard'")
    world.execute("delete from :S._private_schedules")
    world.now = NOON + 30 * SECOND
    world.add("window", interval="90 seconds", starts_at=NOON + MINUTE, missed="all", missed_within="1 day 02:00:00")
    world.now = NOON + MINUTE
    with other.cursor() as cursor:
        due = read_due(cursor, schema=world.schema, max_schedules=100, now=world.now)
    (schedule,) = due.schedules
    assert (schedule.definition.starts_at, schedule.definition.interval) == (NOON + MINUTE, 90 * SECOND)
    assert schedule.missed_within == 26 * 60 * MINUTE
    (decision,) = [decide_schedule(schedule, TASK, due.now)]
    assert decision is not None
    assert len(fire_on(other, world, [decision])) == 1
    assert world.ticks("window") == ["12:01:00"]
    change(other, world, "update :S._private_schedules set interval = '1 day 00:00:01'")
    ((change_of_times,),) = world.execute("select after from :S._private_schedule_changes order by id desc limit 1")
    assert (change_of_times["interval"], change_of_times["starts_at"]) == ("P1DT1S", "2026-11-16T12:01:00+00:00")


def test_a_notification__is_sent_once_for_each_transaction_that_changes_schedules(
    world: ScheduleWorld, other: RawConnection
) -> None:
    other.execute('listen "jobs:control"')
    with world.connection.transaction():
        world.add("one", cron="* * * * *")
        world.add("two", cron="* * * * *")
        world.execute("update :S._private_schedules set description = 'x'")
    other.execute("select 1")
    heard = [notice.payload for notice in other.notifies(timeout=0)]
    assert heard == [world.schema]
    fire_on(world.connection, world, decisions(world))
    other.execute("select 1")
    assert [json.dumps(notice.payload) for notice in other.notifies(timeout=0)] == [], "workers change no definition"


def test_every_version__fires_skips_misses_and_leaves_out(versioned_database: str, worker_schema: str) -> None:
    with ExitStack() as stack:

        def connect(**options: Any) -> RawConnection:
            return stack.enter_context(psycopg.connect(versioned_database, autocommit=True, options=NO_WAIT))

        world = due_world(connect, worker_schema)
        other = connect()
        world.add("slow", interval=MINUTE, overlap="skip")
        read = decisions(world)
        with other.transaction(force_rollback=True):
            change(other, world, EDIT)
            assert fire_on(world.connection, world, read).keys() == {world.row("slow")["id"]}
        assert len(fire_on(world.connection, world, decisions(world))) == 1
        scheduler, _ = world.worker()
        for minute in (2, 3, 60):
            world.now = NOON + minute * MINUTE
            world.settle(scheduler)
        assert world.ticks("often") == ["12:01:00", "12:02:00", "12:03:00", "13:00:00"]
        assert world.runs("often")[-2:] == [("missed", "12:59:00", 56), ("on_time", "13:00:00", 1)]
        assert world.runs("slow") == [
            ("on_time", "12:02:00", 1),
            ("overlap", "12:03:00", 1),
            ("missed", "12:59:00", 56),
            ("overlap", "13:00:00", 1),
        ]
        assert ("schedule_missed", "slow", 56) in world.events()
        with world.connection.cursor() as cursor:
            assert read_control(cursor, "worker", schema=world.schema, now=world.now).until_schedule == 60


READ = """select relname, seq_tup_read + idx_tup_fetch from pg_stat_user_tables
    where relname in ('_private_schedules', '_private_schedule_runs', '_private_jobs') order by 1"""
FIRED = 20
GROWN = 5_000
GROW = """
insert into {0}._private_schedule_runs (crontab_identifier, tick, kind)
select 'another', now(), 'on_time' from generate_series(1, {1});
select {0}.add_job('report', run_at => now() + interval '1 day') from generate_series(1, {1});
insert into {0}._private_schedules (name, task, cron, is_enabled)
select 'disabled ' || n, 'report', '@daily', false from generate_series(1, {1}) as n"""


def prepare(connection: RawConnection) -> None:
    """Have statements prepared as a worker does, and the tables analyzed while they are empty."""
    connection.prepare_threshold = 0
    connection.execute("vacuum analyze")


def grow(connection: RawConnection, schema: str) -> None:
    connection.execute(sql.SQL(GROW).format(sql.Identifier(schema), sql.Literal(GROWN)), prepare=False)


def rows_read(connection: RawConnection) -> dict[str, int]:
    """Return how many rows of each table have been read."""
    connection.execute("select pg_stat_force_next_flush()")
    return dict(connection.execute(READ).fetchall())


def check(connection: RawConnection, before: dict[str, int]) -> None:
    """Check that no table was read for each schedule or item that was fired."""
    read = {name: count - before[name] for name, count in rows_read(connection).items()}
    assert read["_private_jobs"] < 20 * FIRED
    assert read["_private_schedule_runs"] < 50 * FIRED
    # A plan for a hundred schedules may read all of them, some times for all that are fired.
    assert read["_private_schedules"] < 3 * GROWN


def test_schedules__are_fired_without_plans_for_empty_tables(
    shared_connection: RawConnection, worker_schema: str
) -> None:
    prepare(shared_connection)
    world = ScheduleWorld(lambda **options: shared_connection, worker_schema, NOON + 30 * SECOND)
    for number in range(FIRED):
        world.add(f"often {number}", cron="* * * * *", overlap="skip" if number % 2 else "allow")
    scheduler, _ = world.worker(clock=lambda: 0.0)
    # The server makes the plan that it keeps after some executions.
    for minute in range(10):
        world.now = NOON + minute * MINUTE
        world.settle(scheduler)
    grow(shared_connection, worker_schema)
    before = rows_read(shared_connection)
    world.now = NOON + 10 * MINUTE
    world.settle(scheduler)
    check(shared_connection, before)
    assert world.runs("often 0")[-1] == ("on_time", "12:10:00", 1)
    assert world.runs("often 1")[-1] == ("overlap", "12:10:00", 9)


def test_items_of_the_crontab__are_fired_without_plans_for_empty_tables(
    shared_connection: RawConnection, worker_schema: str
) -> None:
    prepare(shared_connection)
    world = CronWorld(lambda **options: shared_connection, worker_schema, NOON - 30 * SECOND)
    cron, _ = world.worker([CronItem(f"often{number}", "* * * * *") for number in range(FIRED)])
    world.settle(cron)
    for minute in range(10):
        world.now = NOON + minute * MINUTE
        world.settle(cron)
    grow(shared_connection, worker_schema)
    before = rows_read(shared_connection)
    world.now = NOON + 10 * MINUTE
    world.settle(cron)
    check(shared_connection, before)
    fired = "select count(*) from {}._private_schedule_runs where tick = %s"
    text = sql.SQL(fired).format(sql.Identifier(worker_schema))
    assert shared_connection.execute(text, [world.now]).fetchone() == (FIRED,)
