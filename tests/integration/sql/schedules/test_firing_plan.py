"""Plans of the statements that fire: sessions keep plans, and tables grow."""

from __future__ import annotations

from psycopg import sql

from django_graphile_worker.crontab import CronItem
from tests.conftest import RawConnection
from tests.support.cron_world import CronWorld
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld

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
    versioned_connection: RawConnection, worker_schema: str
) -> None:
    prepare(versioned_connection)
    world = ScheduleWorld(lambda **options: versioned_connection, worker_schema, NOON + 30 * SECOND)
    for number in range(FIRED):
        world.add(f"often {number}", cron="* * * * *", overlap="skip" if number % 2 else "allow")
    rounds, _ = world.worker(clock=lambda: 0.0)
    # The server makes the plan that it keeps after some executions.
    for minute in range(10):
        world.now = NOON + minute * MINUTE
        world.settle(rounds)
    grow(versioned_connection, worker_schema)
    before = rows_read(versioned_connection)
    world.now = NOON + 10 * MINUTE
    world.settle(rounds)
    check(versioned_connection, before)
    assert world.runs("often 0")[-1] == ("on_time", "12:10:00", 1)
    assert world.runs("often 1")[-1] == ("overlap", "12:10:00", 9)


def test_items_of_the_crontab__are_fired_without_plans_for_empty_tables(
    versioned_connection: RawConnection, worker_schema: str
) -> None:
    prepare(versioned_connection)
    world = CronWorld(lambda **options: versioned_connection, worker_schema, NOON - 30 * SECOND)
    cron, _ = world.worker([CronItem(f"often{number}", "* * * * *") for number in range(FIRED)])
    world.settle(cron)
    for minute in range(10):
        world.now = NOON + minute * MINUTE
        world.settle(cron)
    grow(versioned_connection, worker_schema)
    before = rows_read(versioned_connection)
    world.now = NOON + 10 * MINUTE
    world.settle(cron)
    check(versioned_connection, before)
    fired = "select count(*) from {}._private_schedule_runs where tick = %s"
    text = sql.SQL(fired).format(sql.Identifier(worker_schema))
    assert versioned_connection.execute(text, [world.now]).fetchone() == (FIRED,)
